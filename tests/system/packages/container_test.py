"""The image of deploy/container/Containerfile, built by buildah upon the root of make_root.py in place of Debian's image from
a registry, and its server: no daemon, no network, nothing outside of WORK.

usage: container_test.py SOURCE WORK [unittest's arguments]
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import sandbox  # noqa: E402

SOURCE, WORK = sys.argv[1:3]
INSIDE = "in namespaces"
STORE = os.path.join(WORK, "containers")


def buildah(*words, **options):
    command = ["buildah", "--storage-driver", "vfs", "--root", f"{STORE}/root", "--runroot", f"{STORE}/run", *words]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env={**os.environ, "BUILDAH_ISOLATION": "chroot", "TMPDIR": STORE}, **options)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(words)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout.strip()


class Container(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        sandbox.bring_up_loopback()
        os.makedirs(STORE)
        base = buildah("from", "scratch")
        buildah("add", "--quiet", base, f"{WORK}/root.tar", "/")
        buildah("commit", "--quiet", base, "localhost/debian")
        print(buildah("build", "--format", "docker", "--layers=false", "--pull-never", "--build-arg",
                      "BASE=localhost/debian", "-t", "localhost/carat", "-f",
                      f"{SOURCE}/deploy/container/Containerfile", f"{WORK}/deb"))
        image = json.loads(buildah("inspect", "--type", "image", "localhost/carat"))
        cls.config = image["Docker"]["config"]
        cls.container = buildah("from", "--pull-never", "localhost/carat")

    def run_inside(self, *words, **options):
        return buildah("run", self.container, "--", *words, **options)

    def test_1_it_is_nobody_and_has_a_health_check(self):
        self.assertEqual(self.config["User"], "65532:65532")
        self.assertEqual(self.run_inside("id", "-u"), "65532")
        self.assertEqual(self.config["StopSignal"], "SIGTERM")
        self.assertEqual(self.config["Healthcheck"]["Test"][0], "CMD")

    def test_2_nothing_but_the_package(self):
        self.assertEqual(self.run_inside("sh", "-c", "ls /tmp /var/lib/apt/lists; dpkg-query -f '${Package}\\n' -W '*carat*'"),
                         "/tmp:\n\n/var/lib/apt/lists:\ncarat")

    def test_3_without_a_word_about_keys_it_does_not_start(self):
        with self.assertRaisesRegex(AssertionError, "--allow-no-key"):
            self.run_inside(*self.config["Entrypoint"])

    def test_4_it_serves_and_its_health_check_sees_it(self):
        check = self.config["Healthcheck"]["Test"][1:]
        with self.assertRaises(AssertionError):
            self.run_inside(*check)  # nobody listens yet
        server = subprocess.Popen(
            ["buildah", "--storage-driver", "vfs", "--root", f"{STORE}/root", "--runroot", f"{STORE}/run", "run",
             "--isolation", "chroot", self.container, "--", *self.config["Entrypoint"], "--allow-no-key"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        try:
            for tries in range(60):
                try:
                    self.run_inside(*check)
                    break
                except AssertionError:
                    self.assertLess(tries, 59, "it never became healthy")
                    self.assertIsNone(server.poll())
                    time.sleep(0.3)
        finally:
            server.send_signal(signal.SIGTERM)
            try:
                server.wait(30)
            except subprocess.TimeoutExpired:
                server.kill()


def outside():
    if not os.path.exists(f"{WORK}/root.tar"):
        return "make_root.py made no root"
    if not shutil.which("buildah"):
        return "no buildah"
    probe = subprocess.run(sandbox.command("true"), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return f"no namespaces: {probe.stdout.strip()}" if probe.returncode != 0 else None


if __name__ == "__main__":
    if os.environ.get("CARAT_TEST_PLACE") != INSIDE:
        why = outside()
        if why:
            print(f"skipped: {why}")
            sys.exit(77)
        shutil.rmtree(STORE, ignore_errors=True)
        status = subprocess.run(sandbox.command(sys.executable, "-B", *sys.argv),
                                env={**os.environ, "CARAT_TEST_PLACE": INSIDE}).returncode
        shutil.rmtree(STORE, ignore_errors=True)
        sys.exit(status)
    del sys.argv[1:3]
    unittest.main()
