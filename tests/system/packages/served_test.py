"""The server under its unit, in namespaces of its own: started by packages_test.py.

usage: served_test.py ROOT [unittest's arguments]
"""

import http.client
import json
import os
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import sandbox  # noqa: E402

ROOT = sys.argv.pop(1)
QUESTION = {"messages": [{"role": "user", "content": "What is nginx?"}], "temperature": 0}


def ask(method, path, body=None):
    connection = http.client.HTTPConnection("127.0.0.1", 8080, timeout=60)
    connection.request(method, path, json.dumps(body) if body else None, {"Connection": "close"})
    return connection.getresponse()  # which closes the connection when it has been read


def health():
    with ask("GET", "/health") as answer:
        answer.read()
        return answer.status


class Served(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.unit = sandbox.Unit(ROOT, "carat.service")
        cls.sandbox = sandbox.Sandbox(cls.unit)
        print("not done here:", *cls.unit.not_reproduced())
        cls.server = cls.sandbox.start(cls.unit.command_line(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        for _ in range(300):
            try:
                if health() == 200:
                    return
            except OSError:
                pass
            if cls.server.poll() is not None:
                break
            time.sleep(0.1)
        cls.server.kill()
        raise AssertionError(f"it did not get ready:\n{cls.server.stderr.read().decode()}")

    @classmethod
    def tearDownClass(cls):
        cls.server.kill()
        cls.server.communicate()

    def test_1_it_answers(self):
        answer = json.loads(ask("POST", "/v1/chat/completions", QUESTION).read())
        self.assertIn("nginx", answer["choices"][0]["message"]["content"])

    def test_2_its_process_has_no_rights(self):
        with open(f"{ROOT}/proc/{self.server.pid}/status") as file:
            status = dict(line.split(":\t", 1) for line in file.read().splitlines() if ":\t" in line)
        self.assertEqual(status["NoNewPrivs"], "1")
        self.assertEqual(status["Seccomp"], "2")
        for capabilities in ("CapEff", "CapPrm", "CapBnd", "CapAmb"):
            self.assertEqual(int(status[capabilities], 16), 0, capabilities)
        self.assertEqual(set(status["Uid"].split()), {str(sandbox.USER)})
        with open(f"{ROOT}/proc/{self.server.pid}/limits") as file:
            self.assertIn(f" {self.sandbox.open_files()} ", next(line for line in file if "open files" in line))

    def shell(self, command):
        done = self.sandbox.start(["/bin/sh", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        said = done.communicate(timeout=20)[0].decode()
        return done.returncode, said

    def test_3_what_the_sandbox_forbids(self):
        """Of a shell in the same place: each of these would work without it, or for another user."""
        forbidden = [": > /usr/bin/x", ": > /var/lib/carat/models/x", ": > /etc/x", "ls /home", "ls /root", "ls /var/log",
                     "ls /srv", "cat /etc/shadow", "test -e /dev/kmsg",
                     "perl -e 'socket(my $s, 17, 3, 0) or exit 1'",   # AF_PACKET
                     "perl -e 'socket(my $s, 16, 3, 0) or exit 1'",   # AF_NETLINK
                     "perl -e 'exit(syscall(165, 0, 0, 0, 0, 0) == 0 || $! != 1 ? 0 : 1)'",  # mount: EPERM
                     "perl -e 'exit(syscall(175, 0, 0, 0) == 0 || $! != 1 ? 0 : 1)'"]        # init_module: EPERM
        for command in forbidden:
            status, said = self.shell(command)
            self.assertNotEqual(status, 0, f"{command}: {said}")
        for command in (": > $XDG_CACHE_HOME/x", ": > /tmp/x", ": > /var/tmp/x", "ls models", "test -r /etc/passwd",
                        "perl -e 'socket(my $s, 2, 1, 0) or exit 1'"):
            self.assertEqual(self.shell(command), (0, ""), command)

    def test_4_stopping_lets_an_answer_end(self):
        body = {**QUESTION, "stream": True, "ignore_eos": True, "max_tokens": 600}
        stream = ask("POST", "/v1/chat/completions", body)
        stream.read(1)
        begin = time.monotonic()
        self.server.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        self.assertEqual(health(), 404)
        self.assertTrue(stream.read().rstrip().endswith(b"[DONE]"))
        self.assertEqual(self.server.wait(self.unit.seconds("TimeoutStopSec")), 0)
        print(f"stopped after {time.monotonic() - begin:.1f} s")


if __name__ == "__main__":
    unittest.main()
