"""The dashboard and the alert rules name metrics and labels that there are."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from qod_magics.monitoring.alarms import ALARMS
from qod_magics.monitoring.metrics import METRICS

FILES = Path(__file__).parents[2] / "qod_magics" / "monitoring"
UNIT_TESTS = Path(__file__).parent / "alerts_test.yaml"
LABELS = {metric.name: {*metric.labels, "instance", "job"} for metric in METRICS}
#: Words of PromQL that are no label or metric.
NAME = re.compile(r"\bqod_\w+")
#: Prometheus' own tool, from the path or where PROMTOOL says.
PROMTOOL = os.environ.get("PROMTOOL") or shutil.which("promtool")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="needs promtool, of Prometheus")


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((FILES / "alerts.yaml").read_text("utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((FILES / "dashboard.json").read_text("utf-8"))["panels"]
    return found


def targets() -> Iterator[tuple[str, str]]:
    """The expressions and legends of the dashboard."""
    for panel in panels():
        for target in panel["targets"]:
            yield target["expr"], target["legendFormat"]


def expressions() -> list[str]:
    return [*(rule["expr"] for rule in rules()), *(expr for expr, _ in targets())]


def problems(expr: str) -> list[str]:
    """What is wrong with an expression: metrics and labels that there are not, brackets that do not match."""
    named = NAME.findall(expr)
    found = [name for name in named if name not in LABELS] or ([] if named else ["names no metric"])
    known = set().union(*(LABELS.get(name, set()) for name in named))
    within = re.findall(r"\b(?:by|on)\s*\(([^)]*)\)", expr)
    labels = {label.strip() for each in within for label in each.split(",")}
    labels |= set(re.findall(r"[{,]\s*(\w+)\s*(?:=~|!~|!=|=)", expr))
    found += sorted(labels - known)
    for opening, closing in ("()", "[]", "{}"):
        found += [opening] if expr.count(opening) != expr.count(closing) else []
    counters = re.findall(r"(?:rate|increase)\((qod_\w+)", expr)
    return found + [f"{name} is no counter" for name in counters if not name.endswith("_total")]


@pytest.mark.parametrize("expr", expressions())
def test_each_metric_and_label_of_an_expression_is_there(expr: str) -> None:
    assert problems(expr) == []


@pytest.mark.parametrize(
    ("expr", "found"),
    [
        ("qod_rows_lost > 0", ["qod_rows_lost"]),
        ("sum by (query) (qod_priority)", ["query"]),
        ('qod_instances{mode="x"}', ["mode"]),
        ("rate(qod_rows_waiting[1m])", ["qod_rows_waiting is no counter"]),
        ("rate(qod_rows_dropped_total[1m]", ["("]),
        ("up == 0", ["names no metric"]),
    ],
)
def test_the_search_finds_what_is_wrong(expr: str, found: list[str]) -> None:
    assert problems(expr) == found


def test_legends_and_annotations_name_labels_of_their_metrics() -> None:
    shown = [(rule["expr"], " ".join(rule["annotations"].values())) for rule in rules()]
    for expr, text in [*shown, *targets()]:
        known = set().union(*(LABELS[name] for name in NAME.findall(expr)))
        named = set(re.findall(r"\$labels\.(\w+)", text)) | set(re.findall(r"\{\{(\w+)\}\}", text))
        assert named <= known, expr


def test_each_kind_of_alarm_has_a_rule() -> None:
    assert {rule["labels"]["alarm"] for rule in rules()} == set(ALARMS)
    assert len({rule["alert"] for rule in rules()}) == len(rules())
    for rule in rules():
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert {"summary", "description"} <= rule["annotations"].keys()


def test_the_dashboard_shows_each_group_of_metrics_and_its_panels_do_not_overlap() -> None:
    shown = {name for expr, _ in targets() for name in NAME.findall(expr)}
    asked = ("accuracy_planned", "accuracy_measured", "accuracy_minimum", "rows_processed", "rows_dropped", "rows_late")
    asked += ("rows_malformed", "consumer_lag", "latency", "task_manager_cpu", "decisions", "actions")
    assert [part for part in asked if not any(name.startswith(f"qod_{part}") for name in shown)] == []
    places = [panel["gridPos"] for panel in panels()]
    cells = [(x, y) for p in places for x in range(p["x"], p["x"] + p["w"]) for y in range(p["y"], p["y"] + p["h"])]
    assert len(set(cells)) == len(cells)
    assert all(x < 24 for x, _ in cells)
    assert len({panel["id"] for panel in panels()}) == len(places)


def promtool(*words: str | Path, given: str = "") -> None:
    """Run promtool; it ends the test with what it found."""
    run = subprocess.run([str(PROMTOOL), *map(str, words)], input=given, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


@needs_promtool
def test_promtool_takes_the_rules_and_each_fires_when_it_should_and_only_then() -> None:
    promtool("check", "rules", FILES / "alerts.yaml")
    promtool("test", "rules", UNIT_TESTS)


def test_each_rule_is_tested_both_ways() -> None:
    """By `promtool test rules`, where it can be had."""
    well, ill = yaml.safe_load(UNIT_TESTS.read_text("utf-8"))["tests"]
    names = {rule["alert"] for rule in rules()}
    assert {each["alertname"] for each in well["alert_rule_test"] if each["exp_alerts"] == []} == names
    (query,) = ill["promql_expr_test"]
    assert set(re.findall(r'alertname="(\w+)"', str(query["exp_samples"]))) == names
    for each in (*well["input_series"], *ill["input_series"]):
        assert problems(each["series"]) == []


@needs_promtool
def test_promtool_takes_the_expressions_of_the_dashboard(tmp_path: Path) -> None:
    recorded = [{"record": f"dashboard:{n}", "expr": expr} for n, (expr, _) in enumerate(targets())]
    path = tmp_path / "dashboard.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": recorded}]}), "utf-8")
    promtool("check", "rules", path)


@needs_promtool
def test_promtool_finds_nothing_against_the_names_of_metrics() -> None:
    text = ""
    for metric in METRICS:
        labels = ",".join(f'{label}="x"' for label in metric.labels)
        kind = "counter" if metric.is_counter else "gauge"
        text += f"# HELP {metric.name} {metric.help}\n# TYPE {metric.name} {kind}\n{metric.name}{{{labels}}} 1\n"
    promtool("check", "metrics", given=text)


def test_the_dashboard_is_one_that_grafana_imports() -> None:
    """It names itself, its schema and its data source by a variable that the viewer chooses."""
    whole = json.loads((FILES / "dashboard.json").read_text("utf-8"))
    assert whole["title"]
    assert re.fullmatch(r"[\w-]{1,40}", whole["uid"])
    assert whole["schemaVersion"] >= 39
    assert "id" not in whole, "that of another Grafana"
    variables = {each["name"] for each in whole["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(whole["panels"])))
    assert used == {"datasource", "instance"} == variables
    for panel in whole["panels"]:
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert panel["type"] in ("stat", "timeseries", "table", "gauge", "barchart")
        references = [target["refId"] for target in panel["targets"]]
        assert len(set(references)) == len(references)
