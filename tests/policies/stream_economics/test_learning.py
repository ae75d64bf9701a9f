"""What a policy that learns puts into a snapshot, from which readings, and that plans need nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from qod_magics.controller.record import read
from qod_magics.core.json_form import plan_from_json, plan_to_json, snapshot_from_json
from qod_magics.core.policy import LearningPolicy, RememberingPolicy
from qod_magics.core.runtime import Count, Measured
from qod_magics.core.snapshot import Instance, Snapshot, Stream, Task, TaskManager, replace
from qod_magics.notebook.replay import Replay
from qod_magics.policies import SHEDDING, policy
from qod_magics.policies.stream_economics.learning import SHORT_SEARCH_S, Lessons, learn
from qod_magics.recordings.verdict import verdict
from qod_magics.simulator import Simulation, simulate

CLIMB = Path(__file__).parents[2] / "scenarios" / "climb.json"
#: Those that learn costs. `auto` has a memory of its actions: its plans follow from the snapshots in their order
#: (stack/test_stack.py).
LEARNING = [name for name in SHEDDING if name != "auto" and isinstance(policy(name), LearningPolicy)]


def seen(window: int = 0, kept: float = 500.0, cpu: float = 30.0, **marks: Any) -> Snapshot:
    """A source of which half is dropped, and a query that gets two rows for each that is kept."""
    extra = {"window": (window, window + 5), **{k: v for k, v in marks.items() if k != "warming_up"}}
    warming = bool(marks.get("warming_up"))
    return Snapshot(
        (TaskManager("tm1", 1.0, 50.0),),
        (Task("src", (), 1000.0, None, None), Task("q", ("src",), None, 1, 0.1)),
        (Stream("src", "q", 2 * kept),),
        (
            Instance("src.1", "src", "tm1", kept, cpu, warming, **extra),
            Instance("q.1", "q", "tm1", 2 * kept, 10.0, False, window=[window, window + 5]),
        ),
    )


def books(cycle: int) -> Measured:
    """Half of what the source reads is dropped, nothing of what the query reads."""
    return Measured(counts={"src": Count(5000, 2500 * cycle, 2500 * cycle, 0), "src>q": Count(0, 5000 * cycle, 0, 0)})


def costs(snapshot: Snapshot, task: str = "src") -> tuple[float | None, float | None, float | None]:
    row = next(each for each in snapshot.tasks if each.id == task)
    return row.fixed_cpu, row.read_us, row.work_us


def test_nothing_is_known_without_a_reading_of_a_running_instance() -> None:
    for marks in ({"stale": True}, {"missing": ("cpu",)}, {"warming_up": True}):
        found, _ = learn(seen(**marks), books(1), None)
        assert costs(found) == (None, None, None)
        assert costs(found, "q") != (None, None, None)


def test_costs_are_those_of_the_rows_read_and_kept() -> None:
    found, _ = learn(seen(), books(1), None)
    fixed, read_us, work_us = costs(found)
    assert fixed is not None
    assert read_us is not None
    assert work_us is not None
    assert fixed + 1e-4 * (1000 * read_us + 500 * work_us) == pytest.approx(30.0)


def test_a_window_counts_once() -> None:
    _, memory = learn(seen(1), books(1), None)
    again, held = learn(seen(1, cpu=90.0), books(1), memory)
    assert held.tasks["src"].fit == memory.tasks["src"].fit
    later, _ = learn(seen(2, cpu=90.0), books(2), memory)
    assert costs(again) != costs(later)


def test_a_reading_of_a_warm_up_does_not_count_when_that_is_over() -> None:
    _, memory = learn(seen(1, cpu=90.0, warming_up=True), books(1), None)
    over, memory = learn(seen(1, cpu=90.0), books(1), memory)
    assert costs(over) == (None, None, None)
    later, _ = learn(seen(2), books(2), memory)
    assert costs(later) != (None, None, None)


def test_a_cold_start_while_load_is_shed_does_not_make_all_cost_one_of_reading() -> None:
    """As measured live: thousands of rows/s read and kept, and CPU, of a query whose rows cost 3 us to read and 34 us
    to process. A restart is dear, and sheds what has waited."""
    saturated = [(3.2, 3.2, 15.4), (12.0, 12.0, 48.0), (24.7, 24.7, 90.4), (23.0, 23.0, 92.1)]
    cold = [(2.3, 1.8, 17.2), (3.1, 2.6, 16.6), (3.15, 3.15, 16.7)]
    warm = [
        (3.1, 3.1, 17.5),
        (3.1, 3.1, 15.5),
        (6.1, 6.1, 31.0),
        (6.2, 6.2, 28.0),
        (9.4, 9.4, 44.0),
        (15.6, 15.6, 68.0),
    ]
    memory: Lessons | None = None
    processed = dropped = 0
    for number, (read_rate, kept, cpu) in enumerate([*saturated, (0.0, 0.0, 0.0), *cold, *warm]):
        marks: dict[str, Any] = (
            {"missing": ("in_rate", "cpu")} if not kept else {"window": (5 * number, 5 * number + 5)}
        )
        processed, dropped = processed + round(5000 * kept), dropped + round(5000 * (read_rate - kept))
        snapshot = Snapshot(
            (TaskManager("tm1", 1.0, cpu),),
            (Task("q", (), 1000 * read_rate, 1, 0.05),),
            (),
            (Instance("q.1", "q", "tm1", 1000 * kept, cpu, False, **marks),),
        )
        count = Count(processed + dropped, processed, dropped, 0)
        found, memory = learn(snapshot, Measured(counts={"q": count}), memory)
    _, read_us, work_us = costs(found, "q")
    assert read_us is not None
    assert work_us is not None
    assert read_us < 0.2 * work_us
    assert read_us + work_us == pytest.approx(37.0, rel=0.1)


def test_rows_out_for_each_row_kept_are_known_when_all_instances_are_measured() -> None:
    found, memory = learn(seen(), books(1), None)
    assert [task.selectivity for task in found.tasks] == [pytest.approx(2.0), None]
    unseen, _ = learn(seen(2, kept=1.0, stale=True), books(2), memory)
    assert unseen.tasks[0].selectivity == pytest.approx(2.0)


def test_a_task_manager_where_all_costs_more_is_told_apart() -> None:
    memory: Lessons | None = None
    for cycle in range(1, 30):
        one = seen(cycle)
        twice = [
            replace(each, id=each.id.replace(".1", ".2"), task_manager="tm2", cpu=2 * each.cpu)
            for each in one.instances
        ]
        both = replace(
            one, task_managers=(*one.task_managers, TaskManager("tm2", 1.0, 80.0)), instances=(*one.instances, *twice)
        )
        found, memory = learn(both, books(cycle), memory)
    cheap, dear = (manager.cost for manager in found.task_managers)
    assert cheap is not None
    assert dear is not None
    assert dear / cheap == pytest.approx(2.0, rel=0.1)


def batching(cycle: int, eviction_s: float, rows_s: float = 10_000.0) -> Snapshot:
    """A query in two micro-batches/s: 10 microseconds of CPU a row, 0.1 s a batch, and this for its state."""
    batches = 2.0
    eviction = 100.0 * eviction_s * batches
    cpu = 1e-3 * rows_s + 10.0 * batches + eviction
    extra = {"window": (cycle, cycle + 5), "batches_per_s": batches, "eviction_cpu": eviction}
    return Snapshot(
        (TaskManager("tm1", 1.0, min(cpu, 100.0)),),
        (Task("q", (), rows_s, 1, 0.1),),
        (),
        (Instance("q.1", "q", "tm1", rows_s, cpu, False, **extra),),
    )


@pytest.mark.parametrize(
    ("eviction_s", "interval_s"),
    [(0.0, 2.0), (0.2, 2.0), (0.6, 3.0), (2.0, 4.0), (4.0, 8.2)],  # at most half of the time is for empty batches
)
def test_plans_assume_batches_long_enough_for_the_eviction_of_state(eviction_s: float, interval_s: float) -> None:
    memory: Lessons | None = None
    for cycle in range(1, 9):
        found, memory = learn(batching(cycle, eviction_s), Measured(), memory)
    assert found.task_managers[0].batch_s == pytest.approx(interval_s, abs=0.2)
    fixed, read_us, work_us = costs(found, "q")
    assert fixed is not None
    assert read_us is not None
    assert work_us is not None
    needed = fixed + 1e-4 * 10_000 * (read_us + work_us)
    short = 2 * 100.0 * SHORT_SEARCH_S  # counts as the cost of batches or of rows: one rate can't tell
    assert needed == pytest.approx(10.0 + (10.0 + 100.0 * eviction_s) / interval_s, abs=1.0 + short)


@pytest.mark.parametrize(
    ("rows_s", "eviction_s"),
    [(20.0, 0.01), (90.0, 0.5)],  # a state of few keys, at any rate; and one that is left from a higher rate
)
def test_the_state_at_a_trickle_says_little_of_that_at_a_high_rate(rows_s: float, eviction_s: float) -> None:
    memory: Lessons | None = None
    for cycle in range(1, 9):
        found, memory = learn(batching(cycle, eviction_s=0.5), Measured(), memory)
    before = sum(each or 0.0 for each in costs(found, "q")[1:])
    for cycle in range(9, 21):
        found, memory = learn(batching(cycle, eviction_s, rows_s), Measured(), memory)
    assert 0.5 * before < sum(each or 0.0 for each in costs(found, "q")[1:]) < 1.5 * before


def test_a_query_with_a_long_trigger_lengthens_no_others_batches() -> None:
    memory: Lessons | None = None
    for cycle in range(1, 9):
        one = batching(cycle, eviction_s=4.0)
        instance = replace(one.instances[0], trigger_s=60.0)
        found, memory = learn(replace(one, instances=(instance,)), Measured(), memory)
    assert found.task_managers[0].batch_s == 2.0


def test_what_is_gone_is_forgotten() -> None:
    _, memory = learn(seen(), books(1), None)
    left = replace(seen(2), tasks=(Task("src", (), 1000.0, 1, 0.1),), streams=(), instances=seen(2).instances[:1])
    _, after = learn(left, books(2), memory)
    assert set(after.tasks) == {"src"}
    assert set(after.windows) == {"src.1"}


def test_the_same_input_teaches_the_same() -> None:
    _, memory = learn(seen(), books(1), None)
    one, other = learn(seen(2), books(2), memory), learn(seen(2), books(2), memory)
    assert one[0].tasks == other[0].tasks
    assert one[1] == other[1]


def test_the_paper_does_not_see_what_was_learned() -> None:
    found, _ = learn(seen(), books(1), None)
    assert policy("stream-economics").decide(found, None)[0] == policy("stream-economics").decide(seen(), None)[0]


def test_a_replay_and_a_verdict_ask_the_policy_that_decided(tmp_path: Path) -> None:
    simulate(
        replace(Simulation.read(CLIMB), policy="stream-economics-filled"), record=tmp_path / "run.jsonl", keep=False
    )
    replay = Replay(tmp_path / "run.jsonl")
    recorded = replay.record.plan
    assert replay.what_if("t2").desired == recorded.desired
    assert replay.what_if("t2", policy_name="stream-economics").desired != recorded.desired
    (plans, *_), (others, *_) = verdict(replay.records), verdict(replay.records, policy="stream-economics")
    assert plans.passed
    assert "stream-economics-filled" in plans.detail
    assert not others.passed


@pytest.mark.parametrize("name", LEARNING)
def test_each_line_of_a_recording_gives_its_plan_again(name: str, tmp_path: Path) -> None:
    """Also by itself, without those before: what was learned is in it."""
    simulation = replace(Simulation.read(CLIMB), policy=name)
    simulate(simulation, record=tmp_path / "run.jsonl", keep=False)
    lines = list(read(tmp_path / "run.jsonl"))
    assert sum("fixed_cpu" in task for task in lines[-1]["snapshot"]["tasks"]) == len(simulation.tasks)
    for line in lines:
        plan, _ = policy(name).decide(snapshot_from_json(line["snapshot"]), None)
        assert plan_from_json(json.loads(json.dumps(plan_to_json(plan, {})))) == plan_from_json(line["plan"])


def test_a_task_that_is_declared_anew_has_costs_of_its_own() -> None:
    """The last recipe's say nothing of them: its cheaper successor was shed by them until they were unlearned."""
    _, memory = learn(seen(cpu=90.0), books(1), None)
    again = seen(5, cpu=9.0)
    anew = replace(again, tasks=(replace(again.tasks[0], declared=2), again.tasks[1]))
    same, _ = learn(again, books(2), memory)
    cheap, later = learn(anew, books(2), memory)
    expected, _ = learn(again, books(2), None)
    assert costs(cheap) == costs(expected)
    assert costs(same) != costs(cheap)
    assert costs(cheap, "q") == costs(same, "q")
    unread, _ = learn(replace(anew, instances=()), books(3), later)
    assert costs(unread) == costs(cheap)


# -- what outlives a process -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in SHEDDING if isinstance(policy(name), LearningPolicy)])
def test_the_next_process_knows_the_costs_of_tasks_before_it_has_measured_them(name: str) -> None:
    chosen = policy(name)
    assert isinstance(chosen, RememberingPolicy)
    memory: Any = None
    for window in (0, 5, 10):
        found, memory = chosen.learn(seen(window), books(1 + window // 5), memory)
    kept = json.loads(json.dumps(chosen.kept(memory), allow_nan=False))
    unmeasured = seen(0, missing=("cpu", "in_rate"))
    cold, early = chosen.learn(unmeasured, Measured(), None)
    assert costs(cold) == (None, None, None)
    warm, _ = chosen.learn(unmeasured, Measured(), chosen.recalled(kept, early))
    assert costs(warm) == costs(found)
    assert costs(chosen.learn(unmeasured, Measured(), chosen.recalled(kept, None))[0]) == costs(found)


def test_costs_that_this_process_has_measured_are_not_replaced_by_earlier_ones() -> None:
    chosen: Any = policy("stream-economics-reactive")
    _, dear = chosen.learn(seen(0, cpu=90.0), books(1), None)
    now, memory = chosen.learn(seen(0, cpu=10.0), books(1), None)
    then, _ = chosen.learn(seen(0, cpu=10.0), books(1), chosen.recalled(chosen.kept(dear), memory))
    assert costs(then) == costs(now)


@pytest.mark.parametrize(
    "kept", [{}, {"lessons": 3, "evidence": None}, {"lessons": {"tasks": {"a": 1}}, "evidence": {}}]
)
def test_what_another_release_has_kept_is_an_error_and_no_memory(kept: Any) -> None:
    chosen: Any = policy("auto")
    with pytest.raises((ValueError, LookupError, TypeError)):
        chosen.recalled(kept, None)
