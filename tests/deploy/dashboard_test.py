"""The dashboard, the rules and the manifests ask for metrics that a real server has.

usage: dashboard_test.py CARAT [unittest's arguments]
"""

import http.client
import json
import re
import sys
import unittest

from fleet import Replica, get, temporary_folder
from queries import DASHBOARD, Exposition, complaints, dashboard_queries, names_in_manifests, panels, read, rules, selectors

CARAT = sys.argv[1]


class Queries(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = temporary_folder()
        server = Replica(CARAT, cls.folder.name, "r1", ("-np", "2")).start().wait_until_ready()
        try:
            connection = http.client.HTTPConnection("127.0.0.1", server.port)
            body = {"messages": [{"role": "user", "content": "What is nginx?"}], "max_tokens": 8}
            connection.request("POST", "/v1/chat/completions", json.dumps(body))
            assert connection.getresponse().status == 200
            connection.close()
            cls.exposition = Exposition(get(server.port, "/metrics")[1])
        finally:
            server.kill()
        cls.recorded, cls.alerts = rules()

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_dashboard(self):
        queries = dashboard_queries()
        self.assertGreater(len(queries), 30)
        for where, query in queries:
            self.assertTrue(selectors(query), query)
            self.assertEqual(complaints(query, self.exposition, self.recorded), [], f"{where}: {query}")

    def test_rules(self):
        self.assertGreater(len(self.recorded), 10)
        self.assertGreater(len(self.alerts), 10)
        for name, query in {**self.recorded, **self.alerts}.items():
            self.assertTrue(selectors(query), query)
            self.assertEqual(complaints(query, self.exposition, self.recorded), [], f"{name}: {query}")

    def test_manifests(self):
        names = names_in_manifests()
        self.assertGreaterEqual(names, {"carat_requests_waiting", "carat_requests_running", "carat_kv_cache_usage_ratio"})
        self.assertEqual(names - self.exposition.names, set())

    def test_the_check_finds_what_is_nowhere(self):
        for query, wrong in {
                'rate(carat_tokens_total[5m])': "there is no carat_tokens_total",
                'sum by (job) (carat_state{state="sleeping"})': "carat_state is never with state=sleeping",
                'carat_requests_running{queue="a"}': "carat_requests_running has no label queue",
                'carat:nothing:rate5m > 0.01': "there is no carat:nothing:rate5m",
                'histogram_quantile(0.5, sum by (le) (rate(carat_pass_seconds[1m])))': "there is no carat_pass_seconds",
        }.items():
            self.assertEqual(complaints(query, self.exposition, self.recorded), [wrong])

    def test_panels_are_whole(self):
        dashboard = json.loads(read(DASHBOARD))
        ids = [panel["id"] for panel in dashboard["panels"]]
        self.assertEqual(len(ids), len(set(ids)))
        taken = set()
        for panel in dashboard["panels"]:
            place = panel["gridPos"]
            cells = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}
            self.assertLessEqual(place["x"] + place["w"], 24, panel["title"])
            self.assertFalse(taken & cells, f'{panel["title"]} lies upon another panel')
            taken |= cells
        for panel in panels():
            self.assertEqual(panel["datasource"]["uid"], "${datasource}")
            for target in panel["targets"]:
                shown = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
                # A label that the query sums away would be shown as nothing.
                kept = re.search(r"by \(([^)]*)\)", target["expr"])
                if kept:
                    self.assertLessEqual(shown, set(re.split(r",\s*", kept.group(1))), panel["title"])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
