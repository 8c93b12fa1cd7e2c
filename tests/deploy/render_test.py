"""deploy/haproxy/render.sh without HAProxy: what it writes, and what it refuses."""

import os
import subprocess
import unittest

HAPROXY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../deploy/haproxy")


def render(*arguments):
    return subprocess.run([os.path.join(HAPROXY, "render.sh"), *arguments], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True)


class Render(unittest.TestCase):
    def test_without_options_it_is_the_file_itself(self):
        with open(os.path.join(HAPROXY, "carat.cfg"), encoding="utf-8") as file:
            lines = [line for line in file if "# replicas" not in line and "# end of replicas" not in line]
        self.assertEqual(render("127.0.0.1:8001", "127.0.0.1:8002", "127.0.0.1:8003").stdout, "".join(lines))

    def test_options_and_names(self):
        text = render("--bind", "[::]:443", "--per-replica", "7", "--socket", "/s", "--lua", "/l.lua",
                      "--stream-timeout", "9s", "--check-interval", "20ms", "--check-timeout", "2m", "blue=h:1",
                      "[fd00::1]:2").stdout
        for line in ("bind [::]:443", "stats socket /s mode", "lua-load /l.lua ", "set-timeout server 9s if",
                     "inter 20ms", "maxconn 7 ", "timeout check 2m", "server blue h:1\n", "server r2 [fd00::1]:2\n"):
            self.assertIn(line, text)
        self.assertNotIn("127.0.0.1:8001", text)

    def test_mistakes_are_named(self):
        for arguments, word in ((["x"], "HOST:PORT"), (["a=h:1", "a=h:2"], "two replicas"), (["h:0"], "HOST:PORT"),
                                (["h:1\n    server evil h:2"], "HOST:PORT"), (["a b=h:1"], "name"),
                                (["--bind"], "value"), (["--bind", ":1; x", "h:1"], "character"),
                                (["--per-replica", "0", "h:1"], "--per-replica"), (["--stream-timeout", "5", "h:1"], "time"),
                                (["--nothing", "h:1"], "--nothing"), ([], "usage")):
            ended = render(*arguments)
            self.assertEqual((ended.returncode, ended.stdout), (1, ""), arguments)
            self.assertIn(word, ended.stderr, arguments)


if __name__ == "__main__":
    unittest.main()
