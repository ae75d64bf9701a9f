"""What a recipe needs while its query is built: temporary views, and the errors of Spark in one line."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import Lock, RLock
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from qod_magics.errors import ApplicationError
from qod_magics.estimate.formulas import WEIGHT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: pyspark logs analysis errors here, with the whole JVM stack trace, on standard error: in the user's cell
_LOGGERS = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")


@dataclass(eq=False, slots=True)
class _NameSpace:
    """The temporary views of one session."""

    lock: RLock = field(default_factory=RLock)
    #: created here, by names without case, as Spark's are; may outlive its context if the session was unreachable
    ours: set[str] = field(default_factory=set)


_name_spaces: WeakKeyDictionary[SparkSession, _NameSpace] = WeakKeyDictionary()
_name_spaces_lock = Lock()


@contextmanager
def temporary_views(frames: Mapping[str, DataFrame]) -> Iterator[None]:
    """Register DataFrames of one session under their names while the context is open; other threads wait meanwhile.

    A session has one name space: `source` of one query must not be taken for `source` of another that starts at the
    same time. Raises ApplicationError if the session (the user's own, attached) has a temporary view of such a name
    that is not ours: it would be lost.
    """
    if not frames:
        yield
        return
    # the DataFrames know their session; what the caller calls `spark` may be a wrapper of it
    spark = next(iter(frames.values())).sparkSession
    with _name_spaces_lock:
        space = _name_spaces.setdefault(spark, _NameSpace())
    with space.lock:
        made: list[str] = []
        try:
            for name, frame in frames.items():
                if name.casefold() not in space.ours:
                    _refuse_taken(spark, name)
                space.ours.add(name.casefold())  # before: an interrupted call may create it nevertheless
                made.append(name)
                frame.createOrReplaceTempView(name)
            yield
        finally:
            for name in made:
                with suppress(Exception):  # an error inside matters more; the next builder replaces the view
                    spark.catalog.dropTempView(name)
                    space.ours.discard(name.casefold())


def _refuse_taken(spark: SparkSession, name: str) -> None:
    if spark.catalog.tableExists(name) and spark.catalog.getTable(name).isTemporary:
        raise ApplicationError(
            f"the Spark session has a temporary view {name!r} already, which would be lost: "
            f"rename it, or spark.catalog.dropTempView({name!r})",
            name=name,
            rule="unique view",
        )


@contextmanager
def active(frames: Mapping[str, DataFrame]) -> Iterator[None]:
    """While open, the session of these DataFrames is this thread's active one, as pyspark's functions of DDL types need
    it: `F.udf(f, "long")` fails where neither an active nor a default session is. A classic session always is."""
    spark: Any = next((frame.sparkSession for frame in frames.values()), None)
    if not type(spark).__module__.startswith("pyspark.sql.connect."):
        yield
        return
    mine = type(spark)._active_session
    before, mine.session = getattr(mine, "session", None), spark
    try:
        yield
    finally:
        mine.session = before


class _Hush(threading.local, logging.Filter):
    """Drops the records of threads inside `analysis_errors_unprinted`."""

    depth = 0

    def filter(self, record: logging.LogRecord) -> bool:
        return self.depth == 0


_hush = _Hush()


@contextmanager
def analysis_errors_unprinted() -> Iterator[None]:
    """Keep pyspark from printing the analysis errors that it raises in this thread."""
    from pyspark.logger import PySparkLogger

    for name in _LOGGERS:
        PySparkLogger.getLogger(name).addFilter(_hush)  # an existing filter is not added again
    _hush.depth += 1
    try:
        yield
    finally:
        _hush.depth -= 1


#: Characters of an error of Spark that quotes what stands for an estimate.
LONGEST = 300


def first_line(error: BaseException) -> str:
    """Return the first non-empty line of an error's message."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0].rstrip(".") if lines else type(error).__name__


def advice(error: BaseException) -> str:
    """Say what to do about an error of Spark, as the end of its message; "" where Spark says it all."""
    text = str(error)
    if "PATH_NOT_FOUND" in text:
        return (
            "; a path in a recipe is the task manager's: a relative one is below the notebook's directory where "
            "`%qod up` started it, and below the server's elsewhere"
        )
    if "TABLE_OR_VIEW_NOT_FOUND" in text:
        return (
            "; a recipe knows its inputs and, in SQL, temporary views that `qod.spark` has made by "
            "df.createOrReplaceTempView(name), an attached Connect session before `%qod attach`"
        )
    if "SESSION_NOT_SAME" in text:
        return "; in a recipe, read with `spark`, which is its task manager's there"
    return ""


def without_weight(message: str) -> str | None:
    """Return what to do about Spark's error that there is no `_weight` for an estimate, or several; None for another
    error."""
    if f"Reference `{WEIGHT}` is ambiguous" in message:
        return (
            f"an estimate needs one {WEIGHT} of each row, and a join of streams has several: join them in a subquery, "
            f"with a.{WEIGHT} * b.{WEIGHT} AS {WEIGHT} among its columns"
        )
    if f"with name `{WEIGHT}` cannot be resolved" in message:
        return (
            f"an estimate needs the {WEIGHT} of each row, and the rows that its SELECT reads have none: add {WEIGHT} "
            "to the columns of the subquery in its FROM"
        )
    return None


def shortened(message: str) -> str:
    """Return the message without most of the expressions that stand for estimates, which nobody wrote."""
    return message if len(message) <= LONGEST else f"{message[:LONGEST]} ..."


def raise_unless_connection(error: Exception) -> None:
    """Raise the error again if Spark could not be reached: that is not the recipe's fault."""
    names = {kind.__name__ for kind in type(error).__mro__}
    lost = {"ConnectionError", "Py4JNetworkError", "RpcError", "RetriesExceeded", "TaskManagerError"} & names
    if lost or type(error).__name__ == "SparkConnectGrpcException":
        raise error
