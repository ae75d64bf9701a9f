"""Live runs of Henge, Stela and D-Storm: what is computed from samples and recordings, the checks, and the goals."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.evaluation import __main__ as command
from benchmarks.evaluation import books, d_storm_live, henge_live, kept, stela_live
from benchmarks.evaluation.ages import Ends
from benchmarks.evaluation.by_policy import by_policy, named
from benchmarks.evaluation.flow import pauses, windows
from benchmarks.evaluation.hashing import INNER, hashed
from benchmarks.evaluation.loads import Stage, scenario
from benchmarks.evaluation.row import Row
from benchmarks.evaluation.system_rows import SECTIONS
from qod_magics.application.graph import check_stream_name
from qod_magics.controller.record import Record
from qod_magics.core.plan import Plan
from qod_magics.core.runtime import Count, Dials, Event, Measured
from qod_magics.core.snapshot import Instance, Snapshot, Stream, Task, TaskManager, replace
from qod_magics.kafka.scenario import Scenario

# -- loads and samples -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("names", [henge_live.TOPICS, stela_live.CHAIN, d_storm_live.CHAIN])
def test_streams_have_names_that_streams_may_have(names: dict[str, Any]) -> None:
    for name in names:
        check_stream_name(name)


def test_a_row_is_hashed_in_whole_parts_of_its_steps() -> None:
    assert "sequence(1, 4), id" in hashed(4 * INNER + 1)
    assert hashed(0, "before", "hash") == "SELECT id, hash AS hash FROM before"
    assert all(steps >= INNER for chain in (stela_live.CHAIN, d_storm_live.CHAIN) for steps in chain.values())


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 900), st.integers(0, 900)), min_size=1, max_size=5))
def test_a_load_has_the_rates_of_its_stages_one_after_the_other(stages: list[tuple[int, int, int]]) -> None:
    made = scenario([Stage(f"s{n}", s, {"a": a, "b": b}) for n, (s, a, b) in enumerate(stages)], partitions=2)
    read = Scenario.from_json(made)
    assert read.duration_s == sum(s for s, _, _ in stages)
    begin = 0.0
    for seconds, *rates in stages:
        for feed, rate in zip(read.topics, rates, strict=True):
            assert feed.partitions == 2
            for share in (0.1, 0.9):
                assert feed.rate.rate(begin + share * seconds) == pytest.approx(rate)
        begin += seconds


def ends(*samples: tuple[float, int]) -> Ends:
    found = Ends()
    for at, offset in samples:
        found.add(at, offset)
    return found


def test_a_pause_lasts_from_the_last_row_before_it_to_the_first_one_after_it() -> None:
    rows = ends((0, 0), (0.5, 10), (1.0, 10), (2.0, 10), (3.0, 20), (3.5, 30), (4.0, 40), (8.0, 40))
    assert pauses(rows, 0.0, 4.0) == [2.5]
    assert pauses(rows, 0.0, 8.0) == [2.5, 4.0]
    assert pauses(rows, 0.0, 4.0, at_least_s=3.0) == []
    assert pauses(ends((0, 5), (10, 5)), 2.0, 9.0) == [7.0]


@given(st.lists(st.integers(0, 50), min_size=2, max_size=30))
def test_windows_add_up_to_the_rows(grown: list[int]) -> None:
    total, rows = 0, Ends()
    for second, more in enumerate(grown):
        total += more
        rows.add(float(second), total)
    whole = (len(grown) - 1) // 2 * 2
    assert sum(windows(rows, 0.0, len(grown) - 1.0, 2.0)) * 2.0 == pytest.approx(
        rows.offset(whole) - rows.offset(0.0), abs=1e-6
    )


# -- recordings --------------------------------------------------------------------------------------------------------

QUERIES = ("first", "second")


def cycle(
    second: float,
    phase: str,
    p95_s: float,
    count: Count,
    events: tuple[Event, ...] = (),
    accuracy: float = 1.0,
) -> Record:
    """A cycle of two queries with a target of 2 s and utility 35; the second one is in time and keeps all."""
    target = {"max_latency_s": 2.0, "utility": 35.0, "oldest_s": 0.0}
    full = Count(count.arrived, count.arrived)
    return Record(
        at=datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=second),
        snapshot=Snapshot(
            task_managers=(TaskManager("tm1", 1.0, 50.0), TaskManager("tm2", 1.0, 50.0)),
            tasks=(
                Task("first", (), 100.0, 1, 0.1, **{**target, "latency_p95_s": p95_s}),
                Task("second", (), 100.0, 1, 0.1, **{**target, "latency_p95_s": 0.5}),
            ),
            streams=(),
            instances=tuple(Instance(f"{q}.1", q, "tm1", 100.0, 20.0, False) for q in QUERIES),
            at_s=second,
        ),
        plan=Plan({}, {}),
        measured=Measured(
            dict.fromkeys(QUERIES, 0),
            dict.fromkeys(QUERIES, 100.0),
            {"first": accuracy, "second": 1.0},
            counts={"first": count, "second": full},
        ),
        dials=Dials({}, {}),
        events=events,
        annotations={"phase": phase} if phase else {},
        policy_ms=2.0,
    )


COURSE = [
    cycle(0, "", 0.5, Count(0, 0)),
    cycle(5, "calm", 0.5, Count(100, 100)),
    cycle(10, "step", 8.0, Count(200, 150, waiting=50)),
    cycle(
        15,
        "step",
        4.0,
        Count(300, 200, waiting=100),
        (Event("scale", {"task": "first", "from": 1, "to": 2, "took_s": 1.0}),),
    ),
    cycle(20, "step", 1.0, Count(400, 400)),
    cycle(25, "step", 1.0, Count(500, 500)),
]


def test_utilities_are_those_of_henge_in_each_cycle() -> None:
    found = henge_live.readings(COURSE)
    assert [reading.phase for reading in found] == ["calm", *["step"] * 4]
    assert [reading.by_latency for reading in found] == pytest.approx([100.0, 62.5, 75.0, 100.0, 100.0])
    # of the first query: latency 0.25, 0.5, 1, 1; mean juice of (1, 0.5), (1, 0.5, 0.5), and 1 when the backlog drains
    first = [1.0, (0.25 + 0.75) / 2, (0.5 + 2 / 3) / 2, 1.0, 1.0]
    assert [reading.with_juice for reading in found] == pytest.approx([50 * (1 + each) for each in first])


def test_rows_that_were_shed_are_missed_by_juice_and_not_by_latency() -> None:
    shed = [
        cycle(0, "step", 0.5, Count(100, 100)),
        cycle(5, "step", 0.5, Count(200, 150, dropped=50), accuracy=0.5),
    ]
    last = henge_live.readings(shed)[-1]
    assert last.by_latency == 100.0
    assert last.with_juice == pytest.approx(100 * (1 - 0.25 / 2))  # the first cycle has no counts before it
    assert last.kept == 0.75


def test_the_figures_of_a_run_are_of_its_step() -> None:
    by_hand = Event("move", {"instance": "third.1", "took_s": 9.0})
    found = henge_live.figures([COURSE[0], cycle(2, "warm", 0.5, Count(50, 50), (by_hand,)), *COURSE[1:]])
    assert found["calm"] == 100.0
    assert found["by_latency"]["mean"] == pytest.approx((62.5 + 75 + 100 + 100) / 4)
    assert found["met_after_s"] == 10.0
    assert [each["from_s"] for each in found["slices"]] == [0.0, 10.0]
    assert found["in_actions"] == pytest.approx(1.0 / 20.0)
    assert [each["at_s"] for each in found["actions"]] == [5.0]
    late = henge_live.figures([*COURSE, cycle(30, "step", 3.0, Count(600, 600))])
    assert late["met_after_s"] is None
    with pytest.raises(ValueError, match="--scale"):
        henge_live.figures(COURSE[:2])


def names(checks: list[dict[str, Any]]) -> list[str]:
    return [check["name"] for check in checks if not check["passed"]]


def test_checks_fail_for_what_they_say() -> None:
    sent = {"first": 500, "second": 500}
    assert names(books.checks(COURSE, sent, [], sheds=False)) == []
    assert names(books.checks(COURSE, {"first": 501, "second": 500}, [], sheds=False)) == [
        "every row sent is in the books"
    ]
    assert names(books.checks(COURSE, sent, ["process 7"], sheds=False)) == ["nothing is left over"]
    unbalanced = [*COURSE[:2], cycle(7, "calm", 0.5, Count(110, 100)), *COURSE[2:]]
    assert names(books.checks(unbalanced, sent, [], sheds=False)) == ["the books balance in every cycle"]
    shed = [*COURSE, cycle(30, "step", 0.5, Count(500, 490, dropped=10))]
    assert names(books.checks(shed, sent, [], sheds=False)) == ["no row is shed or unreported"]
    assert names(books.checks(shed, sent, [], sheds=True)) == []
    lost = [*COURSE, cycle(30, "step", 0.5, Count(500, 490, unreported=10))]
    assert names(books.checks(lost, sent, [], sheds=True)) == ["no row is unreported"]
    failed = [*COURSE, replace(COURSE[-1], events=(Event("action-refused", {"why": "no"}),))]
    assert names(books.checks(failed, sent, [], sheds=False)) == ["nothing failed or was refused"]


def chain(homes: str) -> Snapshot:
    """a > b > c at 100 and 80 rows/s; `homes`: the task manager of a.1, b.1, b.2, c.1."""
    ids = ("a.1", "b.1", "b.2", "c.1")
    return Snapshot(
        task_managers=(TaskManager("1", 1.0, 50.0), TaskManager("2", 1.0, 50.0)),
        tasks=(Task("a", (), None, None, None), Task("b", ("a",), None, None, None), Task("c", ("b",), None, 1, 0.1)),
        streams=(Stream("a", "b", 100.0), Stream("b", "c", 80.0)),
        instances=tuple(
            Instance(id, id[0], home, 50.0, 20.0, False) for id, home in zip(ids, homes.split(), strict=True)
        ),
    )


@pytest.mark.parametrize(
    ("homes", "between"), [("1 1 1 1", 0.0), ("1 2 2 1", 180.0), ("1 1 2 1", 90.0), ("1 1 1 2", 80.0)]
)
def test_rows_between_task_managers_are_those_of_streams_that_leave_one(homes: str, between: float) -> None:
    assert d_storm_live.between_rows_s(chain(homes)) == pytest.approx(between)


def test_the_chain_is_placed_as_a_whole() -> None:
    clean, enrich, score, store = d_storm_live.CHAIN
    packed = d_storm_live.submitted(d_storm_live.VARIANTS["d-storm"].make(), ["tm2", "tm1"])
    assert packed == {f"{clean}.1": "tm1", f"{enrich}.1": "tm1", f"{score}.1": "tm2", f"{store}.1": "tm2"}
    dealt = d_storm_live.submitted(d_storm_live.VARIANTS["storm-round-robin"].make(), ["tm2", "tm1"])
    assert dealt == {f"{clean}.1": "tm1", f"{enrich}.1": "tm2", f"{score}.1": "tm1", f"{store}.1": "tm2"}


def test_task_managers_and_traffic_are_told_by_stage() -> None:
    def at(second: float, phase: str, homes: str, up: int) -> Record:
        snapshot = chain(homes)
        return replace(
            cycle(second, phase, 0.5, Count()),
            snapshot=replace(snapshot, task_managers=snapshot.task_managers[:up]),
        )

    moves = [
        Event("move", {"instance": f"{task}.1", "why": why}) for task, why in (("a", "moved by hand"), ("b", "packed"))
    ]
    found = d_storm_live.told(
        [
            replace(at(0, "full", "1 2 2 1", 2), events=tuple(moves)),
            at(5, "full", "1 1 1 2", 2),
            at(10, "full", "1 1 1 2", 2),
            at(15, "quarter", "1 1 1 2", 2),
            at(100, "quarter", "1 1 1 1", 1),
        ]
    )
    assert [each["instance"] for each in found["actions"]] == ["b.1"]
    full, quarter = found["stages"]["full"], found["stages"]["quarter"]
    assert (full["up"], full["used"], full["between_rows_s"]) == (2, 2, pytest.approx(80.0))
    assert (quarter["up"], quarter["used"], quarter["between_rows_s"]) == (1, 1, 0.0)
    with pytest.raises(ValueError, match="'quarter'"):
        d_storm_live.told([at(0, "full", "1 1 1 1", 1)])


# -- goals -------------------------------------------------------------------------------------------------------------

CHECKS = [{"name": "the books balance in every cycle", "passed": True, "detail": ""}]
BROKEN = [{"name": "nothing is left over", "passed": False, "detail": "process 7"}]


def goals(part: str, *runs: dict[str, Any]) -> dict[str, Row]:
    return {f"{row.of} {row.what}".strip(): row for row in SECTIONS[part].rows(runs)}


def henge_run(**means: float) -> dict[str, Any]:
    policies = {
        name: {"by_latency": {"mean": mean}, "slices": [{"from_s": 0.0, "by_latency": mean}], "checks": CHECKS}
        for name, mean in means.items()
    }
    return {"policies": policies, "left_out": {}}


def test_henge_is_judged_against_static_placement_in_the_runs_that_have_both() -> None:
    run = henge_run(**{henge_live.STATIC: 60.0, henge_live.HENGE: 90.0})
    without = henge_run(**{henge_live.STATIC: 70.0})
    assert goals("henge-live", run, without)["satisfaction minus static placement's"].values == [30.0, None]
    assert {line["policy"]: line["by_latency mean"] for line in SECTIONS["henge-live"].table([run, without])} == {
        henge_live.STATIC: 70.0,
        henge_live.HENGE: 90.0,
    }


def stela_run(checks: list[dict[str, Any]], **gains: float) -> dict[str, Any]:
    policies = {
        name: {"before": 1000.0, "after": 1000.0 * gain, "cpu": {"first": 90.0}, "checks": checks}
        for name, gain in gains.items()
    }
    return {"policies": policies, "left_out": {}}


def test_stela_is_judged_against_storm_and_a_check_that_fails_is_named() -> None:
    found = goals("stela-live", stela_run(BROKEN, **{"stela": 1.62, "storm-re-deal": 1.0}))
    assert found["gain of throughput / storm-re-deal's"].middle == pytest.approx(1.62)
    broken = found["stela checks of row accounting that hold"]
    assert broken.short
    assert "process 7" in broken.why


def test_d_storm_is_judged_by_stage() -> None:
    def stage(used: int, between: float, cpu_us: float) -> dict[str, Any]:
        return {"used": used, "between_rows_s": between, "cpu_us": cpu_us}

    def policy(full: float, quarter: float, used: int, cpu_us: float) -> dict[str, Any]:
        return {"stages": {"full": stage(2, full, cpu_us), "quarter": stage(used, quarter, cpu_us)}, "checks": CHECKS}

    policies = {
        "d-storm": policy(100.0, 0.0, 1, 900.0),
        "storm-round-robin": policy(300.0, 75.0, 2, 1000.0),
        "d-storm, unfused": policy(100.0, 0.0, 1, 1000.0),
    }
    found = goals("d-storm-live", {"policies": policies, "left_out": {}})
    assert found["full traffic against round-robin"].middle == pytest.approx(-66.7, abs=0.1)
    assert found["quarter CPU per row against unfused"].middle == pytest.approx(-10.0)
    assert not [name for name, row in found.items() if row.short]


def test_a_policy_that_fails_leaves_the_others_their_figures() -> None:
    def run(name: str, _: object) -> dict[str, int]:
        if name == "stela":
            raise TimeoutError("no row")
        return {"rows": 1}

    found = by_policy({"stela": named("stela"), "henge": named("henge")}, run)
    assert found == {"policies": {"henge": {"rows": 1}}, "left_out": {"stela": "TimeoutError: no row"}}
    with pytest.raises(RuntimeError, match="row"):
        by_policy({"stela": named("stela")}, run)


def test_a_group_of_parts_runs_each_and_one_that_fails_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = stela_run(CHECKS, **{"stela": 1.5, "storm-re-deal": 1.0})

    def fails(*_: object) -> dict[str, Any]:
        raise RuntimeError("no broker")

    parts = {**dict.fromkeys(command.GROUPS["live-systems"], fails), "stela-live": lambda *_: run}
    assert len(parts) == 7
    where = ["--results", str(tmp_path / "results"), "--document", str(tmp_path / "EVALUATION.md")]
    assert command.main(["live-systems", *where], {**command.PARTS, **parts}, tmp_path) == 1
    assert [file.name for file in (tmp_path / "results").glob("*.json")] == ["stela-live.json"]
    assert len(kept.earlier(tmp_path / "results" / "stela-live.json", 1.0)) == 1
    said = capsys.readouterr().err
    assert "failed: henge-live, run 1: RuntimeError: no broker" in said
    assert "failed: d-storm-live" in said
    assert "| [Stela](results/stela-live.csv)" in (tmp_path / "EVALUATION.md").read_text("utf-8")
