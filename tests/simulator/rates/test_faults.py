"""What goes wrong: it is told of, nothing is lost, and the books balance at every step."""

from __future__ import annotations

from typing import Any

import pytest

from qod_magics.core.plan import Plan
from qod_magics.core.runtime import Count, Dials, Observation
from qod_magics.errors import TaskManagerError
from tests.raising import breaks
from tests.simulator.rates.scenarios import LEFT, RIGHT, SOURCE, Lab, simulation


def homes(seen: Observation) -> dict[str, str]:
    return {i.id: i.task_manager for i in seen.snapshot.instances}


def test_a_lost_task_manager_s_instances_start_on_the_others_and_read_again_what_was_not_committed() -> None:
    lab = Lab(duration_s=60, faults=[{"at_s": 30, "kind": "task-manager-lost", "target": "tm1"}])
    lab.place(src="tm1", left="tm1", right="tm2")
    seen = lab.wait(30.25 - 15)
    engine = lab.cluster.engine
    assert [m.id for m in seen.snapshot.task_managers] == ["tm2"]
    assert set(homes(seen).values()) == {"tm2"}
    (lost,) = lab.of("task-manager-lost")
    assert (lost["task_manager"], lost["instances"]) == ("tm1", ["src.1", "left.1"])
    assert not any(seen.fresh[id] for id in lost["instances"])
    assert seen.fresh["right.1"]
    done = lab.cluster.reports.committed
    assert (engine.read[:2] == done.read[:2]).all()  # rolled back to the last commit
    assert seen.measured.counts["src"].waiting == engine.waiting[0] > 400
    read_before = seen.measured.counts["src"].processed
    lab.wait(2 - 0.5)
    assert lab.look().measured.counts["src"].processed == read_before  # nobody has noticed

    seen = lab.wait(60)
    moves = {move["instance"]: move for move in lab.of("move")}
    assert moves.keys() == {"src.1", "left.1"}
    for move in moves.values():
        assert (move["from"], move["to"], move["why"]) == ("tm1", "tm2", "tm1 was lost")
        assert 2 + 0.7 * 1.2 <= move["took_s"] <= 2 + 1.3 * 1.2 + 0.5
    assert lab.of("query-failed") == lab.of("query-restarted") == []
    counts = seen.measured.counts
    assert counts["src"] == Count(60 * 400, 60 * 400, 0, 0)
    for stream in ("src>left", "src>right"):
        assert counts[stream].processed == counts[stream].arrived
        assert 60 * 400 < counts[stream].arrived <= 60 * 400 + 5.5 * 400  # what was sent since the commit comes twice
    assert all(seen.fresh.values())


def test_rows_that_are_read_again_are_thinned_again() -> None:
    lab = Lab(duration_s=40, faults=[{"at_s": s, "kind": "task-manager-lost", "target": "tm1"} for s in (19,)])
    keep = {(None, "src"): 0.25, ("src", "left"): 0.5, ("src", "right"): 1.0}
    accept = {"src": 1.0, "left": 0.0625, "right": 0.25}
    lab.cluster.apply(Plan(accept, keep), Dials(keep, accept))
    lab.place(src="tm1", left="tm1")
    seen = lab.wait(60)
    counts = seen.measured.counts
    assert counts["src"].processed == pytest.approx(0.25 * 40 * 400, abs=101)  # open for the first step
    assert counts["src>left"].processed == pytest.approx(counts["src>left"].arrived / 2, abs=101)


def test_while_no_task_manager_is_up_instances_wait_for_one() -> None:
    lab = Lab(faults=[{"at_s": 20, "kind": "task-manager-lost", "target": id} for id in ("tm1", "tm2")])
    lab.wait(20)
    lab.cluster.advance(10)
    with pytest.raises(TaskManagerError, check=breaks("a task manager is up")):
        lab.look()
    lab.cluster.add_task_manager("tm2")
    seen = lab.wait(40)
    assert set(homes(seen).values()) == {"tm2"}
    assert [event["task_manager"] for event in lab.of("task-manager-lost")] == ["tm1", "tm2"]
    assert {move["to"] for move in lab.of("move")} == {"tm2"}
    assert len(lab.of("move")) == 3
    assert seen.measured.counts["src"] == Count(24_000, 24_000, 0, 0)


def test_a_task_manager_that_is_lost_twice_or_while_a_move_is_bound_for_it() -> None:
    lab = Lab(duration_s=40)
    lab.place(src="tm1", left="tm1", right="tm1")
    lab.cluster.move("left.1", "tm2", "it may")
    lab.wait(0.5)
    lab.cluster.lose("tm2")
    lab.cluster.lose("tm2")
    seen = lab.wait(60)
    assert homes(seen)["left.1"] == "tm1"
    assert len(lab.of("task-manager-lost")) == 1
    (move,) = lab.of("move")
    assert (move["from"], move["to"]) == ("tm2", "tm1")
    assert seen.measured.counts["src>left"] == Count(16_000, 16_000, 0, 0)


def test_while_the_broker_pauses_rows_wait_outside_and_come_at_once_after_it() -> None:
    pauses = [{"at_s": 20, "kind": "broker-pause", "for_s": 10}, {"at_s": 22, "kind": "broker-pause", "for_s": 2}]
    lab = Lab(duration_s=60, faults=pauses)
    lab.wait(20)
    before = lab.cluster.engine.came.copy()
    seen = lab.wait(9.75)
    assert (lab.cluster.engine.came == before).all()  # also after the shorter pause
    assert seen.measured.input_rate["src"] == 0
    assert lab.cluster.engine.held[0] == 9.75 * 400
    seen = lab.wait(0.5)
    assert seen.measured.counts["src"].arrived == 30.25 * 400
    seen = lab.wait(40)
    rows = Count(24_000, 24_000, 0, 0)
    assert seen.measured.counts == {"src": rows, "src>left": rows, "src>right": rows}


def test_a_query_that_fails_waits_longer_each_time_and_is_given_up() -> None:
    lab = Lab(duration_s=200)
    lab.wait(10)
    home = lab.home("left.1")
    for number, wait_s in enumerate((1.0, 2.0, 4.0, 8.0, 16.0), 1):
        lab.cluster.fail("left.1")
        failed_at = lab.cluster.now
        lab.until(lambda _, number=number: len(lab.of("query-restarted")) == number)  # type: ignore[misc]
        assert 0.7 * 1.2 <= lab.cluster.now - failed_at - wait_s <= 1.3 * 1.2 + 0.75
        assert lab.of("query-failed")[-1]["retry_in_s"] == wait_s
        again = lab.of("query-restarted")[-1]
        assert (again["instance"], again["task_manager"], again["failures"]) == ("left.1", home, number)
    lab.cluster.fail("left.1")
    seen = lab.wait(60)
    final = lab.of("query-failed")[-1]
    assert (final["gave_up"], final["failures"], final["task_manager"]) == (True, 5, home)
    assert len(lab.of("query-restarted")) == 5
    assert not seen.fresh["left.1"]
    assert seen.measured.lag["src>left"] > 50 * 400
    lab.cluster.lose(home)  # it does not come to life elsewhere
    lab.wait(20)
    assert not lab.cluster.engine.running[1]
    assert [move["instance"] for move in lab.of("move")].count("left.1") == 0


def test_a_query_that_ran_for_a_minute_has_recovered() -> None:
    lab = Lab(duration_s=200, faults=[{"at_s": s, "kind": "query-failure", "target": "left.1"} for s in (10, 15, 90)])
    seen = lab.wait(120)
    assert [event["retry_in_s"] for event in lab.of("query-failed")] == [1.0, 2.0, 1.0]
    assert seen.fresh["left.1"]
    assert seen.measured.counts["src>left"].waiting < 5.5 * 400


def test_slow_metrics_are_stale_and_held_not_0() -> None:
    slow = [
        {"at_s": 20, "kind": "slow-metrics", "target": "tm1", "for_s": 30},
        {"at_s": 25, "kind": "slow-metrics", "target": "tm1", "for_s": 2},
    ]
    lab = Lab(duration_s=80, faults=slow)
    lab.place(src="tm1", left="tm1", right="tm2")
    before = lab.wait(19.75 - 15)
    assert all(before.fresh.values())
    seen = lab.wait(20)
    held = {i.id: i for i in seen.snapshot.instances}
    for was in before.snapshot.instances:
        now = held[was.id]
        assert seen.fresh[now.id] == (now.task_manager == "tm2")
        assert (now.in_rate, now.cpu) == pytest.approx((was.in_rate, was.cpu), rel=0.1)
        if now.task_manager == "tm1":
            assert now.stale
            assert now.age_s > 12.5
    lab.wait(10)
    assert lab.of("metrics-back") == [], "the longer fault goes on"
    seen = lab.wait(10)
    assert [each["task_manager"] for each in lab.of("metrics-missing")] == ["tm1"]
    assert lab.of("metrics-back") == [{"task_manager": "tm1", "after_s": 30.0}]
    assert all(seen.fresh.values())


def test_what_was_never_measured_is_missing_and_expected_to_read_what_comes() -> None:
    lab = Lab(tasks=[SOURCE, {**LEFT, "parallelism": 2}, RIGHT])
    seen = lab.look()
    assert next(t for t in seen.snapshot.tasks if t.id == "src").external_rate is None
    assert seen.measured.input_rate == {}
    seen = lab.wait(5)
    assert not any(seen.fresh.values())
    for instance in seen.snapshot.instances:
        assert instance.missing == ("in_rate", "cpu")
        assert instance.in_rate == (200.0 if instance.task == "left" else 400.0)
    seen = lab.wait(5)
    assert all(seen.fresh.values())


def test_a_report_of_before_the_rows_came_is_no_rate_of_them() -> None:
    lab = Lab(topics=[{"topic": "rows", "rate": [[0, 0], [30, 0], [30, 400]]}])
    seen = lab.wait(30)
    assert all(seen.fresh.values())  # nothing comes, nothing is read
    assert {i.in_rate for i in seen.snapshot.instances} == {0.0}
    for _ in range(40):
        seen = lab.wait(0.25)
        for instance in seen.snapshot.instances:
            if not seen.fresh[instance.id]:
                assert instance.missing == ("in_rate",)
                assert instance.stale
                assert instance.in_rate > 0
    assert all(seen.fresh.values())


@pytest.mark.parametrize("kind", ["task-manager-lost", "query-failure", "slow-metrics", "broker-pause"])
def test_the_controller_goes_on_through_every_fault(kind: str) -> None:
    from qod_magics.simulator import simulate

    target: dict[str, Any] = {"query-failure": {"target": "src.1"}, "broker-pause": {}}.get(kind, {"target": "tm1"})
    run = simulate(simulation(duration_s=90, faults=[{"at_s": 30, "kind": kind, "for_s": 10, **target}]))
    assert all(cycle.applied for cycle in run.cycles)
    assert run.cycles[-1].plan is not None
    assert set(run.cycles[-1].plan.desired.values()) == {1.0}
