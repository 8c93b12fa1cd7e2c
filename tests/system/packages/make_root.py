"""Builds the packages and a Debian 12 root with exactly what they depend on, and a small C compiler: WORK/deb and WORK/root.tar.

usage: make_root.py SOURCE WORK
"""

import glob
import os
import re
import shutil
import subprocess
import sys
import time

SOURCE, WORK = sys.argv[1:3]
# For whoever compiles against libcarat-dev; tcc is a hundredth of gcc's size.
COMPILER = ["tcc", "libc6-dev", "pkgconf"]


def step(what, command, **options):
    begin = time.monotonic()
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    print(f"{what}: {time.monotonic() - begin:.1f} s", flush=True)
    if done.returncode != 0:
        print(done.stdout)
        sys.exit(1)
    return done.stdout


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


def depends(package):
    """The packages that a package needs, as its control file has it, without those built here."""
    field = subprocess.run(["dpkg-deb", "-f", package, "Depends"], check=True, stdout=subprocess.PIPE, text=True).stdout
    names = {re.match(r"[a-z0-9.+-]+", entry.strip()).group() for entry in field.split(",") if entry.strip()}
    return names - {"libcarat1"}


def main():
    if os.geteuid() != 0:
        skip("a root can only be made and entered by root")
    for program in ("mmdebstrap", "dpkg-shlibdeps", "file"):
        if not shutil.which(program):
            skip(f"no {program}")
    shutil.rmtree(WORK, ignore_errors=True)
    os.makedirs(WORK)
    build = os.path.join(SOURCE, "build", "package")
    deb = os.path.join(WORK, "deb")
    step("configured", ["cmake", "--preset", "package"], cwd=SOURCE)
    step("compiled", ["cmake", "--build", "--preset", "package", "-j", str(os.cpu_count())], cwd=SOURCE)
    # gzip in place of xz: a fifth of the time.
    step("packed", ["cpack", "-B", deb, "-D", "CPACK_DEBIAN_COMPRESSION_TYPE=gzip"], cwd=build)
    packages = sorted(glob.glob(os.path.join(deb, "*.deb")))
    if len(packages) != 3:
        sys.exit(f"three packages were expected: {packages}")
    include = sorted(set().union(*map(depends, packages)) | set(COMPILER))
    print("the root gets", *include)
    root = os.path.join(WORK, "root.tar")
    command = ["mmdebstrap", "--variant=apt", "--quiet", "--dpkgopt=force-unsafe-io",
               "--dpkgopt=path-exclude=/usr/share/locale/*", "--include=" + ",".join(include), "bookworm", root]
    begin = time.monotonic()
    made = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    print(f"root: {time.monotonic() - begin:.1f} s", flush=True)
    if made.returncode != 0:
        # A machine without a network, or one whose kernel forbids it: not the packages' fault.
        print(made.stdout)
        skip("mmdebstrap cannot make a root here")


main()
