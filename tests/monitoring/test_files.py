"""The dashboard and the alert rules name metrics and labels that there are."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from qod_magics.monitoring.alarms import ALARMS
from qod_magics.monitoring.metrics import METRICS

FILES = Path(__file__).parents[2] / "qod_magics" / "monitoring"
LABELS = {metric.name: {*metric.labels, "instance", "job"} for metric in METRICS}
#: Words of PromQL that are no label or metric.
NAME = re.compile(r"\bqod_\w+")


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
