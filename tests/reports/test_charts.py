"""The charts, rendered for real: what a reader finds in the picture."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import altair as alt
import pytest

from qod_magics.controller.record import Records
from qod_magics.core.snapshot import replace
from qod_magics.reports import charts, tables
from qod_widgets.charts import GREY, task_colours
from tests.recordings.taxi_drives import records, taxi_drives

COLOURS = task_colours(["TDSrc1", "TDSrc2", "TDSnk1", "TDSnk2"])
CHARTS: dict[str, Callable[[Records], alt.VConcatChart]] = {
    "cpu": charts.cpu_chart,
    "accuracy": charts.accuracy_chart,
    "latency": charts.latency_chart,
    "throughput": charts.throughput_chart,
    "lag": charts.lag_chart,
    "dropped": charts.dropped_chart,
}


@cache
def drawn(name: str) -> ET.Element:
    return ET.fromstring(charts.svg(CHARTS[name](records(taxi_drives()))))


def texts(picture: ET.Element) -> list[str]:
    return ["".join(text.itertext()) for text in picture.iter("{http://www.w3.org/2000/svg}text")]


def paints(picture: ET.Element) -> set[str]:
    return {node.get(key, "") for node in picture.iter() for key in ("fill", "stroke")}


@pytest.mark.parametrize("name", CHARTS)
def test_every_chart_has_time_phases_and_events_at_a_thousand_px(name: str) -> None:
    picture = drawn(name)
    assert 940 <= float(picture.attrib["width"]) <= 1010
    words = texts(picture)
    assert len([word for word in words if word.endswith("(s)")]) == 1
    assert {"calm", "overload", "second-task-manager", "heavier", "calm-again"} <= set(words)
    assert {"tm2 joins", "TDSnk1.2 → tm2", "TDSnk1.1 → tm2"} <= set(words)
    assert {"0", "100", "360"} <= set(words)


def test_cpu_is_stacked_by_task_in_a_panel_for_each_task_manager() -> None:
    words, colours = texts(drawn("cpu")), paints(drawn("cpu"))
    assert {"tm1", "tm2"} <= set(words)
    assert len([word for word in words if word.startswith("CPU")]) == 2
    assert words.count("capacity 100 %") == 2
    assert {*COLOURS, "other processes"} <= set(words)
    assert {*COLOURS.values(), GREY} <= colours


def test_latency_has_a_panel_for_each_query() -> None:
    words, colours = texts(drawn("latency")), paints(drawn("latency"))
    assert {"TDSnk1", "TDSnk2"} <= set(words)
    assert any(word.startswith("95 %") for word in words)
    assert {COLOURS["TDSnk1"], COLOURS["TDSnk2"]} <= colours


def test_accuracy_has_a_panel_and_a_colour_for_each_query() -> None:
    words, colours = texts(drawn("accuracy")), paints(drawn("accuracy"))
    assert {"TDSnk1", "TDSnk2", "measured", "planned", "minimum"} <= set(words)
    assert {COLOURS["TDSnk1"], COLOURS["TDSnk2"]} <= colours
    assert COLOURS["TDSrc1"] not in colours


def test_throughput_has_a_panel_and_a_colour_for_each_source() -> None:
    words, colours = texts(drawn("throughput")), paints(drawn("throughput"))
    assert {"TDSrc1", "TDSrc2", "arriving", "read", "processed"} <= set(words)
    assert words.count("rows/s") == 2
    assert {COLOURS["TDSrc1"], COLOURS["TDSrc2"]} <= colours


def test_lag_has_a_panel_for_each_source_and_stream_with_its_bound() -> None:
    words = texts(drawn("lag"))
    assert {"TDSrc1", "TDSrc2", "TDSrc1 → TDSnk2", "TDSrc2 → TDSnk1"} <= set(words)
    assert any(word.startswith("2 periods") for word in words)
    assert words.count("rows") == 6


def test_dropped_rows_name_each_source_and_stream() -> None:
    words = texts(drawn("dropped"))
    assert {"rows dropped", "TDSrc1", "TDSrc1 → TDSnk1", "TDSrc2 → TDSnk2"} <= set(words)


def test_the_comparison_shows_both_on_the_same_axes() -> None:
    on, off = taxi_drives(), taxi_drives(controlled=False)
    picture = ET.fromstring(charts.svg(charts.comparison_chart(records(on), records(off))))
    words = texts(picture)
    last = sum(off[-1]["measured"]["lag"].values())
    assert {"on", "off", f"{last:,} rows"} <= set(words)
    assert len([word for word in words if word.endswith("(rows)")]) == 1


@pytest.mark.parametrize("name", CHARTS)
def test_a_recording_with_nothing_but_snapshots_is_drawn(name: str) -> None:
    lines: list[dict[str, Any]] = [{**line, "measured": {}, "events": []} for line in taxi_drives()[:3]]
    for line in lines:
        del line["phase"]
    assert charts.svg(CHARTS[name](records(lines))).startswith("<svg")


def test_names_are_text_and_never_markup() -> None:
    lines = taxi_drives()[:3]
    for line in lines:
        for manager in line["snapshot"]["task_managers"]:
            manager["id"] = "<script>alert(1)</script>&"
        for instance in line["snapshot"]["instances"]:
            instance["task_manager"] = "<script>alert(1)</script>&"
    picture = ET.fromstring(charts.svg(charts.cpu_chart(records(lines))))
    assert "<script>alert(1)</script>&" in texts(picture)
    assert not [node for node in picture.iter() if node.tag.endswith("script")]


def test_more_rows_than_altair_s_limit_are_drawn_and_the_limit_stays() -> None:
    start = datetime(2026, 11, 21, tzinfo=UTC)
    many = [
        replace(record, at=start + timedelta(seconds=5 * (60 * hour + n)))
        for hour in range(18)
        for n, record in enumerate(records(taxi_drives()[:60]))
    ]
    assert len(tables.cpu(many).query("task_manager == 'tm1'")) > 5_000
    assert charts.svg(charts.cpu_chart(many)).startswith("<svg")
    with pytest.raises(alt.MaxRowsError):
        charts.cpu_chart(many).to_dict()
