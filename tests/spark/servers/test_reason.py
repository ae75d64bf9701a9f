from __future__ import annotations

import pytest

from qod_magics.spark.servers.connection import MOST, reason
from tests.texts import tells

OF_A_CALL = """<_MultiThreadedRendezvous of RPC that terminated with:
\tstatus = StatusCode.UNAVAILABLE
\tdetails = "{}"
\tdebug_error_string = "UNAVAILABLE: more of the same"
>"""


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:1: "
            "Failed to connect to remote host: Connection refused",
            "Failed to connect to remote host: Connection refused",
        ),
        ("last error: ipv6:%5B::1%5D:15002: Connection reset", "Connection reset"),
        ("Invalid token", "Invalid token"),
    ],
)
def test_a_failed_call_is_told_in_the_words_of_grpc(said: str, told: str) -> None:
    assert reason(RuntimeError(OF_A_CALL.format(said))) == told


def test_details_elsewhere_are_just_text() -> None:
    assert reason(RuntimeError('unresolved\n\tdetails = "of the plan"')) == "unresolved"


def test_an_error_of_a_function_in_python_is_told_without_its_traceback() -> None:
    text = """[STREAM_FAILED] An exception was thrown from the Python worker: Traceback (most recent call last):
  File "<recipe>", line 1, in <lambda>
    return 1 // k
           ~~^^~~

ZeroDivisionError: integer division or modulo by zero
 SQLSTATE: 38000
=== Streaming Query ===
"""
    assert tells(reason(RuntimeError(text)), "[STREAM_FAILED]", "Python worker", "ZeroDivisionError")


def test_the_stack_of_the_jvm_is_left_out() -> None:
    assert reason(RuntimeError("JVM stacktrace:\n\n  [BAD] it broke\n\tat org.apache")) == "[BAD] it broke"


def test_the_first_cause_is_told_too() -> None:
    text = """[STREAM_FAILED] Query failed: no client.

JVM stacktrace:
org.apache.spark.sql.streaming.StreamingQueryException
\tat org.apache.spark
Caused by: org.apache.kafka.common.KafkaException: Failed to construct a client
\tat org.apache.kafka
Caused by: org.apache.kafka.common.KafkaException: Class no.such.Reporter cannot be found
\tat org.apache.kafka
"""
    told = "[STREAM_FAILED] Query failed: no client. (KafkaException: Class no.such.Reporter cannot be found)"
    assert reason(RuntimeError(text)) == told


def test_a_cause_that_is_told_already_is_not_told_twice() -> None:
    text = "[FAILED] division by zero\n\tat org.apache\nCaused by: java.lang.ArithmeticException: division by zero"
    assert reason(RuntimeError(text)) == "[FAILED] division by zero"


def test_without_a_text_the_kind_of_error_is_told() -> None:
    assert reason(ZeroDivisionError()) == "ZeroDivisionError"


def test_a_long_line_is_cut() -> None:
    assert len(reason(RuntimeError("x" * 10_000))) == MOST
