"""Queries, sources and events of records; phases and their settled parts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from qod_magics.controller.record import Record
from qod_magics.core.plan import Plan
from qod_magics.core.runtime import Dials, Event, Measured
from qod_magics.core.snapshot import Instance, Snapshot, Task, replace
from qod_magics.recordings.reading import is_warming_up, phases, queries, seconds, settled, sources, streams
from tests.recordings.taxi_drives import records, taxi_drives


def test_what_a_record_names() -> None:
    (record, *_) = records(taxi_drives()[:1])
    assert list(queries(record)) == ["TDSnk1", "TDSnk2"]
    assert sources(record) == ("TDSrc1", "TDSrc2")
    assert streams(record) == ("TDSrc1>TDSnk1", "TDSrc1>TDSnk2", "TDSrc2>TDSnk1", "TDSrc2>TDSnk2")


def line(at_s: int, phase: str | None = None, *kinds: str, warming: bool = False, repeated: bool = False) -> Record:
    return Record(
        at=datetime(2026, 11, 21, 2, tzinfo=UTC) + timedelta(seconds=at_s),
        snapshot=Snapshot((), (), (), (Instance("T.1", "T", "tm1", 1.0, 1.0, warming),)),
        plan=Plan({}, {}),
        measured=Measured(),
        dials=Dials({}, {}),
        events=tuple(Event(kind) for kind in kinds),
        repeated=repeated,
        annotations={} if phase is None else {"phase": phase},
    )


def test_seconds_count_from_the_first_line() -> None:
    assert seconds([line(55), line(60), line(70)]) == (0.0, 5.0, 15.0)
    assert seconds([]) == ()


def test_consecutive_lines_of_a_name_are_a_phase_and_a_name_may_come_back() -> None:
    parts = phases([line(0, "calm"), line(5, "calm"), line(10, "overload"), line(15, "calm")])
    assert [(part.name, part.first, part.last, part.start_s) for part in parts] == [
        ("calm", 0, 1, 0.0),
        ("overload", 2, 2, 10.0),
        ("calm", 3, 3, 15.0),
    ]


def test_a_recording_without_phases_is_one_phase_without_a_name() -> None:
    (part,) = phases([line(0), line(5)])
    assert (part.name, part.first, part.last) == ("", 0, 1)
    assert phases([]) == ()


def test_a_phase_settles_some_time_after_its_start() -> None:
    lines = [line(t, "calm") for t in range(0, 45, 5)]
    assert settled(lines, phases(lines)[0], 20) == (4, 5, 6, 7, 8)
    assert settled(lines, phases(lines)[0], 100) == ()


@pytest.mark.parametrize("kind", ["move", "task-manager-up", "task-manager-lost", "query-restarted"])
def test_a_disturbance_puts_it_off(kind: str) -> None:
    lines = [line(t, "calm", *([kind] if t == 10 else [])) for t in range(0, 45, 5)]
    assert settled(lines, phases(lines)[0], 20) == (6, 7, 8)


@pytest.mark.parametrize("minimum", [0.2, 0.9])
def test_another_minimum_accuracy_of_a_query_puts_it_off(minimum: float) -> None:
    def with_minimum(record: Record, minimum: float) -> Record:
        tasks = (Task("S", (), None, None, None), Task("T", ("S",), None, 1, minimum))
        return replace(record, snapshot=replace(record.snapshot, tasks=tasks))

    lines = [with_minimum(line(t, "calm"), minimum if t >= 10 else 0.5) for t in range(0, 45, 5)]
    assert settled(lines, phases(lines)[0], 20) == (6, 7, 8)


def test_other_events_and_those_of_another_phase_do_not() -> None:
    lines = [line(0, "before", "move")] + [line(t, "calm", "starved") for t in range(5, 45, 5)]
    assert settled(lines, phases(lines)[1], 20) == (5, 6, 7, 8)


def test_cycles_with_an_instance_warming_up_and_repeated_lines_are_left_out() -> None:
    lines = [line(t, "calm", warming=t == 25) for t in range(0, 45, 5)]
    lines.append(line(45, "calm", repeated=True))
    assert is_warming_up(lines[5])
    assert settled(lines, phases(lines)[0], 20) == (4, 6, 7, 8)
