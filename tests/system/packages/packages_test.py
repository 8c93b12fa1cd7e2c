"""The packages as somebody meets them who installs them on a new Debian 12: what lintian says, what is where, `carat run`,
a C program that is built against libcarat-dev, and the server in the sandbox of its unit.

usage: packages_test.py WORK [unittest's arguments]; WORK as make_root.py left it
"""

import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import sandbox  # noqa: E402

WORK = sys.argv.pop(1)
ROOT = os.path.join(WORK, "root")
PACKAGES = sorted(glob.glob(os.path.join(WORK, "deb", "*.deb")))


def output(*words, **options):
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(words)} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


def inside(command, **options):
    return output("chroot", ROOT, "/bin/sh", "-ec", command, env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}, **options)


def setUpModule():
    shutil.rmtree(ROOT, ignore_errors=True)
    os.makedirs(ROOT)
    # A machine may forbid to make devices; programs that only throw words away are content with a file.
    output("tar", "-xf", os.path.join(WORK, "root.tar"), "-C", ROOT, "--exclude=./dev/*")
    open(f"{ROOT}/dev/null", "w").close()
    for package in PACKAGES:
        shutil.copy(package, f"{ROOT}/tmp")
    # The root has no lists of packages: what these depend on is there, or their control files say too little.
    print(inside("apt-get install -y --no-install-recommends /tmp/*.deb && rm /tmp/*.deb"))


class Packages(unittest.TestCase):
    def test_lintian_finds_no_errors(self):
        if not shutil.which("lintian"):
            self.skipTest("skipped: no lintian")
        said = subprocess.run(["lintian", "--tag-display-limit", "0", *PACKAGES], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True).stdout
        print(said)
        self.assertEqual([line for line in said.splitlines() if line.startswith("E:")], [])

    def test_nothing_is_enabled(self):
        self.assertEqual(glob.glob(f"{ROOT}/etc/systemd/system/*/carat*"), [])

    def test_everything_is_where_debian_looks(self):
        for path in ("/usr/bin/carat", "/usr/share/man/man1/carat.1.gz", "/etc/default/carat",
                     "/usr/share/bash-completion/completions/carat", "/usr/share/zsh/vendor-completions/_carat",
                     "/usr/share/fish/vendor_completions.d/carat.fish", "/usr/share/carat/models/demo-e-q8_0.gguf",
                     "/lib/systemd/system/carat.service", "/lib/systemd/system/carat@.service", "/var/lib/carat/models",
                     "/usr/share/doc/carat/copyright", "/usr/share/doc/libcarat1/changelog.Debian.gz"):
            self.assertTrue(os.path.exists(ROOT + path), path)
        self.assertIn("carat", inside("zcat /usr/share/man/man1/carat.1.gz"))

    def test_programs_need_no_cuda_and_know_no_folder_of_the_build(self):
        for path in ("/usr/bin/carat", glob.glob(f"{ROOT}/usr/lib/*/libcarat.so.1")[0][len(ROOT):]):
            self.assertNotRegex(inside(f"ldd {path}"), "not found|cuda|cublas")
            with open(ROOT + os.path.realpath(ROOT + path)[len(os.path.realpath(ROOT)):], "rb") as file:
                self.assertNotIn(b"/build/release", file.read())

    def test_carat_runs(self):
        self.assertIn("nginx", inside("cd / && carat run --device cpu -p 'What is nginx?' 2>&1"))
        version = inside("carat --version")
        self.assertIn(re.search(r"_([0-9.]+)-", PACKAGES[0]).group(1), version)

    def test_a_c_program_finds_the_library_with_pkg_config(self):
        self.assertIn("-lcarat", inside("pkg-config --libs carat"))
        answer = inside("cd /tmp && tcc /usr/share/doc/libcarat-dev/examples/ask.c "
                        "$(pkg-config --cflags --libs carat) -o ask && ./ask 'What is nginx?'")
        self.assertIn("server", answer)


class Units(unittest.TestCase):
    def setUp(self):
        if not shutil.which("systemd-analyze"):
            self.skipTest("skipped: no systemd-analyze")

    def test_systemd_understands_them(self):
        for file, unit in (("carat.service", "carat.service"), ("carat@.service", "carat@3.service")):
            # Beside the units of this machine, which has no carat; it is only read.
            with open(f"{ROOT}/lib/systemd/system/{file}") as text:
                content = text.read().replace("/usr/bin/carat", "/bin/true")
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, unit)
                with open(path, "w") as copy:
                    copy.write(content)
                said = subprocess.run(["systemd-analyze", "verify", "--man=no", path], text=True,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout
            self.assertEqual([line for line in said.splitlines() if "carat" in line], [])

    def test_exposure_is_low(self):
        said = output("systemd-analyze", "security", "--offline=true", f"--root={ROOT}", "--no-pager", "carat.service",
                      env={**os.environ, "SYSTEMD_COLORS": "0"})
        found = re.search(r"Overall exposure level for carat.service: ([0-9.]+)", said)
        self.assertLess(float(found.group(1)), 2.0, said)
        print(found.group())

    def test_the_drain_fits_the_time_to_stop(self):
        for name in ("carat.service", "carat@3.service"):
            unit = sandbox.Unit(ROOT, name)
            flags = dict(re.findall(r"--(drain-\w+) (\d+)", unit.one("ExecStart")))
            most = int(flags["drain-grace"]) + int(flags["drain-timeout"]) + 10
            self.assertLess(most, unit.seconds("TimeoutStopSec"))


class Server(unittest.TestCase):
    def test_in_the_sandbox_of_its_unit(self):
        probe = subprocess.run(sandbox.command("true"), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if probe.returncode != 0:
            self.skipTest(f"skipped: no namespaces: {probe.stdout.strip()}")
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "served_test.py")
        print(output(*sandbox.command(sys.executable, "-B", script, ROOT, "-v"), timeout=150))


class Withdrawal(unittest.TestCase):
    """After everything else: classes run in the order of their names."""

    def test_purging_leaves_the_models_of_the_administrator_and_nothing_else(self):
        model = f"{ROOT}/var/lib/carat/models/mine.gguf"
        open(model, "w").close()
        inside("mkdir -p /var/cache/private/carat && dpkg --purge libcarat-dev libcarat1 carat")
        left = inside("find / -xdev -path /proc -prune -o -name '*carat*' -print | grep -v '^/var/lib/dpkg\\|^/var/log' || true")
        self.assertEqual(left.split(), ["/var/lib/carat"])
        self.assertTrue(os.path.exists(model))


if __name__ == "__main__":
    if not os.path.exists(os.path.join(WORK, "root.tar")):
        print("skipped: make_root.py made no root")
        sys.exit(77)
    unittest.main()
