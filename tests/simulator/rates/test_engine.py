"""What holds in every step of any simulation: books, CPU, nobody beyond a core."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qod_magics.core.plan import Plan
from qod_magics.core.runtime import Count, Dials
from qod_magics.core.validation import check_snapshot
from qod_magics.simulator import SimulatedCluster, Simulation
from qod_magics.simulator.rates.engine import unbalanced
from tests.simulator.rates.scenarios import LEFT, RIGHT, SOURCE, Lab, simulations

HAPPENINGS = st.lists(
    st.tuples(
        st.integers(1, 70), st.sampled_from(["dials", "lose", "add", "fail", "move", "pause"]), st.integers(0, 9)
    ),
    max_size=8,
)


def happen(cluster: SimulatedCluster, what: str, number: int) -> None:
    """Something that disturbs the cluster."""
    instances, machines = cluster.wiring.instances, cluster.simulation.machines
    instance, machine = instances[number % len(instances)], machines[number % len(machines)].id
    up = cluster.engine.up
    if what == "dials":
        share = number / 9
        tasks = [task.id for task in cluster.simulation.tasks]
        keep = dict.fromkeys(cluster.wiring.edges, share)
        accept = dict.fromkeys(tasks, share)
        cluster.apply(Plan(accept, keep), Dials(keep, accept))
    elif what == "fail":
        cluster.fail(instance)
    elif what == "lose" and up.sum() > 1:
        cluster.lose(machine)
    elif what == "add" and not up[number % len(machines)]:
        cluster.add_task_manager(machine)
    elif what == "move" and up[number % len(machines)]:
        cluster.move(instance, machine, "it may")
    elif what == "pause":
        cluster.engine.broker_down = not cluster.engine.broker_down


@settings(max_examples=40)
@given(simulations(), HAPPENINGS)
def test_every_step_of_anything_balances(value: dict[str, Any], happenings: list[tuple[int, str, int]]) -> None:
    cluster = SimulatedCluster(Simulation.from_json(value))
    engine, dt = cluster.engine, cluster.engine.step_s
    before: dict[str, Any] = {}
    for number in range(72):
        for step, what, which in happenings:
            if step == number:
                happen(cluster, what, which)
        cpu, busy = engine.cpu.copy(), engine.busy.copy()
        cluster.advance(dt)
        assert unbalanced(engine) == []
        used = engine.cpu - cpu
        assert (used >= 0).all()
        assert (used <= dt * (1 + 1e-9)).all()
        assert (used[~engine.running] == 0).all()
        spent = engine.busy - busy
        tasks = np.bincount(np.maximum(engine.where, 0), used, len(engine.machines))
        assert (spent <= engine.cores * dt * (1 + 1e-9)).all()
        assert (tasks <= spent + 1e-12).all()
        assert (spent[~engine.up] == 0).all()
        if number % 6 == 0:
            seen = cluster.observe()
            check_snapshot(seen.snapshot)
            for name, count in seen.measured.counts.items():
                assert count.arrived == count.processed + count.dropped + count.waiting
                earlier = before.get(name, count)
                assert count.arrived >= earlier.arrived
                assert count.processed >= earlier.processed
                assert count.dropped >= earlier.dropped
            before = dict(seen.measured.counts)


@pytest.mark.parametrize("rate", [50, 3333])
def test_cpu_is_what_was_worked_and_no_more(rate: float) -> None:
    lab = Lab(
        topics=[{"topic": "rows", "rate": rate}],
        task_managers=[{"id": "tm1", "cores": 4}],
        moves={"slowdown": 1, "start_cpu_s": 0.8},
    )
    lab.wait(30)
    engine = lab.cluster.engine
    wiring = engine.wiring
    rows_s = wiring.by_instance(engine.read * wiring.read_s + engine.kept * wiring.work_s)
    assert engine.cpu == pytest.approx(wiring.fixed * 30 + 0.8 + rows_s, abs=1e-3)  # some rows' work may be begun
    others = 30 * wiring.overhead.sum()
    assert engine.busy[0] == pytest.approx(engine.cpu.sum() + others)


def test_an_instance_has_a_core_and_a_full_task_manager_is_full() -> None:
    heavy = [{**SOURCE, "work_us": 10_000}, LEFT, RIGHT]
    lab = Lab(tasks=heavy, task_managers=[{"id": "tm1", "cores": 4}])
    seen = lab.wait(60)
    shown = {i.id: i for i in seen.snapshot.instances}
    assert shown["src.1"].cpu == pytest.approx(100.0)
    assert shown["src.1"].in_rate == pytest.approx((1 - 0.02) / 0.01001, rel=0.05)
    assert seen.measured.lag["src"] > 60 * 250

    lab = Lab(tasks=heavy, task_managers=[{"id": "tm1", "cores": 1, "background": 0.25}])
    seen = lab.wait(60)
    assert seen.snapshot.task_managers[0].cpu == pytest.approx(100.0)
    others = 25 + 3 * 3  # background, and the overhead of three instances
    assert sum(i.cpu for i in seen.snapshot.instances) == pytest.approx(100 - others, rel=0.01)


def test_what_the_dials_say_is_what_is_kept_to_the_row() -> None:
    lab = Lab(duration_s=20)
    keep = {(None, "src"): 0.5, ("src", "left"): 0.6, ("src", "right"): 1.0}
    accept = {"src": 1.0, "left": 0.15, "right": 1.0}
    lab.cluster.apply(Plan(accept, keep), Dials(keep, accept))
    seen = lab.wait(40)
    counts, sent = seen.measured.counts, 20 * 400
    open_ = 400 * lab.cluster.engine.step_s  # the rows of the step before the dials turned
    assert counts["src"].arrived == sent
    assert counts["src"].processed == pytest.approx(sent / 2, abs=open_ + 1)
    assert counts["src>left"].arrived == pytest.approx(0.6 * counts["src"].processed, abs=open_ + 1)
    assert counts["src>left"].processed == pytest.approx(counts["src>left"].arrived / 2, abs=open_ + 1)
    assert counts["src>right"].processed == counts["src>right"].arrived == counts["src"].processed
    assert seen.measured.dropped["src>left"] == counts["src"].processed - counts["src>left"].processed


@pytest.mark.parametrize("width", [2, 3, 7])
def test_the_last_odd_row_is_read_too(width: int) -> None:
    lab = Lab(
        duration_s=10,
        topics=[{"topic": "rows", "rate": 101.3}],
        tasks=[{**SOURCE, "parallelism": width}, {**LEFT, "parallelism": 2, "shares": [0.9, 0.1]}, RIGHT],
    )
    seen = lab.wait(30)
    assert {name: count.waiting for name, count in seen.measured.counts.items()} == dict.fromkeys(
        ("src", "src>left", "src>right"), 0
    )
    assert seen.measured.counts["src"].processed == 1013
    engine = lab.cluster.engine
    read = engine.read[engine.wiring.instance_task[engine.wiring.channel_instance] == 0]
    assert read.max() - read.min() <= 2
    left = engine.read[engine.wiring.instance_task[engine.wiring.channel_instance] == 1]
    assert left.tolist() == pytest.approx([0.9 * 1013, 0.1 * 1013], abs=2)


def test_rows_can_be_read_once_they_have_been_on_their_way_for_so_long() -> None:
    late = [{**SOURCE, "latency_s": 0.5}, {**LEFT, "latency_s": 1.0}, RIGHT]
    lab = Lab(tasks=late, duration_s=20, moves={"start_cpu_s": 0, "slowdown": 1})
    engine = lab.cluster.engine
    lab.wait(0.5)
    assert engine.read.tolist() == [0, 0, 0]
    lab.wait(0.25)
    assert engine.read.tolist() == [100, 0, 0]  # of the first step
    lab.wait(9.25)
    assert engine.waiting.tolist() == [200, 400, 100]
    seen = lab.wait(20)
    rows = Count(8000, 8000, 0, 0)
    assert seen.measured.counts == {"src": rows, "src>left": rows, "src>right": rows}


def test_rows_that_wait_are_thinned_when_the_dial_turns() -> None:
    """A backlog in the source and one on a stream: both shed what they hold as soon as they may keep less."""
    slow = {**LEFT, "work_us": 5000}
    lab = Lab(duration_s=30, tasks=[SOURCE, slow, RIGHT], task_managers=[{"id": "tm1", "cores": 4}])
    seen = lab.wait(30)
    waiting = seen.measured.lag["src>left"]
    assert waiting > 5000
    keep = {(None, "src"): 1.0, ("src", "left"): 1.0, ("src", "right"): 1.0}
    accept = {"src": 1.0, "left": 0.1, "right": 1.0}
    lab.cluster.apply(Plan(accept, keep), Dials(keep, accept))
    seen = lab.wait(15)
    assert seen.measured.lag["src>left"] == 0
    assert seen.measured.counts["src>left"].dropped == pytest.approx(0.9 * waiting, rel=0.02)
