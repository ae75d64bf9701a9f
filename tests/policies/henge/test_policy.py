"""The policy `henge` on snapshots: what it measures, when it acts, and that a plan is a function of its snapshot."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qod_magics.controller.plan_check import check_plan
from qod_magics.core.json_form import snapshot_from_json, snapshot_to_json
from qod_magics.core.plan import Plan, Scale, keeping_all
from qod_magics.core.policy import ExplainingPolicy, LearningPolicy
from qod_magics.core.runtime import Count, Measured
from qod_magics.core.snapshot import Instance, Snapshot, Stream, Task, TaskManager, replace
from qod_magics.errors import SnapshotError
from qod_magics.policies import policy
from qod_magics.policies.henge import TUNED, Henge, Parameters
from qod_magics.policies.henge.jobs import (
    Tally,
    busy_with_rows,
    jobs_of,
    juice_of,
    maximum_utility,
    measured_jobs,
    rate_tallies,
    tallies,
)
from qod_magics.policies.henge.utility import CURVES, CurveName
from tests.policies.snapshots import snapshots
from tests.raising import breaks
from tests.texts import tells

QUICK = Parameters(warm_up_s=0.0)
CYCLE_S = 10.0


@dataclass
class Jobs:
    """Jobs of a source and a query each, as a runtime would measure them cycle by cycle; `Scale` is carried out."""

    latency_s: dict[str, float]  #: by job, now
    busy: dict[str, float]  #: of its query
    target_s: float | None = 1.0
    width: dict[str, int] = field(default_factory=dict)  #: instances by task
    managers: tuple[TaskManager, ...] = (TaskManager("tm1", 4.0, 100.0), TaskManager("tm2", 4.0, 100.0))
    executed: float = 1.0  #: share of the rows of a cycle that the queries process
    dropped: float = 0.0  #: share that shedders drop
    now_s: float = 0.0
    counts: dict[str, Count] = field(default_factory=dict)

    def snapshot(self) -> Snapshot:
        target = {} if self.target_s is None else {"max_latency_s": self.target_s}
        tasks, streams, instances = [], [], []
        for job, latency in self.latency_s.items():
            most = {"max_parallelism": 8}
            mine = {**most, **target, "latency_p95_s": latency, "utility": 35}
            tasks += [
                Task(f"{job}.src", (), 100.0, None, None, **most),
                Task(job, (f"{job}.src",), None, 1, 0.0, **mine),
            ]
            streams.append(Stream(f"{job}.src", job, 100.0))
            for task, busy in ((f"{job}.src", 0.1), (job, self.busy[job])):
                count = self.width.get(task, 1)
                instances += [
                    Instance(f"{task}.{i}", task, "tm1", 100.0 / count, 5.0, False, busy=busy) for i in range(count)
                ]
        return Snapshot(self.managers, tuple(tasks), tuple(streams), tuple(instances), at_s=self.now_s)

    def measured(self) -> Measured:
        for job in self.latency_s:
            for name, done, dropped in ((f"{job}.src", 1.0, 0.0), (f"{job}.src>{job}", self.executed, self.dropped)):
                old = self.counts.get(name, Count())
                processed, shed = round(1000 * done), round(1000 * dropped)
                self.counts[name] = old + Count(1000, processed, shed, 1000 - processed - shed)
        return Measured(counts=dict(self.counts))

    def carry_out(self, plan: Plan) -> None:
        for action in plan.actions:
            assert isinstance(action, Scale)
            self.width[action.task] = action.parallelism


def run(
    jobs: Jobs, cycles: int, henge: Henge | None = None, before: Callable[[int], object] = lambda cycle: None
) -> list[tuple[Snapshot, Plan]]:
    """The cycles as the controller makes them."""
    henge = henge or Henge(QUICK)
    memory = state = None
    found = []
    for cycle in range(cycles):
        before(cycle)
        snapshot, memory = henge.learn(jobs.snapshot(), jobs.measured(), memory)
        plan, state = henge.decide(snapshot, state)
        check_plan(plan, snapshot)
        jobs.carry_out(plan)
        found.append((snapshot, plan))
        jobs.now_s += CYCLE_S
    return found


def acted(cycles: list[tuple[Snapshot, Plan]]) -> list[tuple[float, dict[str, int]]]:
    return [(s.at_s, {a.task: a.parallelism for a in p.actions}) for s, p in cycles if p.actions]


def test_it_is_there_by_its_name_and_learns_and_explains() -> None:
    made = policy("henge")
    assert isinstance(made, Henge)
    assert isinstance(made, LearningPolicy)
    assert isinstance(made, ExplainingPolicy)
    assert repr(made) == "policy henge"
    assert made.parameters == Parameters()
    other = policy("henge-tuned")
    assert isinstance(other, Henge)
    assert other.parameters == TUNED
    reasons = other.explain(alone(0.1), keeping_all(alone(0.1)))
    assert tells(reasons.shedding(["q"])["q"], "henge-tuned")


def test_a_job_is_a_connected_part_named_after_its_first_query() -> None:
    tasks = (
        Task("late", ("b",), None, 1, 0.0),
        Task("a", (), 1.0, None, None),
        Task("b", (), 1.0, None, None),
        Task("q", ("a",), None, 1, 0.0),
        Task("both", ("a", "b"), None, 1, 0.0),
        Task("alone", (), 1.0, 1, 0.0),
    )
    streams = tuple(Stream(up, task.id, 1.0) for task in tasks for up in task.upstream)
    instances = tuple(Instance(f"{task.id}.1", task.id, "tm", 1.0, 1.0, False) for task in tasks)
    snapshot = Snapshot((TaskManager("tm", 1.0, 1.0),), tasks, streams, instances)
    assert jobs_of(snapshot) == {"late": ("late", "a", "b", "q", "both"), "alone": ("alone",)}


def test_the_job_farthest_from_its_target_gets_instances_by_how_congested_it_is() -> None:
    jobs = Jobs({"x": 2.0, "y": 4.0}, {"x": 0.9, "y": 0.45})
    assert acted(run(jobs, 1)) == [(0.0, {"y": 6})]


def test_it_acts_once_in_a_settle_time_and_helps_the_next_job_then() -> None:
    jobs = Jobs({"x": 2.0, "y": 4.0}, {"x": 0.45, "y": 0.45})

    def helped(cycle: int) -> None:
        if jobs.width.get("y") == 6:
            jobs.latency_s["y"] = 0.5

    assert acted(run(jobs, 9, before=helped)) == [(0.0, {"y": 6}), (60.0, {"x": 6})]


def test_a_step_that_did_harm_is_taken_back_exactly() -> None:
    jobs = Jobs({"x": 2.0, "y": 1.0}, {"x": 0.45, "y": 0.1}, width={"y": 5, "x": 3})

    def worse(cycle: int) -> None:
        if jobs.width["x"] != 3:
            jobs.latency_s.update(x=4.0, y=4.0)

    cycles = run(jobs, 8, before=worse)
    assert acted(cycles) == [(0.0, {"x": 8}), (60.0, {"x": 3})]
    assert jobs.width == {"x": 3, "y": 5}
    (undo,) = cycles[6][1].actions
    assert "reversion" in undo.why


def test_a_congested_cluster_takes_from_jobs_that_meet_their_target() -> None:
    jobs = Jobs({"x": 2.0, "y": 0.5, "z": 1.0}, {"x": 0.45, "y": 0.1, "z": 0.1}, width={"y": 8})

    def worse(cycle: int) -> None:
        if jobs.width.get("x"):
            jobs.latency_s.update(x=4.0, z=4.0)
            jobs.managers = (TaskManager("tm1", 4.0, 395.0), TaskManager("tm2", 4.0, 100.0))

    assert acted(run(jobs, 7, before=worse)) == [(0.0, {"x": 6}), (60.0, {"y": 1})]


def test_no_round_is_due_until_a_warm_up_is_over_after_any_change_of_the_cluster() -> None:
    jobs, henge = Jobs({"x": 2.0}, {"x": 0.45}), Henge()
    joined = (*jobs.managers, TaskManager("tm3", 1.0, 0.0))
    spare = TaskManager("spare", 1.0, 0.0, standby=1)

    def changes(cycle: int) -> None:
        if cycle == 40:
            jobs.managers = joined
        if cycle == 80:
            jobs.latency_s["new"], jobs.busy["new"] = 0.1, 0.1
        if cycle == 120:
            jobs.managers = (*joined, spare)  # it takes no part
        if cycle == 125:
            jobs.managers = (*joined[1:], spare)

    cycles = run(jobs, 160, henge, changes)
    due = [snapshot.at_s for snapshot, _ in cycles if henge.turn(snapshot).step is not None]
    assert due == [300.0, 360.0, 700.0, 760.0, 1100.0, 1160.0, 1220.0, 1550.0]
    assert [at_s for at_s, _ in acted(cycles)] == [300.0, 700.0]  # 2 instances more, up to the maximum of 8


def test_an_action_that_is_not_carried_out_is_tried_again() -> None:
    jobs = Jobs({"x": 2.0}, {"x": 0.45})

    def refused(cycle: int) -> None:
        jobs.width.clear()

    assert [at_s for at_s, _ in acted(run(jobs, 13, before=refused))] == [0.0, 60.0, 120.0]


def test_a_job_is_not_judged_while_an_instance_of_it_starts() -> None:
    henge = Henge(QUICK)
    jobs = Jobs({"x": 2.0}, {"x": 0.45})
    memory = None
    due = []
    for _ in range(10):
        snapshot = jobs.snapshot()
        if jobs.now_s < 80.0 and jobs.width:
            starting = tuple(replace(each, warming_up=True) for each in snapshot.instances)
            snapshot = replace(snapshot, instances=starting)
        snapshot, memory = henge.learn(snapshot, jobs.measured(), memory)
        jobs.carry_out(henge.decide(snapshot)[0])
        if henge.turn(snapshot).step is not None:
            due.append(jobs.now_s)
        jobs.now_s += CYCLE_S
    assert due == [0.0, 80.0]


@pytest.mark.parametrize(
    ("priority", "utility", "expected"),
    [(3, None, 3.0), (3, 35.0, 35.0), (3, 0.0, 0.0), (1, None, 1.0), (0, None, 0.5), (-1, None, 1 / 3)],
)
def test_the_utility_of_a_query_is_as_given_or_by_its_priority(
    priority: int, utility: float | None, expected: float
) -> None:
    extra = {} if utility is None else {"utility": utility}
    assert maximum_utility(Task("q", (), 1.0, priority, 0.0, **extra)) == pytest.approx(expected)


def alone(busy: float, **extra: float) -> Snapshot:
    """A job of one task, which misses its target."""
    mine = {"max_latency_s": 1.0, "latency_p95_s": 2.0, **extra}
    return Snapshot(
        (TaskManager("tm1", 2.0, 10.0), TaskManager("tm2", 1.0, 10.0), TaskManager("tm3", 9.0, 0.0, standby=1)),
        (Task("q", (), 100.0, 1, 0.0, **mine),),
        (),
        (Instance("q.1", "q", "tm1", 50.0, 100.0 * busy, False),),
    )


def test_a_source_is_an_operator_for_its_queue_is_the_topic_that_it_reads() -> None:
    assert Henge(QUICK).decide(alone(0.45, max_parallelism=8))[0].actions == (Scale("q", 6),)
    assert Henge(QUICK).decide(alone(0.3, max_parallelism=8))[0].actions == ()
    assert Henge(QUICK).decide(alone(0.45, max_parallelism=8, stateful=1))[0].actions == ()
    assert Henge(QUICK).decide(alone(0.45, max_parallelism=8, stateful=1, divisible=1))[0].actions == (Scale("q", 6),)


def test_a_task_of_unknown_parallelism_gets_no_more_instances_than_there_are_cores() -> None:
    assert Henge(QUICK).decide(alone(0.9))[0].actions == (Scale("q", 3),)


def test_with_both_targets_utility_is_the_mean() -> None:
    for hybrid in (False, True):  # juice and latency are both at half of their targets
        henge = Henge(replace(QUICK, hybrid=hybrid))
        assert henge.turn(alone(0.1)).utilities["q"].current == 0.5
    fast = alone(0.1, latency_p95_s=0.5)
    assert Henge(QUICK).turn(fast).utilities["q"].current == 1.0
    assert Henge(replace(QUICK, hybrid=True)).turn(fast).utilities["q"].current == 0.75


def test_no_priority_is_too_high() -> None:
    assert maximum_utility(Task("q", (), 1.0, 10**400, 0.0)) == 1e9
    assert 0.0 < maximum_utility(Task("q", (), 1.0, -(10**400), 0.0)) < 1e-8


# -- juice -------------------------------------------------------------------------------------------------------------


def test_a_query_without_a_target_is_judged_by_its_juice() -> None:
    jobs = Jobs({"x": 50.0}, {"x": 0.45}, target_s=None, executed=0.5)
    assert acted(run(jobs, 2)) == []  # counts tell of a window from the second cycle on
    henge = Henge(QUICK)
    cycles = run(Jobs({"x": 50.0}, {"x": 0.45}, target_s=None, executed=0.5), 8, henge)
    assert acted(cycles) == [(60.0, {"x": 6})]
    assert henge.turn(cycles[6][0]).utilities["x"].share == pytest.approx(0.5)


def test_rows_that_a_shedder_drops_on_purpose_are_not_missed() -> None:
    """Else shedding would bring on instances, which is what it is to spare."""
    shed = Jobs({"x": 50.0}, {"x": 0.45}, target_s=None, executed=0.4, dropped=0.6)
    henge = Henge(QUICK)
    cycles = run(shed, 20, henge)
    assert acted(cycles) == []
    assert henge.turn(cycles[-1][0]).utilities["x"].is_met
    late = Jobs({"x": 50.0}, {"x": 0.45}, target_s=None, executed=0.2, dropped=0.6)
    assert acted(run(late, 20))


def test_a_little_less_than_all_is_taken_for_all() -> None:
    assert acted(run(Jobs({"x": 0.0}, {"x": 0.45}, target_s=None, executed=0.99), 20)) == []
    assert acted(run(Jobs({"x": 0.0}, {"x": 0.45}, target_s=None, executed=0.97), 20))


def fork(delivered: tuple[float, float], read: tuple[float, float]) -> Snapshot:
    """A source whose rows go to two queries."""
    return Snapshot(
        (TaskManager("tm", 1.0, 1.0),),
        (Task("s", (), 100.0, None, None), Task("a", ("s",), None, 1, 0.0), Task("b", ("s",), None, 1, 0.0)),
        (Stream("s", "a", delivered[0]), Stream("s", "b", delivered[1])),
        tuple(
            Instance(f"{t}.1", t, "tm", rate, 1.0, False) for t, rate in (("s", 100.0), ("a", read[0]), ("b", read[1]))
        ),
    )


def test_every_delivered_copy_counts_as_sent() -> None:
    """H-R1: with the rows emitted, juice of this job would be 2, or 1.25 with half of one branch missing."""
    tasks = {"s": (), "a": ("s",), "b": ("s",)}
    whole, half = fork((100.0, 100.0), (100.0, 100.0)), fork((100.0, 100.0), (100.0, 25.0))
    assert juice_of(tasks, rate_tallies(whole)) == pytest.approx(1.0)
    assert juice_of(tasks, rate_tallies(half)) == pytest.approx(0.625)
    known = {"s": Tally(100, 100), "s>a": Tally(100, 100), "s>b": Tally(100, 25)}
    assert juice_of(tasks, known) == pytest.approx(0.625)


def test_rows_that_wait_before_a_source_are_missed() -> None:
    given = fork((50.0, 50.0), (50.0, 50.0))
    behind = replace(given, instances=tuple(replace(each, in_rate=50.0) for each in given.instances))
    assert juice_of({"s": (), "a": ("s",), "b": ("s",)}, rate_tallies(behind)) == pytest.approx(0.5)


def test_a_task_of_two_inputs_has_read_them_in_proportion_where_only_rates_are_known() -> None:
    tasks = (Task("s", (), 60.0, None, None), Task("r", (), None, None, None), Task("q", ("s", "r"), None, 1, 0.0))
    rates = {"s": 60.0, "r": 20.0, "q": 40.0}
    instances = tuple(Instance(f"{t}.1", t, "tm", rate, 1.0, False) for t, rate in rates.items())
    streams = (Stream("s", "q", 60.0), Stream("r", "q", 20.0))
    found = rate_tallies(Snapshot((TaskManager("tm", 1.0, 1.0),), tasks, streams, instances))
    assert found == {"s": Tally(60, 60), "r": Tally(20, 20), "s>q": Tally(60, 30), "r>q": Tally(20, 10)}


def test_counts_that_begin_anew_are_no_reading() -> None:
    before, after = {"s": Count(100, 90, 0, 10), "t": Count(5, 5)}, {"s": Count(20, 20), "t": Count(9, 6, 1, 1, 1)}
    assert tallies(after, before) == {"t": Tally(4, 3)}
    assert tallies(after, {}) == {}


# -- latency -----------------------------------------------------------------------------------------------------------


def test_a_query_that_finishes_nothing_has_the_age_of_its_oldest_row() -> None:
    stuck = Jobs({"x": 0.1}, {"x": 0.45})
    snapshot = stuck.snapshot()
    query = replace(snapshot.tasks[1], oldest_s=10.0)
    plan, _ = Henge(QUICK).decide(replace(snapshot, tasks=(snapshot.tasks[0], query)))
    assert plan.actions == (Scale("x", 6),)
    assert Henge(QUICK).decide(snapshot)[0].actions == ()


def test_latency_is_the_mean_of_the_last_readings() -> None:
    henge = Henge(Parameters(warm_up_s=1e6))
    jobs = Jobs({"x": 1.0}, {"x": 0.1})

    def rises(cycle: int) -> None:
        jobs.latency_s["x"] = float(cycle)

    snapshot, _ = run(jobs, 20, henge, rises)[-1]
    assert henge.turn(snapshot).known.latency_s["x"] == pytest.approx(sum(range(10, 20)) / 10)


def test_a_median_ignores_the_drain_after_a_restart() -> None:
    for average, expected in (("mean", 2.4), ("median", 0.5)):
        henge = Henge(Parameters(warm_up_s=1e6, average=average))
        jobs = Jobs({"x": 10.0}, {"x": 0.1})

        def drained(cycle: int, jobs: Jobs = jobs) -> None:
            jobs.latency_s["x"] = 10.0 if cycle == 0 else 0.5

        snapshot, _ = run(jobs, 5, henge, drained)[-1]
        assert henge.turn(snapshot).known.latency_s["x"] == pytest.approx(expected)


def test_a_job_with_an_instance_that_starts_has_no_reading() -> None:
    henge, memory = Henge(Parameters(warm_up_s=1e6)), None
    jobs = Jobs({"x": 9.0, "y": 9.0}, {"x": 0.1, "y": 0.1}, executed=0.5)
    for cycle in range(6):
        snapshot = jobs.snapshot()
        if cycle < 3:
            first, *others = snapshot.instances
            snapshot = replace(snapshot, instances=(replace(first, warming_up=True), *others))
        else:
            jobs.latency_s["x"], snapshot = 1.0, replace(jobs, latency_s={"x": 1.0, "y": 9.0}).snapshot()
        snapshot, memory = henge.learn(snapshot, jobs.measured(), memory)
        jobs.now_s += CYCLE_S
        assert ("x" in henge.turn(snapshot).known.latency_s) is (cycle >= 3)
    assert memory.known.latency_s == {"x": 1.0, "y": 9.0}
    assert [len(memory.readings.juice[job]) for job in "xy"] == [3, 5]


def test_readings_are_ten_seconds_apart_however_short_the_cycles() -> None:
    henge, memory = Henge(Parameters(warm_up_s=1e6)), None
    jobs = Jobs({"x": 1.0}, {"x": 0.1})
    for cycle in range(21):
        jobs.latency_s["x"], jobs.now_s = float(cycle), 5.0 * cycle
        snapshot, memory = henge.learn(jobs.snapshot(), jobs.measured(), memory)
    assert henge.turn(snapshot).known.latency_s["x"] == pytest.approx(sum(range(2, 21, 2)) / 10)


def test_readings_from_before_a_step_do_not_judge_it() -> None:
    henge = Henge(QUICK)
    jobs = Jobs({"x": 2.0}, {"x": 0.45})

    def helped(cycle: int) -> None:
        if jobs.width:
            jobs.latency_s["x"] = 0.5

    cycles = run(jobs, 7, henge, helped)
    assert henge.turn(cycles[6][0]).known.latency_s["x"] == 0.5


def test_a_margin_acts_before_the_target_is_missed() -> None:
    near = Jobs({"x": 0.9}, {"x": 0.45})
    assert acted(run(near, 1, Henge(QUICK))) == []
    early = Henge(replace(QUICK, margin=0.8))
    cycles = run(Jobs({"x": 0.9}, {"x": 0.45}), 1, early)
    assert acted(cycles) == [(0.0, {"x": 6})]
    assert early.turn(cycles[0][0]).utilities["x"].is_met


# -- plans, snapshots, reasons -----------------------------------------------------------------------------------------


def test_a_plan_is_a_function_of_its_snapshot_also_after_json() -> None:
    jobs = Jobs({"x": 2.0, "y": 4.0}, {"x": 0.45, "y": 0.45}, width={"x": 2})

    def changes(cycle: int) -> None:
        jobs.latency_s["y"] = 5.0 if cycle > 5 else 4.0

    cycles = run(jobs, 60, before=changes)
    assert acted(cycles) == [(0.0, {"y": 6}), (60.0, {"x": 7})]
    for snapshot, plan in cycles:
        written = json.loads(json.dumps(snapshot_to_json(snapshot)))
        again, _ = Henge(QUICK).decide(snapshot_from_json(written))
        assert again == plan


def test_without_learning_the_state_carries_the_memory() -> None:
    jobs, state, found = Jobs({"x": 2.0}, {"x": 0.45}), None, []
    for _ in range(8):
        snapshot = replace(jobs.snapshot(), at_s=None)  # cycles of 5 s
        plan, state = Henge(replace(QUICK, settle_s=20.0)).decide(snapshot, state)
        jobs.carry_out(plan)
        found.append(len(plan.actions))
    assert found == [1, 0, 0, 0, 0, 0, 0, 0]
    assert state.known.now_s == 35.0
    assert "x" in state.known.machine.skip


@pytest.mark.parametrize(
    "wrong", [3, {"now_s": 1}, {"now_s": 0, "due_s": 0, "juice": {}, "latency_s": {}, "machine": 1}]
)
def test_what_is_kept_in_a_snapshot_must_be_what_it_keeps(wrong: Any) -> None:
    snapshot = replace(Jobs({"x": 2.0}, {"x": 0.45}).snapshot(), henge=wrong)
    with pytest.raises(SnapshotError, check=breaks("own memory")):
        Henge().decide(snapshot)


def test_it_says_what_it_does_and_why() -> None:
    henge = Henge(QUICK)
    jobs = Jobs({"x": 2.0, "y": 0.5}, {"x": 0.45, "y": 0.1})
    cycles = run(jobs, 7, henge)
    snapshot, plan = cycles[0]
    (action,) = plan.actions
    assert tells(action.why, "x", "17.5", 35)
    reasons = henge.explain(snapshot, plan)
    assert reasons.numbers("tm1") == {"utility": 52.5, "most_utility": 70.0, "satisfaction": 75.0}
    (said,) = reasons.task_manager("tm1")
    assert tells(said, "52.5", 70, "75.0 %", "reconfiguration", "x")
    said = "; ".join(reasons.task("x"))
    assert tells(said, "x", "17.5", 35)
    assert tells(said, "x", "latency", "2 s")
    assert "x has 1 of 8 instances, busy 0.45: congested" in said
    later = henge.explain(*cycles[1])
    (said,) = later.task_manager("tm1")
    assert tells(said, "52.5", 70, "75.0 %", "50 s")
    assert "skipped for 3540 s more" in "; ".join(henge.explain(*cycles[6]).task("x"))


@given(snapshots(wild=True))
def test_any_valid_snapshot_gets_a_plan_that_sheds_nothing(snapshot: Snapshot) -> None:
    henge = Henge(QUICK)
    learned, _ = henge.learn(snapshot, Measured(), None)
    plan, _ = henge.decide(learned)
    check_plan(plan, snapshot)
    assert set(plan.desired.values()) == {1.0}
    assert set(plan.non_drop.values()) == {1.0}
    tasks: Mapping[str, int] = {a.task: a.parallelism for a in plan.actions if isinstance(a, Scale)}
    assert len(tasks) == len(plan.actions)
    assert all(count >= 1 for count in tasks.values())
    henge.explain(learned, plan).task(snapshot.tasks[0].id)


@pytest.mark.parametrize(
    ("min_juice", "target_s", "share"),
    [(None, None, 0.5), (0.4, None, 1.0), (0.8, None, 0.625), (None, 2.0, 1.0), (0.8, 2.0, 0.8125), (0.8, 0.5, 0.5625)],
)
def test_a_query_is_judged_by_its_own_target_of_juice_and_by_both_targets_where_it_has_both(
    min_juice: float | None, target_s: float | None, share: float
) -> None:
    query = Task("q", (), 100.0, 4, 1.0, min_juice=min_juice, max_latency_s=target_s)
    seen = Snapshot((TaskManager("tm1", 1.0, 50.0),), (query,), (), ())
    (job,) = measured_jobs(seen, {"q": ("q",)}, {"q": 0.5}, {"q": 1.0}, Parameters()).values()
    assert job.utility.share == pytest.approx(share)


def batches(rows: float, batch_s: float, fixed_s: float, row_us: float, waiting: int = 0) -> Instance:
    """An instance in batches back to back: the time of each is that of a batch without rows, and that of its rows."""
    return Instance(
        "q.1",
        "q",
        "tm1",
        rows,
        50.0,
        False,
        mode="micro-batch",
        batches_per_s=1.0 / batch_s,
        at_work=min((fixed_s + rows * batch_s * row_us / 1e6) / batch_s, 1.0),
        busy=1.0,
        waiting=waiting,
    )


def test_batches_back_to_back_are_busy_with_their_rows_alone() -> None:
    light, heavy = batches(100.0, 0.5, 0.49, 100.0), batches(4000.0, 5.0, 0.5, 225.0)
    assert busy_with_rows(light, 0.49) == pytest.approx(0.01)
    assert busy_with_rows(heavy, 0.5) == pytest.approx(0.9)
    assert busy_with_rows(light, None) == 1.0
    assert busy_with_rows(replace(light, at_work=None), 0.49) == 1.0
    assert busy_with_rows(replace(light, waiting=100), 0.49) == pytest.approx(0.01)
    assert busy_with_rows(replace(light, waiting=10_000), 0.49) == 1.0  # it does not keep up, whatever was learned
    assert busy_with_rows(replace(light, busy=None), 0.49) == 0.5


def test_at_a_steady_load_nothing_tells_rows_from_batches_and_a_congested_query_gets_instances() -> None:
    henge, memory, found = Henge(replace(QUICK, warm_up_s=60.0)), None, []
    for n in range(40):
        here = replace(batches(500.0, 2.5, 0.5, 1600.0), window=(10.0 * n, 10.0 * n + 5.0))
        seen = replace(alone(0.1, max_parallelism=8), instances=(here,), at_s=CYCLE_S * n)
        learned, memory = henge.learn(seen, Measured(), memory)
        (query,) = learned.tasks
        assert busy_with_rows(here, query.batch_time_s) == 1.0
        found += henge.decide(learned)[0].actions
    assert found


@pytest.mark.parametrize(("row_us", "acts"), [(20.0, False), (900.0, True)])
def test_a_late_query_in_batches_back_to_back_gets_instances_only_if_its_rows_take_the_time(
    row_us: float, acts: bool
) -> None:
    henge, memory, found = Henge(replace(QUICK, warm_up_s=60.0)), None, []
    for n in range(20):
        rows = 500.0 + 40.0 * (n % 5)
        batch_s = 0.5 / (1.0 - rows * row_us / 1e6) if rows * row_us < 1e6 else 8.0
        here = replace(batches(rows, batch_s, 0.5, row_us), window=(10.0 * n, 10.0 * n + 5.0))
        seen = replace(alone(0.1, max_parallelism=8), instances=(here,), at_s=CYCLE_S * n)
        learned, memory = henge.learn(seen, Measured(), memory)
        found += henge.decide(learned)[0].actions
    assert bool(found) is acts


@pytest.mark.parametrize(("curve", "share"), [("knee", 0.5), ("step", 0.0), ("steep", 0.25), ("gentle", 0.5**0.5)])
def test_a_curve_by_its_name_values_a_job_that_attains_half_of_its_target(curve: str, share: float) -> None:
    made = policy(f"henge warm_up_s=0 curve={curve}")
    assert isinstance(made, Henge)
    assert made.turn(alone(0.1)).utilities["q"].share == pytest.approx(share)
    met = made.turn(alone(0.1, latency_p95_s=0.9)).utilities["q"]
    assert met.is_met


@given(st.sampled_from(sorted(CURVES)), st.floats(0, 1e9), st.floats(0, 1e9))
def test_every_curve_rises_up_to_the_target_and_is_flat_beyond(name: CurveName, one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert 0 <= CURVES[name](low) <= CURVES[name](high) <= 1
    assert CURVES[name](1.0) == CURVES[name](max(high, 1.0)) == 1
