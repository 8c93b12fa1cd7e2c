#!/usr/bin/env python3
"""Says which device functions differ between a commit and the working tree.

usage: scripts/same_device_code.py COMMIT [FILE.cu ...]    (default: every .cu file below src/exec/cuda)

For changes that should leave the machine code as it is: what has run on a card need not run there again. Every file is
compiled to a cubin (NVCC, ARCH in the environment; default nvcc, sm_90a) and its functions are compared byte by byte.
Exits with 1 where one differs.
"""
import os
import re
import struct
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

NVCC = os.environ.get("NVCC", "nvcc")
ARCH = os.environ.get("ARCH", "sm_90a")
FOLDER = Path("src/exec/cuda")


def compile_cubin(tree, source, out):
    command = [NVCC, "-cubin", f"-arch={ARCH}", "-std=c++20", "-O3", "-DNDEBUG", "--expt-relaxed-constexpr",
               "-I", str(tree / "src"), str(tree / source), "-o", str(out)]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"{tree / source} does not compile:\n{result.stderr}")


def functions(cubin):
    """Name and code of every function of an ELF file; what the compiler makes up for anonymous namespaces is left out."""
    data = Path(cubin).read_bytes()
    table, = struct.unpack_from("<Q", data, 0x28)
    entry_bytes, count = struct.unpack_from("<HH", data, 0x3a)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, table + i * entry_bytes) for i in range(count)]
    found = {}
    for kind, offset, size, link in ((s[1], s[4], s[5], s[6]) for s in sections):
        if kind != 2:  # no table of symbols
            continue
        names = sections[link][4]
        for at in range(offset, offset + size, 24):
            name, info, _, section, value, bytes_ = struct.unpack_from("<IBBHQQ", data, at)
            if info & 15 != 2 or bytes_ == 0 or section >= count:  # no function
                continue
            text = data[names + name:data.index(b"\0", names + name)].decode()
            begin = sections[section][4] + value
            found[re.sub(r"_GLOBAL__N__[0-9a-f]{8}", "_GLOBAL__N_", text)] = data[begin:begin + bytes_]
    return found


def main():
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    here = Path(subprocess.run(["git", "rev-parse", "--show-toplevel"], capture_output=True, text=True,
                               check=True).stdout.strip())
    sources = [Path(name).resolve().relative_to(here) for name in sys.argv[2:]]
    sources = sources or sorted(path.relative_to(here) for path in (here / FOLDER).rglob("*.cu"))
    differ = 0
    with tempfile.TemporaryDirectory() as folder:
        before = Path(folder) / "before"
        subprocess.run(["git", "-C", here, "worktree", "add", "--quiet", "--detach", before, sys.argv[1]], check=True)
        try:
            def compare(source):
                if not (before / source).exists():
                    return f"{source}: is new"
                cubins = [Path(folder) / f"{source.stem}.{side}" for side in ("old", "new")]
                compile_cubin(before, source, cubins[0])
                compile_cubin(here, source, cubins[1])
                old, new = functions(cubins[0]), functions(cubins[1])
                changed = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
                return f"{source}: {len(new)} functions, " + (f"{len(changed)} differ, {changed[0]} first" if changed
                                                              else "the same")
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                for line in pool.map(compare, sources):
                    print(line, flush=True)
                    differ += "the same" not in line
        finally:
            subprocess.run(["git", "-C", here, "worktree", "remove", "--force", before], check=True)
    sys.exit(1 if differ else 0)


if __name__ == "__main__":
    main()
