"""`Fuse` and `Unfuse`: neighbours become one task without the hop between them, and every row is read once."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qod_magics.core.fusing import fused_streams
from qod_magics.core.plan import Action, Fuse, Move, Plan, Scale, Unfuse
from qod_magics.core.runtime import Count, Dials, Observation
from qod_magics.simulator import SimulatedCluster
from tests.simulator.rates.scenarios import SOURCE, Lab
from tests.texts import tells

MID: dict[str, Any] = {"id": "mid", "upstream": ["src"], "work_us": 200, "fusable": True, "hop_us": 20.0}
END: dict[str, Any] = {
    **{"id": "end", "upstream": ["mid"], "work_us": 300, "fusable": True, "hop_us": 20.0},
    **{"priority": 1, "min_accuracy": 0.1},
}
STILL = {"spread": 0.0, "start_cpu_s": 0.0, "down_s": 2.0, "slowdown": 1.0}
ONE = [{"id": "tm1"}]


def chain(**fields: Any) -> Lab:
    """src, mid and end on one task manager, two minutes long."""
    given: dict[str, Any] = {"duration_s": 120, "task_managers": ONE, "tasks": [SOURCE, MID, END], "moves": STILL}
    return Lab(**{**given, **fields})


def act(cluster: SimulatedCluster, *actions: Action, keep_all: float = 1.0) -> None:
    """Apply a plan with these actions; `keep_all`: what the shedder of the source keeps."""
    keep = {edge: keep_all if edge[0] is None else 1.0 for edge in cluster.wiring.edges}
    accept = {task.id: 1.0 for task in cluster.wiring.tasks}
    cluster.apply(Plan(accept, keep, actions), Dials(keep, accept))


def tasks(seen: Observation) -> dict[str, tuple[tuple[str, ...], tuple[tuple[str, str], ...]]]:
    """By task: what it reads, and the streams within it."""
    return {task.id: (task.upstream, fused_streams(task)) for task in seen.snapshot.tasks}


def used(lab: Lab, seconds: float) -> float:
    """CPU of all tasks over these seconds, in seconds."""
    before = lab.cluster.engine.busy.sum()
    lab.wait(seconds)
    return float(lab.cluster.engine.busy.sum() - before)


def test_a_chain_is_fused_and_parted_and_no_row_is_lost() -> None:
    lab = chain()
    seen = lab.wait(20)
    assert tasks(seen) == {"src": ((), ()), "mid": (("src",), ()), "end": (("mid",), ())}
    assert [task.fusable for task in seen.snapshot.tasks] == [None, 1, 1]
    apart = used(lab, 10)
    act(lab.cluster, Fuse(("mid", "end"), "why not"))
    seen = lab.wait(10)
    assert tasks(seen) == {"src": ((), ()), "end": (("src",), (("mid", "end"),))}
    (told,) = lab.of("fuse")
    assert (told["task"], told["from"], told["to"], told["why"]) == ("end", "mid", "end", "why not")
    assert 2.0 <= told["took_s"] <= 3.0
    assert used(lab, 10) < apart
    act(lab.cluster, Fuse(("src", "end")))
    seen = lab.wait(10)
    assert tasks(seen) == {"end": ((), (("src", "mid"), ("mid", "end")))}
    assert [s.id for s in seen.snapshot.instances] == ["end.1"]
    assert seen.snapshot.tasks[0].external_rate == pytest.approx(400)
    act(lab.cluster, Unfuse(("src", "mid")))
    seen = lab.wait(10)
    assert tasks(seen) == {"src": ((), ()), "end": (("src",), (("mid", "end"),))}
    act(lab.cluster, Unfuse(("mid", "end")))
    seen = lab.wait(20)
    assert tasks(seen) == {"src": ((), ()), "mid": (("src",), ()), "end": (("mid",), ())}
    assert all(seen.fresh.values())
    seen = lab.wait(60)
    counts = seen.measured.counts
    assert counts["src"] == Count(48_000, 48_000, 0, 0)
    assert (
        counts["src>mid"].arrived
        == counts["src>mid"].processed
        == 48_000 - (counts["src"].processed - counts["src>mid"].arrived)
    )
    assert lab.cluster.engine.out.sum() > 0
    assert lab.of("move") == lab.of("query-restarted") == lab.of("action-refused") == []


def test_the_results_are_those_of_separate_tasks() -> None:
    """Each row of the source is one of the results, at whatever second its tasks are fused and unfused."""
    lab = chain()
    engine, wiring = lab.cluster.engine, lab.cluster.wiring
    end = wiring.instances.index("end.1")
    for at, action in enumerate((Fuse(("src", "mid")), Fuse(("mid", "end")), Unfuse(("src", "mid")))):
        lab.wait(10 + at)
        act(lab.cluster, action)
    lab.wait(120)
    assert lab.of("action-refused") == []
    assert [e["task"] for e in lab.of("fuse")] == ["mid", "end"]
    assert int(engine.out[end]) == 48_000


def test_what_falls_away_is_the_hop() -> None:
    """CPU of a row: its reading and half of the tasks' work, as the calibration says, and the second query's own."""
    lab = chain()
    lab.wait(20)
    apart = used(lab, 20)
    act(lab.cluster, Fuse(("mid", "end")))
    lab.wait(20)
    hop_s = (10 + 20) * 1e-6 * 400 * 20  # read_us and hop_us of `end`
    own_s = (0.02 + 0.03) * 20  # fixed and overhead
    assert apart - used(lab, 20) == pytest.approx(hop_s + own_s, rel=0.03)


def test_rows_that_are_shed_before_a_fused_task_are_booked_there() -> None:
    lab = chain()
    lab.wait(10)
    act(lab.cluster, Fuse(("src", "mid")))
    lab.wait(10)
    act(lab.cluster, keep_all=0.5)
    assert lab.wait(20).measured.accuracy["mid"] == pytest.approx(0.5, abs=0.01)
    source = lab.wait(100).measured.counts["mid"]
    assert source.arrived == 48_000
    assert source.dropped == pytest.approx(20_000, rel=0.05)


def test_a_fused_task_is_rescaled_and_unfused() -> None:
    wide = {"max_parallelism": 4}
    lab = chain(tasks=[{**SOURCE, **wide}, {**MID, **wide}, {**END, **wide}])
    lab.wait(10)
    act(lab.cluster, Fuse(("src", "mid")))
    lab.wait(10)
    act(lab.cluster, Scale("mid", 3, ("tm1", "tm1")))
    seen = lab.wait(20)
    assert [i.in_rate for i in seen.snapshot.instances if i.task == "mid"] == pytest.approx([200, 100, 100], rel=0.05)
    act(lab.cluster, Scale("end", 3, ("tm1", "tm1")))
    lab.wait(10)
    act(lab.cluster, Fuse(("mid", "end")))
    seen = lab.wait(20)
    assert [i.in_rate for i in seen.snapshot.instances] == pytest.approx([200, 100, 100], rel=0.05)
    act(lab.cluster, Unfuse(("mid", "end")))
    lab.wait(10)
    act(lab.cluster, Unfuse(("src", "mid")))
    seen = lab.wait(20)
    assert [i.id for i in seen.snapshot.instances] == [f"{t}.{n}" for t in ("src", "mid", "end") for n in (1, 2, 3)]
    seen = lab.wait(100)
    assert seen.measured.counts["src"] == Count(48_000, 48_000, 0, 0)
    of_end = [i for i, name in enumerate(lab.cluster.wiring.instances) if name.startswith("end.")]
    assert int(lab.cluster.engine.out[of_end].sum()) == 48_000


@pytest.mark.parametrize("divisible", [False, True])
def test_a_task_whose_state_is_divided_over_several_instances_is_not_fused(divisible: bool) -> None:
    two: dict[str, Any] = {"parallelism": 2}
    lab = chain(tasks=[{**SOURCE, **two}, {**MID, **two}, {**END, **two, "stateful": True, "divisible": divisible}])
    lab.wait(10)
    act(lab.cluster, Fuse(("mid", "end")))
    lab.wait(10)
    assert [len(lab.of(kind)) for kind in ("fuse", "action-refused")] == ([0, 1] if divisible else [1, 0])


@pytest.mark.parametrize(
    ("fields", "edge", "why"),
    [
        ({}, ("src", "end"), "src"),
        ({}, ("src", "mit"), "'mid'"),
        ({"tasks": [SOURCE, {**MID, "fusable": False}, END]}, ("src", "mid"), "mid"),
        ({"tasks": [SOURCE, MID, END, {**END, "id": "b"}]}, ("mid", "end"), "end, b"),
        ({"tasks": [SOURCE, {**MID, "mode": "micro-batch"}, END]}, ("src", "mid"), "modes"),
        ({"tasks": [SOURCE, {**MID, "stateful": True}, {**END, "stateful": True}]}, ("mid", "end"), "state"),
        (
            {"tasks": [SOURCE, {**MID, "parallelism": 2}, END]},
            ("src", "mid"),
            "2 of 2",
        ),
        ({"task_managers": [{"id": "tm1"}, {"id": "tm2"}]}, ("src", "mid"), "src.1"),
    ],
)
def test_what_can_not_be_fused_is_refused_in_one_line(fields: dict[str, Any], edge: tuple[str, str], why: str) -> None:
    lab = chain(**fields)
    if "task_managers" in fields:
        lab.place(src="tm1", mid="tm2", end="tm2")
    lab.wait(10)
    act(lab.cluster, Fuse(edge))
    lab.wait(5)
    (refusal,) = lab.of("action-refused")
    assert why in refusal["why"]
    assert "\n" not in refusal["why"]
    assert (refusal["action"], refusal["stream"]) == ("Fuse", ">".join(edge))


def test_one_change_at_a_time_and_what_is_so_already_is_no_change() -> None:
    lab = chain(tasks=[SOURCE, MID, {**END, "stateful": True}])
    lab.wait(10)
    act(lab.cluster, Unfuse(("src", "mid")), Fuse(("src", "mid")), Fuse(("src", "mid")), Fuse(("mid", "end")))
    act(lab.cluster, Scale("mid", 1), Unfuse(("mid", "nobody")))
    seen = lab.wait(10)
    refused = [e["why"] for e in lab.of("action-refused")]
    assert len(refused) == 3
    assert all(tells(why, "src>mid", of) for why, of in zip(refused, ("mid>end", "mid", "mid>nobody"), strict=True))
    act(lab.cluster, Fuse(("src", "mid")))
    lab.wait(10)
    assert len(lab.of("fuse")) == 1
    act(lab.cluster, Fuse(("mid", "end")))
    seen = lab.wait(10)
    assert [task.stateful for task in seen.snapshot.tasks] == [1]


def test_a_task_that_waits_to_be_fused_goes_on_if_the_other_is_stopped() -> None:
    lab = chain(tasks=[SOURCE, {**END, "upstream": ["src"], "application": "other"}])
    lab.wait(20)
    act(lab.cluster, Fuse(("src", "end")))
    assert lab.cluster.engine.running.tolist() == [False, True]  # it has stopped, and the other reads to the end
    lab.cluster.stop_tasks(["end"])
    lab.wait(10)
    assert lab.cluster.engine.running.tolist() == [True, False]
    lab.cluster.start_tasks(["end"])
    lab.wait(10)
    act(lab.cluster, Fuse(("src", "end")))
    assert list(tasks(lab.wait(20))) == ["end"]


def test_a_task_manager_that_is_lost_meanwhile_loses_nothing() -> None:
    lab = chain(task_managers=[{"id": "tm1"}, {"id": "tm2"}], moves={**STILL, "wait_s": 5.0})
    lab.place(src="tm1", mid="tm1", end="tm1")
    lab.wait(10)
    act(lab.cluster, Fuse(("mid", "end")))
    lab.wait(0.5)
    lab.cluster.lose("tm1")
    seen = lab.wait(40)
    assert lab.of("fuse") == []
    assert "mid>end" in lab.of("action-refused")[0]["why"]
    assert set(tasks(seen)) == {"src", "mid", "end"}
    act(lab.cluster, Move("src.1", "tm2"), Move("mid.1", "tm2"), Move("end.1", "tm2"))
    lab.wait(10)
    act(lab.cluster, Fuse(("mid", "end")))
    lab.wait(7)
    seen = lab.wait(100)
    assert seen.measured.counts["src"].waiting == 0
    assert len(lab.of("fuse")) == 1


STEPS = st.lists(
    st.tuples(
        st.sampled_from(("fuse", "unfuse", "fuse", "unfuse", "scale", "lose", "add", "fail", "move", "stop")),
        st.integers(0, 2),
        st.sampled_from((0.25, 1.0, 3.0, 8.0)),
    ),
    max_size=12,
)


@pytest.mark.closed_loop
@settings(max_examples=12, deadline=None)
@given(steps=STEPS, mode=st.sampled_from(("real-time", "micro-batch")), timed=st.booleans())
def test_whatever_happens_rows_are_conserved_and_it_happens_again(
    steps: list[tuple[str, int, float]], mode: str, timed: bool
) -> None:
    first, second = (_played(steps, mode, timed) for _ in range(2))
    assert first == second


def _played(steps: list[tuple[str, int, float]], mode: str, timed: bool) -> list[Any]:
    common = {"mode": mode, "max_parallelism": 2}
    last = {**END, **common, **({"max_latency_s": 5.0} if timed else {})}
    lab = chain(
        tasks=[{**SOURCE, **common}, {**MID, **common}, last],
        task_managers=[{"id": "tm1"}, {"id": "tm2"}],
        duration_s=60,
    )
    names, edges = ("src", "mid", "end"), (("src", "mid"), ("mid", "end"), ("src", "end"))
    found: list[Any] = []
    for what, which, after_s in steps:
        cluster = lab.cluster
        lab.wait(after_s)
        if what in ("fuse", "unfuse"):
            act(cluster, (Fuse if what == "fuse" else Unfuse)(edges[which]))
        elif what == "scale":
            act(cluster, Scale(names[which], 1 + which % 2))
        elif what == "lose" and cluster.engine.up.all():
            cluster.lose("tm2")
        elif what == "add" and not cluster.engine.up.all():
            cluster.add_task_manager("tm2")
        elif what == "fail":
            cluster.fail(f"{names[which]}.1")
        elif what == "move":
            act(cluster, Move(f"{names[which]}.1", f"tm{1 + which % 2}"))
        elif what == "stop":
            cluster.stop_tasks(names)
            cluster.start_tasks(names)
        seen = lab.look()
        inner = {name for task in seen.snapshot.tasks for edge in fused_streams(task) for name in edge[:1]}
        assert inner.isdisjoint(task.id for task in seen.snapshot.tasks)
        found.append((seen.snapshot, dict(seen.measured.counts)))
    lab.wait(20)
    return [*found, [(event.kind, event.detail) for event in lab.events]]
