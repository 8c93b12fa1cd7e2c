"""HAProxy in front of three real carat servers: where requests go, and what becomes of them when a replica dies, drains,
hangs, is slow or full. Prints a table of counts; docs/deploy.md shows one.

usage: haproxy_test.py CARAT SERVE_BENCH HAPROXY NODE [unittest's arguments]; NODE may be empty
"""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../deploy"))
from fleet import (AGENT, Balancer, BenchLoad, Replica, WholeLoad, bench, get, returned_to_their_replica,  # noqa: E402
                   temporary_folder, wait_until)

CARAT, SERVE_BENCH, HAPROXY, NODE = sys.argv[1:5]
CUT_STREAMS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../server/clients/faults/cut_streams.mjs")
ROWS = []


def tearDownModule():
    print(f"\n{'fault':<34} {'streams':>8} {'cut':>4} {'lost':>5} {'whole':>6} {'lost':>5} {'retried':>8}")
    for row in ROWS:
        print("{:<34} {:>8} {:>4} {:>5} {:>6} {:>5} {:>8}".format(*row))


class ThreeReplicas(unittest.TestCase):
    flags = ("-np", "2")
    options = ()
    change = staticmethod(lambda text: text)

    def setUp(self):
        self._folder = temporary_folder()
        self.folder = self._folder.name
        self.replicas = [Replica(CARAT, self.folder, f"r{i}", self.flags).start() for i in (1, 2, 3)]
        for replica in self.replicas:
            replica.wait_until_ready()
        self.balancer = Balancer(HAPROXY, self.folder, self.replicas, *self.options, change=self.change)

    def tearDown(self):
        self.balancer.stop()
        for replica in self.replicas:
            replica.signal(signal.SIGCONT)
            replica.kill()
        self._folder.cleanup()

    def post(self, body, headers=None):
        """The answer of a chat request, and its body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.balancer.port)
        try:
            connection.request("POST", "/v1/chat/completions", json.dumps(body), headers or {})
            answer = connection.getresponse()
            return answer, json.loads(answer.read())
        finally:
            connection.close()

    def loads(self):
        streams = BenchLoad(SERVE_BENCH, self.balancer.url(), self.folder)
        whole = WholeLoad(self.balancer.port, threads=6)
        wait_until(lambda: {line.replica for line in self.balancer.requests()} == {"r1", "r2", "r3"}, "work for all")
        self.balancer.wait_for_requests(60)
        # The fault comes while requests run on the replica that will have it, and others wait there.
        wait_until(lambda: self.replicas[1].metric("carat_requests_waiting") >= 1, "requests that wait")
        return streams, whole

    def finish(self, fault, streams, whole):
        """Ends the loads, keeps a row of the table, and returns (streams cut, streams lost, other requests lost)."""
        failed, lost_whole = streams.stop(), whole.stop()
        cut = failed.pop("cut off", 0)
        retried = sum(line.retries not in ("0", "+0") for line in self.balancer.requests())
        ROWS.append((fault, streams.completed + cut + sum(failed.values()), cut, sum(failed.values()),
                     whole.completed + sum(lost_whole.values()), sum(lost_whole.values()), retried))
        unusual = [line for line in self.balancer.requests() if line.ending != "----" or line.status != "200"]
        if unusual:
            print(f"\n{fault}: not as usual in HAProxy's log:", *unusual, sep="\n  ")
        self.assertGreater(streams.completed, 20)
        self.assertGreater(whole.completed, 10)
        return cut, failed, lost_whole


class Faults(ThreeReplicas):
    def test_killed(self):
        streams, whole = self.loads()
        self.replicas[1].kill()
        time.sleep(1.0)  # under load, without it
        self.assertEqual(self.balancer.states()["r2"], "DOWN")
        self.replicas[1].start().wait_until_ready()
        self.balancer.wait_for(self.replicas[1], "UP")
        cut, lost, lost_whole = self.finish("kill -9 of one", streams, whole)
        self.assertEqual((lost, lost_whole), ({}, {}), "requests that had not begun to answer")
        self.assertLessEqual(cut, 2, "at most those that were being answered at that moment")

    def test_terminated(self):
        streams, whole = self.loads()
        self.assertEqual(self.replicas[1].drain(), 0)
        time.sleep(0.5)
        self.assertEqual(self.finish("SIGTERM of one", streams, whole), (0, {}, {}))

    def test_rolling_restart(self):
        streams, whole = self.loads()
        for replica in self.replicas:
            replica.signal(signal.SIGTERM)
            self.balancer.wait_for(replica, "NOLB")
            wait_until(lambda: not replica.is_running(), "its end")
            replica.start().wait_until_ready()
            self.balancer.wait_for(replica, "UP")
        self.assertEqual(self.finish("rolling restart of all", streams, whole), (0, {}, {}))

    def test_hanging(self):
        streams, whole = self.loads()
        self.replicas[1].signal(signal.SIGSTOP)
        self.balancer.wait_for(self.replicas[1], "DOWN")
        time.sleep(1.0)
        self.replicas[1].signal(signal.SIGCONT)
        self.balancer.wait_for(self.replicas[1], "UP")
        cut, lost, lost_whole = self.finish("SIGSTOP of one", streams, whole)
        self.assertEqual((lost, lost_whole), ({}, {}), "requests that had not begun to answer")
        self.assertLessEqual(cut, 2)

    def test_slow(self):
        streams, whole = self.loads()
        before = len(self.balancer.requests())
        end = time.monotonic() + 4.0
        while time.monotonic() < end:  # runs for a fifth of the time
            self.replicas[1].signal(signal.SIGSTOP)
            time.sleep(0.08)
            self.replicas[1].signal(signal.SIGCONT)
            time.sleep(0.02)
            self.assertEqual(self.balancer.states()["r2"], "UP", "slow is not down")
        during = self.balancer.requests(before)
        self.assertEqual(self.finish("one at a fifth of its speed", streams, whole), (0, {}, {}))
        of_slow = sum(line.replica == "r2" for line in during)
        self.assertLess(of_slow, len(during) / 3, "the load moves to the others")


    @unittest.skipUnless(NODE, "skipped: no Node 20 for the clients' libraries")
    def test_cut_streams_raise_an_error(self):
        with subprocess.Popen([NODE, CUT_STREAMS, self.balancer.url()], stdout=subprocess.PIPE, text=True) as client:
            self.assertEqual(client.stdout.readline(), "begun\n")
            self.replicas[1].signal(signal.SIGSTOP)  # so that no stream ends on its own meanwhile
            time.sleep(0.3)
            self.replicas[1].kill()
            result = json.loads(client.stdout.readline())
        cut = sum(line.ending.startswith("S") and line.status == "200" for line in self.balancer.requests())
        print("Streams that were cut:", json.dumps(result["raised"], indent=2))
        self.assertGreater(cut, 0)
        self.assertEqual(result["short"], 0)
        self.assertEqual((sum(result["raised"].values()), result["whole"]), (cut, 12 - cut))


class Affinity(ThreeReplicas):
    def test_sessions_return_under_load(self):
        result = bench(SERVE_BENCH, self.balancer.url(), self.folder, *AGENT, "--num-sessions", "30", "--turns", "8",
                       "--turn-output-len", "30", "--max-concurrency", "12", "--session-header", "x-session-affinity")
        self.assertEqual(result["failed"], 0)
        requests = self.balancer.requests()
        same, count = returned_to_their_replica(requests)
        shares = [sum(line.replica == name for line in requests) for name in ("r1", "r2", "r3")]
        print(f"sessions: {same} of {count} requests returned to their replica; load {shares}")
        self.assertGreaterEqual(count, 200)
        self.assertGreaterEqual(same / count, 0.95)
        self.assertGreater(min(shares), len(requests) / 8, "and every replica has its part")

    def test_prefixes_return_without_a_session(self):
        result = bench(SERVE_BENCH, self.balancer.url(), self.folder, "--dataset", "agent", "--first-len", "500",
                       "--turn-len", "10", "--num-sessions", "24", "--turns", "6", "--turn-output-len", "10",
                       "--max-concurrency", "6")
        self.assertEqual(result["failed"], 0)
        requests = self.balancer.requests()
        self.assertEqual({line.kind for line in requests}, {"prefix"})
        same, count = returned_to_their_replica(requests)
        print(f"prefixes: {same} of {count} requests returned to their replica")
        self.assertGreaterEqual(count, 100)
        self.assertGreaterEqual(same / count, 0.95)

    def ask(self, headers, fields):
        answer, _ = self.post({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1, **fields}, headers)
        self.assertEqual(answer.status, 200)
        return answer.getheader("x-carat-replica")

    def test_what_names_a_session(self):
        ways = [({"x-session-affinity": "K"}, {}), ({"x-session-id": "K"}, {}), ({"x-claude-code-session-id": "K"}, {}),
                ({"session-id": "K"}, {}), ({}, {"prompt_cache_key": "K"}), ({}, {"metadata": {"user_id": "K"}}),
                ({}, {"user": "K"})]
        replicas = {self.ask(headers, {**fields, "seed": seed}) for headers, fields in ways for seed in (1, 2)}
        self.assertEqual(len(replicas), 1, "whichever field says it")
        # Of two names the one that comes first above counts.
        names = ["x-session-affinity", "x-session-id", "x-claude-code-session-id", "session-id"]
        for first, second in zip(names, names[1:]):
            self.ask({second: "other", first: "K"}, {"user": "third"})
        self.ask({"session-id": "K"}, {"prompt_cache_key": "other"})
        self.ask({}, {"user": "third", "metadata": {"user_id": "other"}, "prompt_cache_key": "K"})
        keys = {line.key for line in self.balancer.requests() if line.path == "/v1/chat/completions"}
        self.assertEqual(len(keys), 1)


class WhatAffinityGains(ThreeReplicas):
    """The agent trace of bench/serve with four conversations for each replica, its lengths and steps divided: with the
    configuration as it is, and with requests given out in turn. docs/deploy.md has the figures of
    CARAT_TRACE_DIVISOR=64, which takes a minute and a half; its 16 steps are whole."""

    flags = ("-np", "4")
    DIVISOR = int(os.environ.get("CARAT_TRACE_DIVISOR", "128"))
    TURNS = 16 * 64 // DIVISOR
    TRACE = ("--dataset", "agent", "--system-len", str(20000 // DIVISOR), "--first-len", str(85000 // DIVISOR),
             "--turn-len", str(5900 // DIVISOR), "--turn-output-len", str(523 // DIVISOR), "--num-sessions", "12", "--turns",
             str(TURNS), "--max-concurrency", "12", "--session-header", "x-session-affinity")
    reused = {}

    def measure(self, name):
        began = time.monotonic()
        result = bench(SERVE_BENCH, self.balancer.url(), self.folder, *self.TRACE)
        self.assertEqual((result["completed"], result["failed"]), (12 * self.TURNS, 0))
        same, count = returned_to_their_replica(self.balancer.requests())
        tokens = {kind: sum(replica.metric("carat_prefix_tokens_total", f'result="{kind}"') for replica in self.replicas)
                  for kind in ("reused", "recomputed", "new")}
        WhatAffinityGains.reused[name] = tokens["reused"] / sum(tokens.values())
        print(f"{name}: {same} of {count} requests returned; prompts: " +
              ", ".join(f"{value / sum(tokens.values()):.1%} {kind}" for kind, value in tokens.items()) +
              f"; first token after {result['mean_ttft_ms']:.0f} ms (p99 {result['p99_ttft_ms']:.0f}); " +
              f"{time.monotonic() - began:.1f} s")

    def test_1_with_affinity(self):
        self.measure("by session")
        self.assertGreater(self.reused["by session"], 0.6)  # of a trace so short, first prompts are a quarter

    def test_2_without(self):
        self.balancer.stop()
        change = lambda text: re.sub(r"( *)balance hash .*\n *hash-type .*\n *hash-balance-factor.*", r"\1balance roundrobin",  # noqa: E731
                                     text)
        self.balancer = Balancer(HAPROXY, self.folder, self.replicas, change=change)
        self.measure("in turn")
        self.assertGreater(self.reused["by session"], self.reused["in turn"] + 0.1)


class Full(ThreeReplicas):
    flags = ("-np", "1", "--max-queue", "4")
    options = ("--per-replica", "3")

    def test_requests_wait_at_the_balancer(self):
        whole = WholeLoad(self.balancer.port, threads=16)
        self.balancer.wait_for_requests(150)
        lost = whole.stop()
        ROWS.append(("more requests than places", 0, 0, 0, whole.completed + sum(lost.values()), sum(lost.values()),
                     sum(line.retries != "0" for line in self.balancer.requests())))
        self.assertEqual(lost, {})


class FullReplicas(ThreeReplicas):
    flags = Full.flags
    options = ("--per-replica", "64")

    def test_the_answer_of_a_full_replica_comes_through(self):
        answers, end = [], time.monotonic() + 30
        whole = WholeLoad(self.balancer.port, threads=16, tokens=200)
        while not answers and time.monotonic() < end:
            answer, body = self.post({"messages": [{"role": "user", "content": "hi"}]})
            if answer.status == 429:
                answers.append((answer.getheader("retry-after"), body))
        lost = whole.stop()
        self.assertTrue(answers)
        self.assertGreaterEqual(int(answers[0][0]), 1)
        self.assertIn("message", answers[0][1]["error"])
        self.assertEqual(set(lost), {"HTTP 429"})


class NoReplica(ThreeReplicas):
    change = staticmethod(lambda text: text.replace("timeout queue 30s", "timeout queue 300ms"))

    def test_clients_are_told_to_come_back(self):
        for replica in self.replicas:
            replica.kill()
            self.balancer.wait_for(replica, "DOWN")
        answer, body = self.post({"messages": [{"role": "user", "content": "hi"}]})
        self.assertEqual((answer.status, answer.getheader("retry-after")), (503, "1"))
        self.assertEqual(body["error"]["type"], "server_error")
        self.assertEqual(get(self.balancer.port, "/haproxy/metrics")[0], 200)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[5:]])
