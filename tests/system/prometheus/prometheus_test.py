"""Debian's Prometheus, with the configuration and the rules of deploy/prometheus, and two real carat servers: what it
scrapes, what the rules record and which alerts fire, and what the dashboard's queries find.

usage: prometheus_test.py CARAT SERVE_BENCH PROMETHEUS PROMTOOL [unittest's arguments]
"""

import json
import os
import re
import signal
import subprocess
import sys
import unittest
import urllib.parse

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../deploy"))
from fleet import AGENT, PATIENCE, SOURCES, Replica, bench, free_port, get, temporary_folder, wait_until  # noqa: E402
from queries import RULES, dashboard_queries, read, rules  # noqa: E402

CARAT, SERVE_BENCH, PROMETHEUS, PROMTOOL = sys.argv[1:5]
HERE = os.path.dirname(os.path.abspath(__file__))
RULES_TEST = os.path.join(HERE, "rules_test.yml")
CONFIG = os.path.join(SOURCES, "deploy/prometheus/prometheus.yml")

# Of a small load without faults these find nothing, or 0 divided by 0.
NOTHING_HAPPENED = {"Starts", "Drafts taken"}


class Prometheus:
    """With the repository's configuration, but for addresses and intervals: seconds are enough for a test."""

    def __init__(self, folder, targets):
        self.port = free_port()
        config = re.sub(r"(scrape|evaluation)_interval: 15s", r"\1_interval: 1s", read(CONFIG))
        config = config.replace("scrape_timeout: 5s", "scrape_timeout: 1s")
        config = config.replace('["127.0.0.1:8080"]', json.dumps(targets))
        # What an alert waits for is divided by sixty; the windows of rates stay.
        rules_text = re.sub(r"for: (\d+)m", r"for: \1s", read(RULES)).replace("for: 30s", "for: 1s")
        for name, text in (("prometheus.yml", config), ("carat.rules.yml", rules_text)):
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write(text)
        self._log = open(os.path.join(folder, "prometheus.log"), "wb")
        self._process = subprocess.Popen(
            [PROMETHEUS, "--config.file", os.path.join(folder, "prometheus.yml"), "--storage.tsdb.path",
             os.path.join(folder, "data"), "--web.listen-address", f"127.0.0.1:{self.port}", "--log.level", "warn"],
            stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log, cwd=folder)
        wait_until(lambda: get(self.port, "/-/ready")[0] == 200, "Prometheus to be ready")

    def ask(self, path, **parameters):
        status, body = get(self.port, f"{path}?{urllib.parse.urlencode(parameters)}")
        answer = json.loads(body)
        assert answer["status"] == "success", (parameters, answer)
        return answer["data"]

    def query(self, text):
        """[(labels, value)]"""
        return [(series["metric"], float(series["value"][1])) for series in self.ask("/api/v1/query", query=text)["result"]]

    def firing(self):
        """Names of alerts and whose they are."""
        return {(alert["labels"]["alertname"], alert["labels"].get("instance", ""))
                for alert in self.ask("/api/v1/alerts")["alerts"] if alert["state"] == "firing"}

    def stop(self):
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(PATIENCE)
        self._log.close()


class Rules(unittest.TestCase):
    def test_rules_and_configuration_are_valid(self):
        for command in (["check", "rules", RULES], ["check", "config", CONFIG]):
            subprocess.run([PROMTOOL, *command], check=True, stdout=subprocess.DEVNULL)

    def test_alerts_fire_where_they_should_and_nowhere_else(self):
        tested = subprocess.run([PROMTOOL, "test", "rules", RULES_TEST], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                text=True)
        self.assertEqual(tested.returncode, 0, tested.stdout)
        text, (recorded, alerts) = read(RULES_TEST), rules()
        for name in alerts:
            self.assertRegex(text, rf"(?m)alertname: {name}\n(?s:.*?)exp_alerts:\n", f"{name} is fired")
        for name in recorded:
            self.assertIn(f"{name}", text)


class Scraped(unittest.TestCase):
    def setUp(self):
        self._folder = temporary_folder()
        folder = self._folder.name
        self.replicas = [Replica(CARAT, folder, f"r{i}", ("-np", "2")).start() for i in (1, 2)]
        for replica in self.replicas:
            replica.wait_until_ready()
        self.prometheus = Prometheus(folder, [f"127.0.0.1:{replica.port}" for replica in self.replicas])

    def tearDown(self):
        self.prometheus.stop()
        for replica in self.replicas:
            replica.kill()
        self._folder.cleanup()

    def load(self):
        for replica in self.replicas:
            result = bench(SERVE_BENCH, f"http://127.0.0.1:{replica.port}", self._folder.name, *AGENT, "--num-sessions", "4",
                           "--turns", "3", "--turn-output-len", "20", "--max-concurrency", "4")
            self.assertEqual(result["failed"], 0)

    def test_everything_that_is_asked_for(self):
        prometheus = self.prometheus
        wait_until(lambda: len(prometheus.query('up{job="carat"} == 1')) == 2, "both servers to be scraped")
        for loads in (1, 2):  # rates need two scrapes with something between them
            self.load()
            wait_until(lambda: prometheus.query(f'sum(carat_requests_total{{status="200",route!="/metrics"}}) >= {24 * loads}'),
                       "the load's counts")
        linted = subprocess.run([PROMTOOL, "check", "metrics"], input="\n".join(
            line for line in get(self.replicas[0].port, "/metrics")[1].splitlines() if "vllm:" not in line) + "\n",
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.assertEqual((linted.returncode, linted.stdout), (0, ""))

        recorded, _ = rules()
        for name in recorded:
            wait_until(lambda: [value for _, value in prometheus.query(name) if value == value],  # no NaN
                       f"{name} to be recorded", 15.0)
        self.assertEqual([value for _, value in prometheus.query("carat:replicas_ready:sum")], [2])
        found_nothing = set()
        for where, query in dashboard_queries():
            if not [value for _, value in prometheus.query(query) if value == value]:
                found_nothing.add(where)
        self.assertEqual(found_nothing - NOTHING_HAPPENED, set())
        self.assertEqual(prometheus.firing(), set())

        # One is killed: an alert for it, and none for all of them. Then the other one, too.
        self.replicas[0].kill()
        address = f"127.0.0.1:{self.replicas[0].port}"
        wait_until(lambda: ("CaratDown", address) in prometheus.firing(), "the alert")
        self.assertEqual(prometheus.firing(), {("CaratDown", address)})
        self.replicas[1].kill()
        wait_until(lambda: ("CaratNoReplicaReady", "") in prometheus.firing(), "the alert")
        # It returns, and the alerts go.
        for replica in self.replicas:
            replica.start().wait_until_ready()
        wait_until(lambda: not prometheus.firing(), "the alerts to go")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[5:]])
