"""Framed Avro beside its JSON twin, on a session whose task managers have Spark's Avro package."""

from __future__ import annotations

import json
from typing import Any

import pytest
from confluent_kafka import Producer

from qod_magics.core.runtime import Count
from qod_magics.errors import ApplicationError
from qod_magics.session.session import Session
from tests.formats.registry_server import Registry, served
from tests.formats.values import TRIP, WIDER, framed, trip
from tests.live.applications import cell, rows, turn
from tests.live.conftest import PATIENCE_S, eventually, new_topic
from tests.live.watching import books
from tests.raising import breaks

_COLUMNS = "zone INT, fare DOUBLE, note STRING"
_RECIPE = "source.where('fare >= 0').select('zone', 'fare', '_weight')"


def check_framed_avro(session: Session) -> None:
    """Rows, weights and counts are those of the twin, through a schema that comes later and one that never comes."""
    avro, twin = new_topic(session), new_topic(session)
    with served() as registry:
        first = registry.register(f"{avro}-value", TRIP)
        options = "--starting earliest -p 1 --mode microbatch"
        cell(session, f"twin --topic {twin} --schema '{_COLUMNS}' {options}", _RECIPE)
        cell(session, f"avro --topic {avro} --format avro --registry {registry.url} {options}", _RECIPE)
        try:
            values = [(zone, zone / 2, None if zone % 3 else "n") for zone in range(-50, 150)]
            send(session, twin, [_json(*each) for each in values] + [b"{", None])
            send(session, avro, [framed(first, trip(*each)) for each in values] + [framed(first, b"\x80"), None])
            alike(session, len(values) + 2)
            _written(session, registry, avro)
            _later(session, registry, avro, twin)
            _shed(session, first, avro)
        finally:
            session.stop("avro")
            session.stop("twin")


def _written(session: Session, registry: Registry, topic: str) -> None:
    """What a query writes as Avro, others read by the schema that it has registered, or by one that they are given."""
    framed_out, bare = new_topic(session), new_topic(session)
    schema = (
        '{"type":"record","name":"r","fields":[{"name":"zone","type":"int"},{"name":"fare","type":["double","null"]}]}'
    )
    options = f"--starting earliest -p 1 --mode microbatch --topic {topic} --format avro --registry {registry.url}"
    to = f"--sink kafka:{framed_out} --sink-option format=avro registry={registry.url}"
    said = cell(session, f"out {options} {to}", "source.select('zone', 'fare')").said
    assert f"{framed_out}-value" in said
    with pytest.raises(ApplicationError, check=breaks("columns")):
        cell(session, f"bare {options} --sink kafka:{bare} --sink-option format=avro 'schema={schema}'", "source")
    cell(
        session,
        f"bare {options} --sink kafka:{bare} --sink-option format=avro 'schema={schema}'",
        "source.select('zone', 'fare')",
    )
    try:
        for name in ("out", "bare"):
            eventually(lambda n=name: _read(session, n) == _read(session, "avro"), what=session.status)  # type: ignore[misc]
        with pytest.raises(ApplicationError):
            session.show("out")
        once = books(session)["out"]
        wrote = once.processed - once.malformed - once.tombstones
    finally:
        session.stop("out")
        session.stop("bare")
    read = "--starting earliest -p 1 --mode microbatch --format avro"
    for name, line in (("out", f"{framed_out} {read} --registry {registry.url}"), ("bare", f"{bare} {read}")):
        given = f"--schema '{schema}'" if name == "bare" else ""
        cell(session, f"back --topic {line} {given}", "source")
        try:
            eventually(lambda: _read(session, "back") == wrote, what=session.status)
            assert books(session)["back"].malformed == 0
            eventually(lambda: len(rows(session, "back")) == wrote, what="the rows")
            found = sorted((row["zone"], row["fare"]) for row in rows(session, "back"))
            assert found == [(zone, zone / 2) for zone in range(-50, 150)]
        finally:
            session.stop("back")


def _later(session: Session, registry: Registry, avro: str, twin: str) -> None:
    """A new version is read, once the registry answers; an unknown id is malformed, and says why."""
    wider = registry.register(None, WIDER)  # under no subject: a plan learns it from records
    registry.broken = True
    more = [(zone, zone / 4, "later") for zone in range(100)]
    send(session, twin, [_json(*each) for each in more] + [b"{"] * 20)
    send(session, avro, [framed(wider, trip(*each, "x")) for each in more] + [framed(999, b"\2")] * 20)
    eventually(lambda: "schema registry" in session.runtime.instances["avro.1"].failure, what=session.status)
    registry.broken = False
    alike(session, 200 + 2 + 120)
    assert "schema 999" in session.status()


def _shed(session: Session, id: int, topic: str) -> None:
    """Rows are dropped before they are parsed, and those kept have weights."""
    session.pause()
    turn(session, {(None, "avro"): 0.5})
    before = _read(session, "avro")
    send(session, topic, [framed(id, trip(zone, 1000.0, None)) for zone in range(200)])
    eventually(lambda: _read(session, "avro") == before + 200, what=session.status)
    kept = 200 - books(session)["avro"].dropped
    assert 50 < kept < 150

    def weights() -> list[float]:
        return [row["_weight"] for row in rows(session, "avro") if row["fare"] == 1000.0]

    eventually(lambda: weights() == [2.0] * kept, what=lambda: f"{kept} rows of weight 2, got {weights()}")


def alike(session: Session, rows_read: int) -> None:
    """Wait until both have read so many records, and compare them."""
    for name in ("twin", "avro"):
        eventually(lambda n=name: _read(session, n) == rows_read, what=session.status)  # type: ignore[misc]
    counts = books(session)
    assert counts["avro"].malformed == counts["twin"].malformed > 0
    assert counts["avro"].tombstones == counts["twin"].tombstones == 1

    def found(name: str) -> list[str]:
        return sorted({json.dumps(each, sort_keys=True) for each in rows(session, name)})

    eventually(lambda: found("avro") == found("twin"), what="the same rows")


def _read(session: Session, name: str) -> int:
    count = books(session).get(name, Count())
    return count.processed + count.dropped


def send(session: Session, topic: str, values: list[Any]) -> None:
    """Write values to a topic."""
    producer = Producer({**session.kafka.client_config(), "enable.idempotence": True})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(PATIENCE_S) == 0


def _json(zone: int, fare: float, note: str | None) -> bytes:
    return json.dumps({"zone": zone, "fare": fare, "note": note}).encode()
