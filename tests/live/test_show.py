"""What `%qod show` has of real queries: the handle's results, with intervals, until the query is stopped."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

from qod_magics.kafka.reading import Tail
from qod_magics.results.drawing import ANY
from qod_magics.session.handle import StreamHandle
from qod_magics.session.session import Session
from qod_magics.session.show import ShownResults, show_sample
from tests.live.applications import all_read, cell, rows_in, turn
from tests.live.conftest import eventually, new_topic, produce
from tests.texts import tells

SCHEMA = "--schema 'zone LONG, fare DOUBLE, at TIMESTAMP' --starting earliest"
PER_ZONE = """
from qod_magics import estimate as est
windows = fares.withWatermark("at", "1 minute").groupBy(F.window("at", "10 seconds").alias("w"), "zone")
windows.agg(est.count().alias("trips"), F.sum("fare").alias("kept"))
"""


def fares(first: int, last: int) -> Iterator[dict[str, Any]]:
    """A hundred rows each second of event time, of three zones in turn."""
    for i in range(first, last):
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(1.8e9 + i // 100))
        yield {"zone": i % 3, "fare": 10.0 + i % 7, "at": at}


def newest(handle: StreamHandle) -> dict[tuple[str, str], tuple[float, float, float]]:
    """By window and zone, value, low and high of the trips in the handle's results as they were written last: the most,
    since they only grow."""
    start = F.date_format("w.start", "yyyy-MM-dd HH:mm:ss")
    rows = handle.dataframe().select(start, F.col("zone").cast("string"), "trips.*").collect()
    return {(row[0], row[1]): (row[2], row[3], row[4]) for row in sorted(rows, key=lambda row: row[2])}


def open_view(shown: ShownResults, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Open its view as a page does; what is sent to it."""
    sent: list[dict[str, Any]] = []
    monkeypatch.setattr(shown.view, "send", lambda message, buffers=None: sent.append(message))
    shown.view._heard(shown.view, {"kind": "open", "view": "a"}, [])
    return sent


def items(sent: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """What a page shows that was sent this."""
    found: dict[str, dict[str, Any]] = {}
    for message in list(sent):
        if message["fresh"]:
            found.clear()
        for gone in message["gone"]:
            del found[gone]
        found.update(message["items"])
    return list(found.values())


def on_show(sent: Iterable[dict[str, Any]]) -> dict[tuple[str, str], tuple[float, float, float]]:
    """The same as `newest` of a page that was sent this."""
    return {(i["name"][:19], i["group"]): (i["value"], i["low"], i["high"]) for i in items(sent) if "cells" not in i}


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "qod-results"]


@pytest.mark.smoke
def test_a_view_has_the_handles_results_with_intervals_until_the_query_is_stopped(
    brief: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, sent_rows = new_topic(brief), 4000
    turn(brief, {(None, "fares"): 0.4})
    cell(brief, f"fares --topic {topic} {SCHEMA} --no-fuse")
    handle = cell(brief, "per_zone --from fares -p 1 -a 0.1 --mode microbatch", PER_ZONE)
    shown = handle.show(save=tmp_path / "kept.jsonl")
    assert "no rows" in repr(shown)
    sent = open_view(shown, monkeypatch)
    for first in range(0, sent_rows, sent_rows // 2):  # windows are written anew
        produce(brief, topic, fares(first, first + sent_rows // 2))
        eventually(lambda n=first + sent_rows // 2: all_read(brief, "fares", n), what="all rows are read")  # type: ignore[misc]
    through = brief.runtime.observe().measured.counts["fares"].processed
    eventually(lambda: all_read(brief, "fares>per_zone", through), what="all of the stream")
    assert 0.3 * sent_rows < through < 0.5 * sent_rows

    expected = newest(handle)
    assert len(expected) == 3 * sent_rows / 1000
    eventually(lambda: on_show(sent) == expected, what=lambda: f"{expected} on show, not {on_show(sent)}")
    assert all(low < value < high for value, low, high in expected.values())
    covered = sum(low <= 334 and high >= 333 for _, low, high in expected.values())
    assert covered >= len(expected) - 4, "intervals of 95 % cover most of the counts"
    first = next(message for message in sent if message.get("form") == "line")
    assert first["fresh"]
    assert "minimum 10.0%" in sent[-1]["facts"][0]
    assert tells(sent[-1]["facts"][1], "trips estimated", "groups")
    saved = show_sample(tmp_path / "kept.jsonl", ANY).look()
    assert on_show([{"fresh": True, "gone": [], **saved}]) == expected

    assert threads() == ["qod-results"]
    brief.stop("per_zone")
    eventually(lambda: shown.view.ended and not threads(), what="the end of the view")
    assert "per_zone" in sent[-1]["state"]
    assert on_show(sent) == expected, "what was there stays"


def test_single_rows_are_a_table_and_a_query_that_is_replaced_begins_anew(brief: Session) -> None:
    topic = new_topic(brief)
    handle = cell(
        brief,
        f"single --topic {topic} {SCHEMA} -p 1",
        "source.where('zone = 1')",
    )
    produce(brief, topic, fares(0, 3000))
    eventually(lambda: all_read(brief, "single", 3000), what="all rows")
    shown = handle.show(rows=5)
    page = shown.look()
    assert (page["form"], len(page["items"])) == ("table", 5)
    assert tells(page["facts"][-1], 5, "1,000")
    assert {item["cells"][0] for item in page["items"].values()} == {"1"}
    cell(brief, f"single --topic {topic} {SCHEMA} -p 1", "source.where('zone = 2').select('zone', 'at')")
    assert shown.look()["items"] == {}
    produce(brief, topic, fares(3000, 3300))
    eventually(lambda: all_read(brief, "single", 3300), what="all rows")
    page = shown.look()
    assert [name for name, _ in page["columns"]] == ["zone", "at"]
    assert {item["cells"][0] for item in page["items"].values()} == {"2"}


def test_rows_in_a_kafka_topic_are_shown_too_and_bars_stand_for_groups(brief: Session, topic: str) -> None:
    out = new_topic(brief, partitions=3)
    produce(brief, out, [{"zone": 8, "trips": 1}] * 3, partitions=3)  # of a query before it
    sql = "SELECT zone, count(*) AS trips, est_sum(fare) AS total FROM source GROUP BY zone"
    handle = cell(brief, f"totals --topic {topic} {SCHEMA} -p 1 --mode microbatch --sink kafka:{out} --sql", sql)
    for first in range(0, 700, 100):  # each group is written anew
        before = rows_in(brief, out)
        produce(brief, topic, fares(first, first + 100))
        eventually(lambda n=first + 100: all_read(brief, "totals", n), what="all rows")  # type: ignore[misc]
        eventually(lambda n=before: rows_in(brief, out) > n, what="rows in the topic")  # type: ignore[misc]
    with closing(Tail(brief.kafka, out, 1000)) as tail:
        written = {(json.loads(record.value)["zone"], record.key, record.partition) for record in tail.read().records}
    groups = sorted((zone, key) for zone, key, _ in written if zone != 8)
    assert groups == [(zone, b'{"zone":%d}' % zone) for zone in range(3)], "all rows of a group are in one partition"
    page = handle.show().look()
    assert (page["form"], page["y"], page["x"]) == ("bar", "total", "zone")
    totals = {zone: sum(row["fare"] for row in fares(0, 700) if row["zone"] == zone) for zone in range(3)}
    assert {bar["x"]: bar["value"] for bar in page["items"].values()} == {
        str(zone): total for zone, total in totals.items()
    }
    assert all(bar["low"] == bar["value"] == bar["high"] for bar in page["items"].values())


@pytest.mark.parametrize("sink", ["memory", "kafka"])
def test_instances_that_each_have_their_own_rows_of_a_group_are_told_apart(brief: Session, sink: str) -> None:
    topic = new_topic(brief, partitions=2)
    sink = {"memory": "memory", "kafka": f"kafka:{topic}-out"}[sink]
    sql = "SELECT zone, count(*) AS trips FROM source GROUP BY zone"
    handle = cell(brief, f"halves --topic {topic} {SCHEMA} -p 1 -n 2 --mode microbatch --sink {sink} --sql", sql)
    produce(brief, topic, fares(0, 600), partitions=2)
    eventually(lambda: all_read(brief, "halves", 600), what="all rows")
    page = handle.show().look()
    assert page["x"] == "zone, _instance"
    assert {bar["x"]: bar["value"] for bar in page["items"].values()} == {
        f"{zone}, {instance}": 100 for zone in range(3) for instance in (1, 2)
    }
