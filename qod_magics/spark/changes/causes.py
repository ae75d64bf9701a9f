"""Find the cause of a failed query: whether the same rows will fail again. Pure.

A retry reads the batch once more, and writes the rows in front of the failing one once more. It is for failures that
may pass: of the broker, of the network, of a task manager. Rows that can't be parsed, cast or sent fail each time.
"""

from __future__ import annotations

import re

from qod_magics.application.streams.rules import BROKEN
from qod_magics.formats.format import why_malformed
from qod_magics.formats.schema_registry import SILENT
from qod_magics.lifecycle.events import Cause
from qod_magics.machine.releases import CONNECTOR_FAULT
from qod_magics.spark.plans.parsing import FAILS, JSON, OUT_OF_RANGE, SHOWN
from qod_magics.spark.plans.writing import TOO_LARGE
from qod_magics.spark.queries.instance import Instance

#: Spark's error classes of values, not of the cluster: these depend on the rows alone.
_OF_VALUES = re.compile(
    r"\[(?:CAST_INVALID_INPUT|CAST_OVERFLOW\w*|CANNOT_PARSE_\w+|DIVIDE_BY_ZERO|REMAINDER_BY_ZERO|\w*ARITHMETIC_OVERFLOW|"
    r"NUMERIC_VALUE_OUT_OF_RANGE|INVALID_ARRAY_INDEX\w*|INVALID_INDEX\w*|DATETIME_OVERFLOW|INVALID_DATETIME_\w+|"
    r"INVALID_PARAMETER_VALUE|MALFORMED_\w+|NULL_MAP_KEY|DUPLICATED_MAP_KEY|USER_RAISED_EXCEPTION|INVALID_UTF8_STRING|"
    r"FAILED_EXECUTE_UDF|ASSERT_TRUE\w*)[\].]"
)
#: Errors of functions in Python, and those of them that may pass: such a function may ask another server.
_IN_PYTHON = re.compile(r"\[PYTHON_EXCEPTION\]|PythonException|Python worker")
_MAY_PASS = re.compile(
    r"timeout|timed out|connect|network|socket|HTTP|URL|OSError|IOError|BrokenPipe|EOFError|unavail", re.IGNORECASE
)
_TOO_LARGE = re.compile(r"RecordTooLargeException|larger than the max message size|MESSAGE_TOO_LARGE")
_LIMIT = re.compile(r"which is larger than (\d+)")
_TIME = re.compile(rf".+{OUT_OF_RANGE}: -?\d+\s*")
#: Spark's Kafka connector before 4.1.3 ends a query so when it reports a batch that an earlier run had begun: the batch
#: has ended by then, and the next run goes on behind it (SPARK-57438).
_UNREPORTED = re.compile(r'IterableOps\.map\(.*because the return value of "scala\.Option\.get\(\)" is null')
#: Kafka's default limit of a record, bytes; where a broker does not say its own.
DEFAULT_LIMIT = 1_048_576
#: The rest of a record beside its value: key, headers and overhead.
_OF_LIMIT = 0.98


def limit_of(why: str) -> int | None:
    """Return the bytes that a record's value may have, if a failure says that one was too large; None for other
    failures."""
    if not _TOO_LARGE.search(why):
        return None
    found = _LIMIT.search(why)
    return round(_OF_LIMIT * (int(found[1]) if found else DEFAULT_LIMIT))


def cause_of(why: str) -> Cause:
    """Return what a failure says about the next try: the rows can't be parsed or sent in any case, or fail again unless
    what they depend on, such as a table that a function reads, is fixed; or the failure may pass."""
    if FAILS in why or BROKEN in why or TOO_LARGE in why or _TOO_LARGE.search(why):
        return Cause.CERTAIN
    if SILENT in why:
        return Cause.SERVICE
    in_python = bool(_IN_PYTHON.search(why)) and not _MAY_PASS.search(why)
    return Cause.ROWS if in_python or _OF_VALUES.search(why) else Cause.MAY_PASS


def explained(why: str, instance: Instance) -> str:
    """Return the failure, with the column for a value that does not fit the schema of the instance's only topic, and
    with what to do about a fault of Spark's connector."""
    if _UNREPORTED.search(why):
        return f"{why}: {'; '.join(CONNECTOR_FAULT)}"
    _, found, value = why.partition(FAILS)
    value = value.partition(" SQLSTATE: ")[0]
    schemas = list(instance.facts.schemas.values()) if instance.facts is not None else []
    if not found or len(schemas) != 1 or instance.facts is None or _TIME.fullmatch(value):
        return why
    forms = [feed.values for feed in instance.job.feeds if feed.topic in instance.facts.schemas] or [JSON]
    because = why_malformed(forms[0], value, schemas[0], cut=len(value) >= SHOWN)
    return f"{why}: {because}" if because else why
