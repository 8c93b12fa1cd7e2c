"""The queries of deploy/ that Prometheus is asked: of the dashboard, of the rules, of autoscalers and endpoint pickers;
and what a server's /metrics has for them."""

import glob
import json
import os
import re

from fleet import SOURCES

DASHBOARD = os.path.join(SOURCES, "deploy/grafana/carat.json")
RULES = os.path.join(SOURCES, "deploy/prometheus/carat.rules.yml")
# Labels that Prometheus adds, or that histograms have.
ADDED_LABELS = {"job", "instance", "le"}


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def panels(dashboard=None):
    return [panel for panel in (dashboard or json.loads(read(DASHBOARD)))["panels"] if panel["type"] != "row"]


def with_values(query):
    """A query of the dashboard as Grafana sends it."""
    return (query.replace("$__rate_interval", "1m").replace('=~"$job"', '=~".+"').replace('=~"$instance"', '=~".+"'))


def dashboard_queries():
    """(where, query), panels and annotations."""
    dashboard = json.loads(read(DASHBOARD))
    found = [(panel["title"], with_values(target["expr"])) for panel in panels(dashboard) for target in panel["targets"]]
    found += [(note["name"], with_values(note["expr"])) for note in dashboard["annotations"]["list"]]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            series = re.fullmatch(r"label_values\((.+), \w+\)", variable["query"]["query"]).group(1)
            found.append((variable["name"], with_values(series)))
    return found


def rules():
    """{name: query} of the recorded rules, and of the alerts. The file is written so that no YAML reader is needed."""
    recorded, alerts = {}, {}
    for block in re.split(r"\n  - (?=record:|alert:)", read(RULES))[1:]:
        kind, name = re.match(r"(record|alert): (\S+)", block).groups()
        folded = re.search(r"\n    expr: (?:>-\n((?:      .*\n?)+)|(.*))", block)
        query = " ".join((folded.group(1) or re.sub(r"\s+#.*", "", folded.group(2))).split())
        (recorded if kind == "record" else alerts)[name] = query
    return recorded, alerts


def names_in_manifests():
    found = set()
    for path in glob.glob(os.path.join(SOURCES, "deploy/kubernetes/*.yaml")):
        found |= set(re.findall(r"\bcarat_[a-z_]+[a-z]\b", read(path)))
    return found


class Exposition:
    """The series of a text that /metrics gave."""

    def __init__(self, text):
        self.labels = {}  # of each name of a series: {label: values}
        for line in text.splitlines():
            match = re.match(r"([a-zA-Z_:][\w:]*)(?:{(.*)})? \S+$", line)
            if not match or line.startswith("#"):
                continue
            labels = self.labels.setdefault(match.group(1), {})
            for label, value in re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', match.group(2) or ""):
                labels.setdefault(label, set()).add(value)
        self.names = set(self.labels)
        # Those that are announced have no series yet where nothing was counted.
        for name, kind in re.findall(r"^# TYPE (\S+) (\w+)$", text, re.MULTILINE):
            self.names |= {name + end for end in ("_bucket", "_sum", "_count")} if kind == "histogram" else {name}


_TOKEN = re.compile(r'"[^"]*"|\d[\w.]*|[a-zA-Z_:][\w:]*|\s+|.')
_LISTS = {"by", "without", "on", "ignoring", "group_left", "group_right"}  # with labels in parentheses
_OPERATORS = {"and", "or", "unless", "bool", "offset"}


def selectors(query):
    """(name, [(label, operator, value)]) of each series that a query names."""
    tokens = [token for token in _TOKEN.findall(query) if not token.isspace()] + [""]
    found, at = [], 0
    while tokens[at]:
        token, following = tokens[at], tokens[at + 1]
        at += 1
        if token in _LISTS:
            at = tokens.index(")", at) + 1
        elif not re.match(r"[a-zA-Z_:]", token) or token in _OPERATORS or following == "(" or following in _LISTS:
            continue
        elif following == "{":
            end = tokens.index("}", at)
            matchers = re.findall(r'(\w+)(=~|!~|!=|=)"([^"]*)"', "".join(tokens[at:end]))
            found.append((token, matchers))
            at = end + 1
        else:
            found.append((token, []))
    return found


def complaints(query, exposition, recorded):
    """What in a query is nowhere: names of series, labels, values of labels."""
    wrong = []
    for name, matchers in selectors(query):
        if name in recorded or name in ("up", "ALERTS"):
            continue
        if name not in exposition.names:
            wrong.append(f"there is no {name}")
            continue
        labels = exposition.labels.get(name, {})
        for label, operator, value in matchers:
            if label in ADDED_LABELS:
                continue
            if label not in labels:
                wrong.append(f"{name} has no label {label}")
            elif operator == "=" and value not in labels[label]:
                wrong.append(f"{name} is never with {label}={value}")
    return wrong
