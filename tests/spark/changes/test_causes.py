"""Failures that a retry can't pass, and those that it may. The messages are Spark's own, shortened."""

from __future__ import annotations

import pytest
from pyspark.sql.types import IntegerType, StructField, StructType

from qod_magics.lifecycle.events import Cause
from qod_magics.lifecycle.query import final_text, pattern_of
from qod_magics.spark.changes.lifecycle import DEFAULT_LIMIT, cause_of, explained, limit_of
from qod_magics.spark.plans.job import PlanFacts
from qod_magics.spark.queries.instance import Instance
from tests.spark.fakes import instance

CLIENT = (
    "(STREAM_FAILED) Job aborted due to stage failure: Task 0 in stage 47.0 failed 1 times: "
    "org.apache.kafka.common.errors.RecordTooLargeException: The message is 1504602 bytes when serialized which is "
    "larger than 1048576, which is the value of the max.request.size configuration."
)
BROKER = (
    "RecordTooLargeException: The request included a message larger than the max message size the server will accept."
)
CAST = (
    "[CAST_INVALID_INPUT] The value 'x' of the type STRING cannot be cast to INT. Lost task 0.0 in stage {}.0 (TID {})"
)
LOST = "Kafka is not reachable: connection refused"


def test_a_row_that_is_too_large_tells_how_large_it_may_be() -> None:
    assert 1_000_000 < (limit_of(CLIENT) or 0) < 1_048_576
    assert 1_000_000 < (limit_of(BROKER) or 0) < DEFAULT_LIMIT
    assert limit_of(LOST) is None


@pytest.mark.parametrize("why", [CLIENT, BROKER, "[USER_RAISED_EXCEPTION] malformed value: x SQLSTATE: P0001"])
def test_rows_that_cannot_be_sent_or_that_end_the_query_fail_again(why: str) -> None:
    assert cause_of(why) is Cause.CERTAIN


PYTHON = "(STREAM_FAILED) [PYTHON_EXCEPTION] An exception was thrown from the Python worker: {}"


@pytest.mark.parametrize(
    "why",
    [
        CAST,
        "[USER_RAISED_EXCEPTION] a poisoned row SQLSTATE: P0001",
        PYTHON.format("ZeroDivisionError: division by zero"),
        PYTHON.format("KeyError: 'zone'"),
    ],
)
def test_values_fail_again_unless_what_reads_them_is_mended(why: str) -> None:
    assert cause_of(why) is Cause.ROWS


@pytest.mark.parametrize(
    "why",
    [
        LOST,
        PYTHON.format("ConnectionResetError: [Errno 104]"),
        PYTHON.format("requests.exceptions.ReadTimeout: slow"),
        PYTHON.format("urllib.error.HTTPError: HTTP Error 503"),
    ],
)
def test_failures_of_the_cluster_or_of_another_server_depend_on_no_row(why: str) -> None:
    assert cause_of(why) is Cause.MAY_PASS


UNREPORTED = (
    '(STREAM_FAILED) Cannot invoke "scala.collection.IterableOps.map(scala.Function1)" because the return value of '
    '"scala.Option.get()" is null'
)


def test_a_batch_that_sparks_connector_can_not_report_says_which_connector_can() -> None:
    assert cause_of(UNREPORTED) is Cause.MAY_PASS
    told = explained(UNREPORTED, instance())
    assert told.startswith(UNREPORTED)
    assert "4.1.3" in told
    assert "\n" not in told


def test_a_null_of_another_function_is_not_taken_for_that_fault_of_the_connector() -> None:
    why = UNREPORTED.replace("scala.Option.get()", "com.acme.Sink.rows()")
    assert explained(why, instance()) == why


def test_two_tries_of_the_same_rows_fail_by_the_same_pattern() -> None:
    assert pattern_of(CAST.format(3, 7)) == pattern_of(CAST.format(1, 12))
    assert pattern_of(CAST.format(3, 7)) != pattern_of(PYTHON.format("KeyError: 'zone'"))


def test_how_often_rows_may_have_been_written_is_said() -> None:
    assert "once" in final_text("x", 1)
    assert "twice" in final_text("x", 2)
    assert "3 times" in final_text("x", 3)


def of_schema() -> Instance:
    made = instance()
    made.facts = PlanFacts(keeps_state=False, schemas={"t": StructType([StructField("a", IntegerType())])})
    return made


@pytest.mark.parametrize(
    ("value", "because"),
    [
        ('{"a": 5.0}', "column a is INT, and 5.0 is not (DOUBLE reads it)"),
        ("bad", "it is no JSON"),
        ('{"a": 5.0, "' + "b" * 200, None),
        ("at is outside of the years 1 to 9999: -62135596800000001", None),
    ],
)
def test_a_value_that_ends_a_query_is_explained(value: str, because: str | None) -> None:
    why = f"(STREAM_FAILED) [USER_RAISED_EXCEPTION] malformed value: {value} SQLSTATE: P0001"
    assert explained(why, of_schema()) == (why if because is None else f"{why}: {because}")


def test_other_failures_are_as_they_are() -> None:
    assert explained(CAST, of_schema()) == CAST
