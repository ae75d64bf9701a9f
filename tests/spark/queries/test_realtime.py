"""Spark 4.3's own refusals, in few words."""

from __future__ import annotations

import pytest

from qod_magics.spark.queries.modes import not_realtime, refuses_realtime
from tests.texts import tells

HEAD = "[STREAMING_REAL_TIME_MODE.{}] Streaming real-time mode has the following limitation: "
TAIL = (
    " is not in the operator allowlist for Real-Time Mode. To bypass this check, set "
    "spark.sql.streaming.realTimeMode.allowlistCheck to false. By changing this, you agree to run the query at your "
    "own risk. SQLSTATE: 0A000"
)
OPERATOR = HEAD.format("OPERATOR_OR_SINK_NOT_IN_ALLOWLIST") + "The operator(s): org.apache.spark.sql.execution."


@pytest.mark.parametrize(
    ("why", "told"),
    [
        (OPERATOR + "python.ArrowEvalPythonExec" + TAIL, "Python functions"),
        (OPERATOR + "streaming.operators.stateful.join.StreamingSymmetricHashJoinExec" + TAIL, "joins of two streams"),
        (
            OPERATOR + "python.BatchEvalPythonExec, org.apache.spark.sql.execution.SortExec" + TAIL,
            "Python functions or Sort",
        ),
        (
            HEAD.format("INPUT_STREAM_NOT_SUPPORTED")
            + "The input stream org.apache.spark.sql.execution.streaming.sources."
            "RateStreamMicroBatchStream is not supported in Real-time Mode. SQLSTATE: 0A000",
            "RateStream",
        ),
    ],
)
def test_a_refusal_names_what_is_refused(why: str, told: str) -> None:
    assert tells(not_realtime(why), told)


def test_other_reasons_pass_as_they_are() -> None:
    assert not_realtime("--mode microbatch") == "--mode microbatch"
    other = "[X] org.apache.spark.SparkException: real-time mode went wrong"
    assert not_realtime(other) == other


@pytest.mark.parametrize(
    "why",
    [
        OPERATOR + "SortExec" + TAIL,
        f"[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: {OPERATOR}SortExec{TAIL}",
        "[INVALID_STREAMING_REAL_TIME_MODE_TRIGGER_INTERVAL] The real-time trigger interval is set to 5 ms.",
        # sources, of options of theirs
        "java.lang.UnsupportedOperationException: minpartitions is not compatible with real time mode",
        "java.lang.IllegalArgumentException: minPartitions is not supported in real-time mode",
        TypeError("DataStreamWriter.trigger() got an unexpected keyword argument 'realTime'"),
    ],
)
def test_a_refusal_is_told_by_its_words(why: Exception | str) -> None:
    assert refuses_realtime(why)


@pytest.mark.parametrize(
    "why",
    [
        "TimeoutException: Topic real-time-events not present in metadata after 60000 ms.",
        "UnknownTopicOrPartitionException: realTime",
        "[TABLE_OR_VIEW_NOT_FOUND] The table or view `REAL_TIME` cannot be found.",
        "[UNRESOLVED_COLUMN] A column with name `realTime` cannot be resolved.",
    ],
)
def test_a_name_in_a_failure_makes_it_no_refusal(why: str) -> None:
    """The query would be moved to micro-batches for good, and asked-for real-time mode be called impossible."""
    assert not refuses_realtime(why)
