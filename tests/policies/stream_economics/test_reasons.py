"""The reasons given for a plan are those it was made for."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from qod_magics.core.plan import Plan
from qod_magics.core.policy import Reasons
from qod_magics.core.snapshot import Instance, Snapshot, Stream, Task, TaskManager
from qod_magics.policies import policy
from qod_magics.policies.stream_economics.policy import reactive
from tests.texts import tells

COSTS = {"fixed_cpu": 0.0, "read_us": 0.0, "selectivity": 1.0}


def chain(
    first: Mapping[str, float], second: Mapping[str, float], *, warming: bool = False, **source: float
) -> Snapshot:
    """At full accuracy a source takes 120 % of the core of tm1, by its costs, and its query 80 % of that of tm2."""
    return Snapshot(
        (TaskManager("tm1", 1.0, 90.0, **first), TaskManager("tm2", 1.0, 40.0, **second)),
        (
            Task("src", (), 1000.0, None, None, **{**COSTS, "work_us": 1200.0}),
            Task("q", ("src",), None, 1, 0.1, **{**COSTS, "work_us": 800.0}),
        ),
        (Stream("src", "q", 500.0),),
        (
            Instance("src.1", "src", "tm1", 500.0, 45.0, warming, **source),
            Instance("src.2", "src", "tm1", 500.0, 45.0, False),
            Instance("q.1", "q", "tm2", 500.0, 40.0, False),
        ),
    )


def explained(given: Snapshot) -> tuple[Plan, Reasons]:
    policy = reactive()
    plan, _ = policy.decide(given)
    return plan, policy.explain(given, plan)


def test_shedding_for_want_of_trust_is_said_to_be_that() -> None:
    plan, reasons = explained(chain({"open_s": 5.0}, {"trust": 0.6}))
    assert plan.desired["q"] == pytest.approx(0.75)
    less = "plans give its tasks 40% less CPU than it has, judged by its backlog"
    expected = (
        "tm2 has 100.0 % of a core for its tasks, needs 8.0 % at minimum accuracies and 80.0 % at full accuracy"
        f"; {less}"
    )
    assert reasons.shedding(["q"]) == {"q": expected}
    assert reasons.task("q") == [expected]
    assert less in reasons.task_manager("tm2")


@pytest.mark.parametrize("first", [{"open_s": 5.0}, {"trust": 1.5}], ids=["open", "trusted"])
def test_a_task_manager_with_enough_cpu_by_the_evidence_is_no_limit(first: Mapping[str, float]) -> None:
    plan, reasons = explained(chain(first, {"trust": 0.6}))
    assert plan.desired["q"] == pytest.approx(0.75)
    (words,) = reasons.shedding(["q"]).values()
    assert "tm2 has" in words
    assert "tm1" not in words


def test_trust_in_more_is_said_where_not_even_that_is_enough() -> None:
    plan, reasons = explained(chain({"trust": 1.1}, {"open_s": 5.0}))
    assert plan.desired["q"] == pytest.approx(1.1 / 1.2)
    assert "10%" in reasons.shedding(["q"])["q"]


@pytest.mark.parametrize(
    ("first", "source"),
    [({"open_s": 5.0}, {"rests_s": 10.0}), ({"trust": 1.5}, {})],
    ids=["open", "after the cool-down"],
)
def test_a_warm_up_that_excludes_nobody_is_no_reason(first: Mapping[str, float], source: Mapping[str, float]) -> None:
    plan, reasons = explained(chain(first, {"trust": 0.6}, warming=True, **source))
    assert plan.desired["q"] == pytest.approx(0.75)
    assert "warm" not in reasons.shedding(["q"])["q"]
    assert not any("sharing" in words for words in reasons.task_manager("tm1"))


def test_a_warm_up_that_keeps_its_own_queries_at_their_minimums_is_the_reason() -> None:
    plan, reasons = explained(chain({"trust": 1.5}, {"trust": 0.6}, warming=True, rests_s=10.0))
    assert plan.desired["q"] == pytest.approx(0.1)
    assert "src.1" in reasons.shedding(["q"])["q"]
    assert not any("sharing" in words for words in reasons.task_manager("tm1"))


def test_a_query_that_warms_up_takes_nothing_from_its_neighbours() -> None:
    costs = {"fixed_cpu": 1.0, "read_us": 1.0, "work_us": 100.0}
    host = TaskManager("tm1", 0.9, 60.0, trust=1.0)
    tasks = tuple(Task(id, (), 1000.0, 1, 0.1, **costs) for id in ("q", "new"))
    instances = (
        Instance("q.1", "q", "tm1", 1000.0, 11.0, False),
        Instance("new.1", "new", "tm1", 1000.0, 11.0, True, rests_s=10.0),
    )
    snapshot = Snapshot((host,), tasks, (), instances)
    plan, _ = policy("stream-economics-reactive").decide(snapshot, None)
    assert plan.desired == {"q": 1.0, "new": pytest.approx(0.1)}
    literal, _ = policy("stream-economics").decide(snapshot, None)
    assert literal.desired["q"] == pytest.approx(0.1)


def test_a_task_that_uses_all_cores_that_it_can_is_said_to_be_the_limit() -> None:
    """Its task manager has three more."""
    host = TaskManager("tm1", 4.0, 130.0, trust=1.0)
    task = Task("q", (), 1000.0, 1, 0.1, **{**COSTS, "work_us": 2500.0})
    plan, reasons = explained(Snapshot((host,), (task,), (), (Instance("q.1", "q", "tm1", 400.0, 100.0, False),)))
    assert plan.desired["q"] == pytest.approx(0.4)
    (words,) = reasons.task("q")
    assert tells(words, "q", "1 core", "250.0 %")
    assert reasons.shedding(["q"]) == {"q": words}
