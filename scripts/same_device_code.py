#!/usr/bin/env python3
"""Says which device functions differ between a commit and the working tree.

usage: scripts/same_device_code.py [options] COMMIT [PATH ...]

For changes that should leave the device code as it is: what has run on a card need not run there again. PATH is a .cu
file or a folder of them (default: src/exec/cuda). Exits with 1 where a function differs.

Without --renamed, every file is compiled to a cubin and its functions are compared byte by byte with those of the same
name in the same file of the commit.

With --renamed, names and files do not matter: all functions of all files are compared as a multiset, and those that
have no equal in the other tree are listed. What is compared is PTX, because ptxas orders and schedules functions by
their names: equal PTX under other names becomes machine code with other bytes. In the text of a function every name
stands for what it names (a function for its own text, a variable for its declaration).
"""
import argparse
import hashlib
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

NVCC = os.environ.get("NVCC", "nvcc")
ARCH = os.environ.get("ARCH", "sm_90a")
FOLDER = Path("src/exec/cuda")


def run_git(*arguments):
    return subprocess.run(["git", *map(str, arguments)], capture_output=True, text=True, check=True).stdout.strip()


def compile_source(tree, source, out, kind):
    """Compiles to `out`, a cubin or ptx; unless it is there already, which only happens in a cache."""
    if out.exists():
        return
    unfinished = out.with_name(f"{out.name}.unfinished")
    command = [NVCC, f"-{kind}", f"-arch={ARCH}", "-std=c++20", "-O3", "-DNDEBUG", "--expt-relaxed-constexpr",
               "-I", str(tree / "src"), str(tree / source), "-o", str(unfinished)]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"{tree / source} does not compile:\n{result.stderr}")
    unfinished.rename(out)


def machine_code(cubin):
    """Name and code of every function of an ELF file, without the hashes in the names of anonymous namespaces."""
    data = Path(cubin).read_bytes()
    table, = struct.unpack_from("<Q", data, 0x28)
    entry_bytes, count = struct.unpack_from("<HH", data, 0x3a)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, table + i * entry_bytes) for i in range(count)]
    found = {}
    for kind, offset, size, link in ((s[1], s[4], s[5], s[6]) for s in sections):
        if kind != 2:  # not a table of symbols
            continue
        names = sections[link][4]
        for at in range(offset, offset + size, 24):
            name, info, _, section, value, bytes_ = struct.unpack_from("<IBBHQQ", data, at)
            if info & 15 != 2 or bytes_ == 0 or section >= count:  # not a function
                continue
            text = data[names + name:data.index(b"\0", names + name)].decode()
            begin = sections[section][4] + value
            found[re.sub(r"_GLOBAL__N__[0-9a-f]{8}", "_GLOBAL__N_", text)] = data[begin:begin + bytes_]
    return found


def closing_brace(text, at):
    """Where the block whose text begins at `at`, behind its opening brace, is closed."""
    depth = 1
    for brace in re.finditer(r"[{}]", text[at:]):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return at + brace.end()
    sys.exit("PTX with a block that is not closed")


def nameless_functions(ptx):
    """Name of every function of a PTX module, and a digest of its text in which names stand for what they name."""
    text = re.sub(r"//.*", "", Path(ptx).read_text())
    functions = {}
    header = r"^(?:\.visible |\.weak )?(?:\.entry|\.func)\s+(?:\([^)]*\)\s*)?([\w$]+)[^;{]*\{"
    for found in re.finditer(header, text, re.M):
        functions[found[1]] = text[found.start():closing_brace(text, found.end())]
    declaration = r"^((?:\.\w+ )*?\.(?:global|const|shared)\b[^;=]*?)([\w$]+)((?:\[\d*\])*(?: = .*)?;)"
    variables = {found[2]: found[1] + found[3] for found in re.finditer(declaration, text, re.M)}
    digests = {}

    def digest_of(name):
        if name not in digests:
            digests[name] = "a function that calls itself"

            def meaning(match):
                word = match[0]
                if word in variables:
                    return f"<{variables[word]}>"
                if word == name or word.startswith(f"{name}_param_"):
                    return word.replace(name, "<this>")
                if word in functions:
                    return f"<{digest_of(word)}>"
                return re.sub(r"^\$L__BB\d+_", "$", word)
            body = re.sub(r"[\w$]+", meaning, functions[name])
            digests[name] = hashlib.sha256(" ".join(body.split()).encode()).hexdigest()
        return digests[name]
    return {name: digest_of(name) for name in functions}


def compare_by_name(before, here, sources, pool, output):
    """Prints a line for every file; whether all of them are the same."""
    def compare(source):
        if not (before / source).exists():
            return f"{source}: is new"
        old, new = (machine_code(output(tree, source, "cubin")) for tree in (before, here))
        changed = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
        return f"{source}: {len(new)} functions, " + (f"{len(changed)} differ, {changed[0]} first" if changed
                                                      else "the same")
    same = True
    for line in pool.map(compare, sources):
        print(line, flush=True)
        same = same and line.endswith("the same")
    return same


def compare_nameless(before, old_sources, here, new_sources, pool, output):
    """Prints the functions of either tree that have no equal in the other; whether there are none."""
    def read(tree, sources):
        paths = pool.map(lambda source: output(tree, source, "ptx"), sources)
        return [(digest, source, name) for path, source in zip(paths, sources)
                for name, digest in nameless_functions(path).items()]
    sides = {"before": read(before, old_sources), "now": read(here, new_sources)}
    counts = {side: Counter(digest for digest, _, _ in found) for side, found in sides.items()}
    for side, other in (("before", "now"), ("now", "before")):
        left = counts[side] - counts[other]
        for digest, source, name in sides[side]:
            if left[digest] > 0:
                left[digest] -= 1
                print(f"only {side}: {source}: {demangled(name)}")
    print(f"{len(sides['before'])} functions before, {len(sides['now'])} now, "
          + ("the same" if counts["before"] == counts["now"] else "not the same"))
    return counts["before"] == counts["now"]


def demangled(name):
    if shutil.which("c++filt") is None:
        return name
    return subprocess.run(["c++filt", name], capture_output=True, text=True, check=True).stdout.strip()


def sources_of(tree, paths):
    """The .cu files that `paths`, relative to the tree, name."""
    found = []
    for path in paths:
        files = sorted((tree / path).rglob("*.cu")) if (tree / path).is_dir() else [tree / path]
        if not files or not files[0].exists():
            sys.exit(f"{tree / path}: there is no .cu file")
        found += [file.relative_to(tree) for file in files]
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     usage=argparse.SUPPRESS)
    parser.add_argument("commit", metavar="COMMIT")
    parser.add_argument("paths", metavar="PATH", nargs="*")
    parser.add_argument("--renamed", action="store_true", help="compare regardless of names and files")
    parser.add_argument("--before", metavar="PATH", action="append",
                        help="with --renamed: a file or folder of the commit (may be given again; default: as PATH)")
    parser.add_argument("-j", "--jobs", type=int, default=os.cpu_count(), help="files compiled at a time")
    parser.add_argument("--cache", type=Path, help="folder in which what the commit compiles to is kept")
    arguments = parser.parse_args()
    if arguments.before and not arguments.renamed:
        parser.error("--before needs --renamed: without it, files are compared with those of the same name")
    here = Path(run_git("rev-parse", "--show-toplevel"))
    paths = [Path(name).resolve().relative_to(here) for name in arguments.paths] or [FOLDER]
    with tempfile.TemporaryDirectory() as folder:
        before = Path(folder) / "before"
        kept = Path(folder) / "old"
        if arguments.cache:
            kept = arguments.cache / run_git("rev-parse", arguments.commit) / ARCH
        run_git("-C", here, "worktree", "add", "--quiet", "--detach", before, arguments.commit)
        try:
            def output(tree, source, kind):
                out = (kept if tree == before else Path(folder) / "new") / source.with_suffix(f".{kind}")
                out.parent.mkdir(parents=True, exist_ok=True)
                compile_source(tree, source, out, kind)
                return out
            with ThreadPoolExecutor(arguments.jobs) as pool:
                if arguments.renamed:
                    old_sources = sources_of(before, arguments.before or paths)
                    same = compare_nameless(before, old_sources, here, sources_of(here, paths), pool, output)
                else:
                    same = compare_by_name(before, here, sources_of(here, paths), pool, output)
        finally:
            run_git("-C", here, "worktree", "remove", "--force", before)
    sys.exit(0 if same else 1)


if __name__ == "__main__":
    main()
