"""What a job's plan and its sink tell before it runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from qod_magics.application.streams.sink import Console, ForEachBatch, KafkaTopic, Sink
from qod_magics.errors import ApplicationError
from qod_magics.kafka.properties import LARGEST_RECORD
from qod_magics.spark.plans import pipeline, writing
from qod_magics.spark.plans.dial import DialBoard, DialReading
from qod_magics.spark.plans.job import Job, PlanFacts
from qod_magics.spark.plans.pipeline import Workshop
from qod_magics.spark.plans.writing import rejects_options
from tests.raising import breaks
from tests.spark.fakes import FakeRows

PLAIN = "== Physical Plan ==\n*(1) Project [id#1L]\n+- StreamingRelation rate, [id#1L]\n"
PYTHON = "== Physical Plan ==\nMapInPandas f(id#1L)#2, [id#3L], false\n+- StreamingRelation rate, [id#1L]\n"


@contextmanager
def build(spark: Any, inputs: Any) -> Iterator[Any]:
    yield spark


def facts(monkeypatch: pytest.MonkeyPatch, plan: str | None, sink: Sink) -> PlanFacts:
    monkeypatch.setattr(pipeline, "F", SimpleNamespace(struct=lambda *columns: None))
    rows: Any = FakeRows(plan)
    workshop = Workshop(rows, DialBoard("s"), DialReading.ROW, {}, {})
    return workshop.plan_facts(Job("T", "T.1", 0, (), build, (), (), sink, None, None))


@pytest.mark.parametrize(
    ("plan", "sink", "python"),
    [
        (PLAIN, Console(), False),
        (PYTHON, Console(), True),
        (PLAIN, ForEachBatch(print), True),
        (None, Console(), False),
        (None, ForEachBatch(print), True),
    ],
)
def test_a_query_runs_python_in_its_plan_or_in_its_sink(
    monkeypatch: pytest.MonkeyPatch, plan: str | None, sink: Sink, python: bool
) -> None:
    assert facts(monkeypatch, plan, sink).runs_python is python


def test_a_plan_of_which_operators_are_not_shown_may_keep_state_and_run_python(monkeypatch: pytest.MonkeyPatch) -> None:
    for plan in (f"{PLAIN[:40]}... 51 more characters", "Truncated plan of 91 characters"):
        cut = facts(monkeypatch, plan, Console())
        assert (cut.keeps_state, cut.runs_python) == (True, True)
    whole = facts(monkeypatch, PLAIN.replace("id#1L]", "id#1L, ... 30 more fields]"), Console())
    assert (whole.keeps_state, whole.runs_python) == (False, False), "only lists are cut"


class Expression(str):
    """A column as text."""

    def alias(self, name: str) -> Expression:
        return Expression(f"{self} AS {name}")


def columns_sent(monkeypatch: pytest.MonkeyPatch, **job: Any) -> list[str]:
    """What the writer of a Kafka sink selects of rows with the columns zone and trips."""
    functions = SimpleNamespace(
        col=Expression,
        lit=lambda value: Expression(repr(value)),
        count=lambda column: column,
        struct=lambda *columns: Expression(", ".join(columns)),
        to_json=lambda column, _: Expression(f"json({column})"),
    )
    monkeypatch.setattr(writing, "F", functions)
    monkeypatch.setattr(writing.OutputWriter, "_to_kafka", lambda _, records, topic: records)
    rows: Any = SimpleNamespace(columns=["zone", "trips"], select=lambda *columns: list(columns))
    rows.observe = lambda *_: rows
    workshop = Workshop(None, DialBoard("s"), DialReading.ROW, {}, {})  # type: ignore[arg-type]
    sent: Any = workshop.writer(Job("T", "T.2", 1, (), build, (), (), KafkaTopic("out"), None, None, **job), rows)
    found: list[str] = sent
    return found


@pytest.mark.parametrize(
    ("job", "key"),
    [
        ({}, []),
        ({"groups": ("zone",)}, ["json(`zone`) AS key"]),
        ({"groups": ("zone",), "apart": True}, ["json(`zone`, 2 AS _instance) AS key"]),
        ({"groups": ()}, ["'{}' AS key"]),
        ({"groups": (), "apart": True}, ["json(2 AS _instance) AS key"]),
    ],
)
def test_records_of_a_kafka_sink_have_their_group_as_the_key(
    monkeypatch: pytest.MonkeyPatch, job: dict[str, Any], key: list[str]
) -> None:
    sent = columns_sent(monkeypatch, **job)
    assert sent == ["json(`zone`, `trips`) AS value", "'out' AS topic", *key]


def test_a_reject_may_be_as_large_as_other_records() -> None:
    assert int(json.loads(rejects_options({}))["max.request.size"]) == LARGEST_RECORD
    own = json.loads(rejects_options({"kafka.max.request.size": "9", "kafka.bootstrap.servers": "h:1"}))
    assert (own["max.request.size"], own["bootstrap.servers"]) == ("9", "h:1")


@pytest.mark.parametrize("reading", list(DialReading))
@pytest.mark.parametrize("ours", [True, False])
def test_rejects_are_sent_where_sql_may_call_our_class(reading: DialReading, ours: bool) -> None:
    workshop = Workshop(None, DialBoard("s"), reading, {}, {}, ours)  # type: ignore[arg-type]
    if ours and reading.reflects:
        workshop.check_rejects("topic:bad")
        return
    with pytest.raises(ApplicationError, check=breaks("local", option="--malformed")):
        workshop.check_rejects("topic:bad")
