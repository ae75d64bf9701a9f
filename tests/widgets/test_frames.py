from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from qod_widgets import frames
from tests.widgets.recordings import taxi_drives

EDGES = ("TDSrc1", "TDSrc2", "TDSrc1>TDSnk1", "TDSrc1>TDSnk2", "TDSrc2>TDSnk1", "TDSrc2>TDSnk2")


def test_tasks_and_edges_begin_with_the_sources() -> None:
    lines = taxi_drives()
    for line in lines:
        line["snapshot"]["tasks"].reverse()
    assert frames.tasks(lines) == ("TDSrc2", "TDSrc1", "TDSnk2", "TDSnk1")
    assert frames.edges(lines)[:2] == ("TDSrc2", "TDSrc1")
    assert set(frames.edges(lines)) == set(EDGES)


def test_cpu_of_tasks_and_other_processes_adds_up_to_that_of_the_task_manager() -> None:
    lines = taxi_drives()
    cpu = frames.cpu(lines)
    assert list(cpu.columns) == ["t", "task_manager", "task", "cpu"]
    total = cpu.groupby(["t", "task_manager"])["cpu"].sum()
    for t, line in zip(range(0, 380, 5), lines, strict=True):
        for manager in line["snapshot"]["task_managers"]:
            assert total[t, manager["id"]] == pytest.approx(manager["cpu"])
    others = cpu[cpu["task"] == frames.OTHER]["cpu"]
    assert others.between(1.9, 3.1).all()


def test_cpu_of_processes_is_never_negative() -> None:
    (line, *_) = taxi_drives()
    line["snapshot"]["task_managers"][0]["cpu"] = 1.0  # measured at another instant than its instances
    assert frames.cpu([line])["cpu"].min() == 0.0


def test_a_task_manager_begins_when_it_joins_and_leaves_a_gap() -> None:
    lines = taxi_drives()[26:34]
    managers = lines[5]["snapshot"]["task_managers"]
    lines[5]["snapshot"]["task_managers"] = managers[:1]
    mine = frames.capacity(lines).query("task_manager == 'tm2'")
    assert list(mine["t"]) == [10, 15, 20, 25, 30, 35]
    assert mine["capacity"].isna().tolist() == [False, False, False, True, False, False]
    assert frames.cpu(lines).query("task_manager == 'tm2' and t == 25")["cpu"].sum() >= 0


def test_accuracy_is_measured_planned_and_minimum() -> None:
    lines = taxi_drives()
    lines[3]["measured"]["accuracy"]["TDSnk1"] = None
    accuracy = frames.accuracy(lines)
    at = accuracy[(accuracy["t"] == 100) & (accuracy["query"] == "TDSnk2")].set_index("kind")["accuracy"]
    assert at.to_dict() == {
        "measured": lines[20]["measured"]["accuracy"]["TDSnk2"],
        "planned": lines[20]["plan"]["desired"]["TDSnk2"],
        "minimum": 0.6,
    }
    assert len(accuracy) == len(lines) * 6 - 1


def test_throughput_reads_what_it_processes_and_drops() -> None:
    lines = taxi_drives()
    rates = frames.throughput(lines).query("source == 'TDSrc1' and t == 100").set_index("kind")["rate"]
    now, before = (lines[i]["measured"]["counts"]["TDSrc1"] for i in (20, 19))
    assert rates["arriving"] == lines[20]["measured"]["input_rate"]["TDSrc1"]
    assert rates["read"] == pytest.approx(sum(now[k] - before[k] for k in ("processed", "dropped")) / 5)
    assert rates["processed"] == pytest.approx((now["processed"] - before["processed"]) / 5)


def test_throughput_knows_no_read_rate_without_counts_nor_from_a_repeated_line() -> None:
    lines = taxi_drives()[:4]
    del lines[1]["measured"]["counts"]
    lines.append({**lines[-1], "at": "2026-11-21T02:00:17.000Z", "repeated": True})
    rates = frames.throughput(lines).query("kind == 'read' and source == 'TDSrc1'")
    assert list(rates["t"]) == [10, 15]
    assert rates["rate"].between(580, 620).all()  # the first over two periods


def test_lag_has_a_bound_where_the_input_rate_is_known() -> None:
    lines = taxi_drives()[:2]
    lines[1]["measured"]["input_rate"]["TDSrc1"] = None
    lag = frames.lag(lines).query("edge == 'TDSrc1'")
    assert lag["bound"].iloc[0] == 10 * lines[0]["measured"]["input_rate"]["TDSrc1"]
    assert pd.isna(lag["bound"].iloc[1])


def test_dropped_rows_by_source_and_stream() -> None:
    lines = taxi_drives()
    last = frames.dropped(lines).query("t == 375").set_index("edge")["rows"]
    assert last.to_dict() == lines[-1]["measured"]["dropped"]


def test_bands_cover_the_cycles_of_a_phase() -> None:
    bands = frames.phase_bands(taxi_drives())
    assert list(bands["phase"]) == ["calm", "overload", "second-task-manager", "heavier", "calm-again"]
    assert list(bands["start"])[1:] == list(bands["end"])[:-1]
    assert (bands["start"].iloc[0], bands["end"].iloc[-1]) == (0, 375)
    assert bands["start"].iloc[1] == 55  # the line at 60 s tells of the seconds from 55 on


def test_events_that_last_are_named_once_until_they_come_back() -> None:
    lines = taxi_drives()[:12]
    for index in (2, 3, 4, 8):
        lines[index]["events"] = [{"kind": "starved", "task_manager": "tm1"}, {"kind": "warm-up", "instance": "A.1"}]
    events = frames.events(lines)
    assert events.to_dict("list") == {"t": [10, 40], "kind": ["starved"] * 2, "label": ["tm1 starved"] * 2}


@pytest.mark.parametrize(
    ("event", "label"),
    [
        ({"kind": "move", "instance": "A.1", "from": "tm1", "to": "tm2"}, "A.1 → tm2"),
        ({"kind": "task-manager-up", "task_manager": "tm2"}, "tm2 joins"),
        ({"kind": "task-manager-lost", "task_manager": "tm2"}, "tm2 lost"),
        ({"kind": "query-failed", "instance": "A.1"}, "A.1 failed"),
        ({"kind": "query-stalled", "instance": "A.1"}, "A.1 stands still"),
        ({"kind": "query-restarted", "query": "A"}, "A restarted"),
        ({"kind": "dial-fallback"}, "dial-fallback"),
    ],
)
def test_labels_of_events(event: dict[str, Any], label: str) -> None:
    assert frames.event_label(event) == label


def test_moves_and_books_are_tables() -> None:
    lines = taxi_drives()
    moves = frames.moves(lines)
    assert list(moves["instance"]) == ["TDSnk1.2", "TDSnk1.1"]
    assert set(moves["to"]) == {"tm2"}
    books = frames.books(lines).set_index("edge")
    assert tuple(books.index) == EDGES
    assert (books["arrived"] == books[["processed", "dropped", "waiting", "unreported"]].sum(axis=1)).all()
    assert books.loc["TDSrc1"].to_dict() == lines[-1]["measured"]["counts"]["TDSrc1"]


def test_comparison_counts_from_the_start_of_the_overload() -> None:
    off = taxi_drives(controlled=False)
    frame = frames.comparison(taxi_drives(), off)
    assert frame.groupby("controller")["t"].agg(["min", "max"]).to_dict("list") == {"min": [0, 0], "max": [75, 75]}
    assert frame.query("controller == 'off'")["lag"].iloc[-1] == sum(off[-1]["measured"]["lag"].values())


def test_frames_without_observations_keep_their_columns() -> None:
    (line, *_) = taxi_drives()
    bare = [{**line, "measured": {}, "events": [], "plan": {}}]
    del bare[0]["phase"]
    for frame in (frames.lag, frames.dropped, frames.phase_bands, frames.events, frames.moves, frames.books):
        assert frame(bare).empty
        assert len(frame(bare).columns) >= 3
    assert set(frames.accuracy(bare)["kind"]) == {"minimum"}
