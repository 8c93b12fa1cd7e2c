"""Real carat servers on loopback, HAProxy in front of them, and load on top: what the tests of deploy/ share.

Every process started here is a child that is ended by its own handle; ports are free ones of 127.0.0.1.
"""

import collections
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time

SOURCES = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PATIENCE = 60.0  # seconds until something that should happen soon counts as failed


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until(condition, what, seconds=PATIENCE):
    """The first true value of the condition."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f"after {seconds} s still waiting for {what}")


def get(port, path, timeout=PATIENCE):
    """Status and body; status 0 where nobody listens."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    except OSError:
        return 0, ""
    finally:
        connection.close()


class Replica:
    """`carat serve` with the demo model on the CPU."""

    def __init__(self, program, folder, name, flags=()):
        self.name, self.port = name, free_port()
        self._log = os.path.join(folder, name + ".log")
        self._command = [program, "serve", "--port", str(self.port), "--device", "cpu", "-t", "1", "-c", "4096",
                         "--sse-ping-interval", "1", "--drain-grace", "1", *flags]
        self._process = None

    def start(self, *flags):
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen([*self._command, *flags], stdin=subprocess.DEVNULL, stdout=log,
                                             stderr=log)
        return self

    def wait_until_ready(self):
        wait_until(lambda: self._process.poll() is not None or get(self.port, "/health")[0] == 200,
                   f"{self.name} to be ready")
        assert self._process.poll() is None, self.log()
        return self

    def address(self):
        return f"{self.name}=127.0.0.1:{self.port}"

    def log(self):
        with open(self._log, encoding="utf-8") as log:
            return log.read()

    def signal(self, number):
        self._process.send_signal(number)

    def is_running(self):
        return self._process is not None and self._process.poll() is None

    def kill(self):
        if self.is_running():
            self._process.kill()
            self._process.wait()

    def drain(self):
        """SIGTERM; returns the exit status."""
        self.signal(signal.SIGTERM)
        return self._process.wait(PATIENCE)

    def metric(self, name, label=""):
        """The sum of a metric's series, of those that have the label."""
        labels = rf"{{[^}}]*{label}[^}}]*}}" if label else r"(?:{[^}]*})?"
        found = re.findall(rf"^{name}{labels} (\S+)$", get(self.port, "/metrics")[1], re.MULTILINE)
        assert found, name
        return sum(map(float, found))


LogLine = collections.namedtuple("LogLine", "replica status ending retries kind key path")


class Balancer:
    """HAProxy with the configuration that deploy/haproxy/render.sh writes."""

    _LINE = re.compile(r" carat/(\S+) (-?\d+) \S+ \d+ (\S+) \S+ retries=(\+?\d+) key=(\w*):(\w*) \w+ (\S+)$")

    def __init__(self, haproxy, folder, replicas, *options, change=lambda text: text):
        self.port = free_port()
        self._config, self._log = (os.path.join(folder, "haproxy." + end) for end in ("cfg", "log"))
        self.socket = os.path.join(folder, "admin.sock")
        rendered = subprocess.run(
            [os.path.join(SOURCES, "deploy/haproxy/render.sh"), "--bind", f"127.0.0.1:{self.port}", "--socket",
             self.socket, "--lua", os.path.join(SOURCES, "deploy/haproxy/hanging.lua"), "--check-interval", "200ms", "--check-timeout", "1s", "--stream-timeout", "3s", *options,
             *(replica.address() for replica in replicas)], check=True, stdout=subprocess.PIPE, text=True).stdout
        with open(self._config, "w", encoding="utf-8") as config:
            config.write(change(rendered))
        subprocess.run([haproxy, "-c", "-f", self._config], check=True, stdout=subprocess.DEVNULL)
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen([haproxy, "-db", "-f", self._config], stdin=subprocess.DEVNULL,
                                             stdout=log, stderr=log)
        wait_until(lambda: self.states() and set(self.states().values()) == {"UP"}, "all replicas to be up")

    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def states(self):
        """What HAProxy takes each replica for: UP, NOLB (draining), DOWN."""
        text = b""
        try:
            with socket.socket(socket.AF_UNIX) as control:
                control.connect(self.socket)
                control.sendall(b"show stat\n")
                while piece := control.recv(1 << 16):
                    text += piece
        except OSError:
            return {}
        rows = [row.split(",") for row in text.decode().splitlines()]
        return {row[1]: row[17].split()[0] for row in rows if row[0] == "carat" and row[1] != "BACKEND"}

    def wait_for(self, replica, state):
        wait_until(lambda: self.states().get(replica.name) == state, f"{replica.name} to be {state}")

    def requests(self, since=0):
        """What was asked through it, from the given number on."""
        with open(self._log, encoding="utf-8", errors="replace") as log:
            found = [self._LINE.search(line.rstrip("\n")) for line in log]
        return [LogLine(*match.groups()) for match in found if match][since:]

    def wait_for_requests(self, count):
        wait_until(lambda: len(self.requests()) >= count, f"{count} requests")

    def stop(self):
        self._process.terminate()
        self._process.wait(PATIENCE)


def bench(program, url, folder, *flags):
    """serve_bench's result. Without any answer it is a result, too."""
    result = os.path.join(folder, "bench.json")
    ended = subprocess.run([program, "--base-url", url, "--backend", "openai-chat", "--ignore-eos", "--num-warmups",
                            "0", "--save-result", result, *flags], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                           text=True)
    assert ended.returncode in (0, 1), ended.stdout
    with open(result, encoding="utf-8") as text:
        return json.load(text)


# Small conversations as an agent has them: each turn repeats what was said.
AGENT = ("--dataset", "agent", "--first-len", "60", "--turn-len", "10", "--system-len", "20")


class BenchLoad:
    """serve_bench again and again until it is told to stop, as one load of streams."""

    def __init__(self, program, url, folder, *flags, sessions=12, turns=3, concurrency=8, tokens=60):
        self.completed, self.failed = 0, collections.Counter()
        self.tokens = tokens
        self._stopped = threading.Event()
        self._failure = None

        def run():
            seed = 0
            try:
                while not self._stopped.is_set():
                    seed += 1
                    result = bench(program, url, folder, *AGENT, "--num-sessions", str(sessions), "--turns",
                                   str(turns), "--turn-output-len", str(tokens), "--max-concurrency",
                                   str(concurrency), "--session-header", "x-session-affinity", "--seed", str(seed),
                                   "--timeout", "30", *flags)
                    self.completed += result["completed"]
                    for kind, failures in result["carat"]["errors_by_kind"].items():
                        self.failed[kind] += failures["count"]
            except BaseException as failure:  # handed over by stop()
                self._failure = failure

        self._thread = threading.Thread(target=run)
        self._thread.start()

    def stop(self):
        """Waits for what runs, and returns what failed, by kind."""
        self._stopped.set()
        self._thread.join()
        if self._failure:
            raise self._failure
        # What follows a failed turn is not asked, and no failure of its own.
        self.failed.pop("skipped", None)
        return dict(self.failed)


class WholeLoad:
    """Requests without a stream, one after the other on several threads, until it is told to stop."""

    def __init__(self, port, threads=4, tokens=40, timeout=30.0):
        self.completed, self.failed, self.slowest = 0, collections.Counter(), 0.0
        self._port, self._tokens, self._timeout = port, tokens, timeout
        self._stopped, self._lock = threading.Event(), threading.Lock()
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(threads)]
        for thread in self._threads:
            thread.start()

    def _run(self, number):
        count = 0
        while not self._stopped.is_set():
            count += 1
            began = time.monotonic()
            outcome = self._ask(f"whole-{number}-{count % 3}")
            with self._lock:
                self.slowest = max(self.slowest, time.monotonic() - began)
                if outcome is None:
                    self.completed += 1
                else:
                    self.failed[outcome] += 1

    def _ask(self, session):
        """None, or what went wrong."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=self._timeout)
        body = {"messages": [{"role": "user", "content": f"What is nginx? {session}"}], "ignore_eos": True,
                "max_tokens": self._tokens}
        try:
            connection.request("POST", "/v1/chat/completions", json.dumps(body), {"x-session-affinity": session})
            answer = connection.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException) as failure:
            return type(failure).__name__
        finally:
            connection.close()
        if answer.status != 200:
            return f"HTTP {answer.status}"
        return None if json.loads(text)["usage"]["completion_tokens"] == self._tokens else "short answer"

    def stop(self):
        self._stopped.set()
        for thread in self._threads:
            thread.join()
        return dict(self.failed)


def temporary_folder():
    return tempfile.TemporaryDirectory(prefix="carat-deploy-")


def returned_to_their_replica(requests):
    """Of the requests of a session after its first: how many went where the one before went, and how many there are."""
    last, same, count = {}, 0, 0
    for request in requests:
        if request.key in last:
            count += 1
            same += last[request.key] == request.replica
        last[request.key] = request.replica
    return same, count
