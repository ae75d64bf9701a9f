"""Rows that break rules, counted from reports."""

from __future__ import annotations

from qod_magics.application.streams.rules import Rule, RuleCount
from qod_magics.application.tasks import tasks
from qod_magics.spark.cluster.cluster import Cluster
from qod_magics.spark.cluster.deployment import Deployment
from qod_magics.spark.cluster.reports import _note_broken, rule_counts
from qod_magics.spark.plans.dial import DialBoard
from tests.application.frames import application, stream

DROPPED, ENDING, KEPT = Rule("a > 0", "drop"), Rule("a > 1", "fail"), Rule("a > 2")


def made() -> Cluster:
    cluster = Cluster(Deployment(None, "s"), DialBoard("s"), {}, lambda *_: {}, 5.0)  # type: ignore[arg-type]
    (spec,) = tasks(application(stream("q", topic="t", priority=1, expect=(DROPPED, ENDING, KEPT))))
    cluster.deployment.specs = {spec.id: spec}
    return cluster


def test_rules_that_end_a_query_have_no_count() -> None:
    cluster = made()
    _note_broken(cluster, "q", {"q": (3, 0, 2)})
    _note_broken(cluster, "q", {"q": (1, 0, 0)})
    assert rule_counts(cluster) == [RuleCount("q", DROPPED, 4), RuleCount("q", KEPT, 2)]


def test_counts_of_other_rules_are_not_taken() -> None:
    cluster = made()
    _note_broken(cluster, "q", {"q": (3, 2)})
    _note_broken(cluster, "q", {})
    assert [each.rows for each in rule_counts(cluster)] == [0, 0]
