"""The keywords of `Session.stream` and `Session.set` for type checkers: the table of options, as they can read it.

`tests/application/streams/test_options.py` compares them with the table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from qod_magics.application.streams.sink import Sink
from qod_magics.application.streams.stream import Malformed, Mode, Starting, TimeUnit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType


class RestrictionKeywords(TypedDict, total=False):
    """What is asked of a query, which may change while it runs."""

    priority: int | None
    min_accuracy: float | None
    max_latency_s: float | None
    utility: float | None


class StreamKeywords(RestrictionKeywords, total=False):
    """The options of a stream."""

    topic: str | None
    source: str | None
    schema: str | DataType | None
    starting: Starting
    malformed: Malformed | None
    time_unit: TimeUnit
    shed_by: str | Sequence[str]
    from_: str | Sequence[str]
    parallelism: int
    max_parallelism: int | None
    key: str | None
    fuse: bool
    sink: Sink | str | Callable[[DataFrame, int], Any] | None
    mode: Mode
    trigger_s: float | None
    estimates: bool
