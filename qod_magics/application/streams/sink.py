"""Where the rows of a query go, and paths that task managers open. The runtime implements how each is written."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from qod_magics.errors import ApplicationError, nearest
from qod_magics.sources.names import check_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SCHEME = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]+:")


@dataclass(frozen=True, slots=True)
class Memory:
    """A topic of the session's broker with bounded retention, from which results are read back; for inspection. It
    survives moves and lost task managers."""

    kind: ClassVar[str] = "memory"
    realtime: ClassVar[bool] = True  #: whether Spark's real-time mode can write it

    def __str__(self) -> str:
        return "memory"


@dataclass(frozen=True, slots=True)
class KafkaTopic:
    """A topic of the session's broker, rows as JSON. Where rows replace earlier ones of their group, and the plan tells
    its columns, the key of a record is these, as JSON."""

    topic: str
    partitions: int | None = None  #: which the topic must have, and gets if there is none; None: any number, and 1
    kind: ClassVar[str] = "kafka"
    realtime: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_topic(self.topic)
        if self.partitions is not None and self.partitions < 1:
            raise ApplicationError(f"partitions of a sink's topic must be 1 or more, got {self.partitions}")

    def __str__(self) -> str:
        return f"kafka:{self.topic}"


@dataclass(frozen=True, slots=True)
class Parquet:
    """Parquet files under a directory that the task managers reach, partitioned by instance: `run=...` is a column for
    readers of the whole."""

    path: str  #: a URL, or made absolute where it is declared: a task manager's own directory ends with it
    kind: ClassVar[str] = "parquet"
    realtime: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not self.path.strip():
            raise ApplicationError("the sink 'parquet' needs a path: parquet:/data/out")
        object.__setattr__(self, "path", absolute(self.path))

    def __str__(self) -> str:
        return f"parquet:{self.path}"


@dataclass(frozen=True, slots=True)
class Console:
    """The standard output of the task manager."""

    kind: ClassVar[str] = "console"
    realtime: ClassVar[bool] = True

    def __str__(self) -> str:
        return "console"


@dataclass(frozen=True, slots=True)
class ForEachBatch:
    """A function of the user, called with each micro-batch and its number (Python API only)."""

    function: Callable[[DataFrame, int], Any]
    kind: ClassVar[str] = "foreachbatch"
    realtime: ClassVar[bool] = False

    def __str__(self) -> str:
        return f"foreachBatch:{getattr(self.function, '__name__', 'function')}"


Sink = Memory | KafkaTopic | Parquet | Console | ForEachBatch
SINK_FORMS = ("memory", "kafka:TOPIC", "parquet:PATH", "console")


def as_sink(given: Sink | str | Callable[[DataFrame, int], Any] | None) -> Sink | None:
    """A sink, its text form, or a function for foreachBatch. Raises ApplicationError for other text."""
    if isinstance(given, str):
        return parse_sink(given)
    return given if given is None or isinstance(given, Sink) else ForEachBatch(given)


def parse_sink(text: str) -> Sink:
    """The sink that `--sink` names: memory, kafka:TOPIC, parquet:PATH or console. ApplicationError for all else."""
    kind, colon, rest = text.partition(":")
    simple: dict[str, type[Memory] | type[Console]] = {"memory": Memory, "console": Console}
    if kind in simple:
        if colon:
            raise ApplicationError(f"the sink {kind!r} takes nothing after it, not {text!r}")
        return simple[kind]()
    if kind == "kafka":
        if not rest:
            raise ApplicationError("the sink 'kafka' needs a topic: kafka:TOPIC")
        return KafkaTopic(rest)
    if kind == "parquet":
        return Parquet(rest)
    raise ApplicationError(
        f"unknown sink {text!r}.{nearest(kind, ('memory', 'kafka', 'parquet', 'console'))}"
        f" The forms are {', '.join(SINK_FORMS)}."
    )


def with_options(sink: Sink | None, words: Sequence[str]) -> Sink:
    """The sink with options of the form NAME=VALUE. Raises ApplicationError: it does not have them."""
    given = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise ApplicationError(f"a sink option must be NAME=VALUE, got {word!r}; such as partitions=12")
        given[name] = value
    if not isinstance(sink, KafkaTopic):
        raise ApplicationError(
            f"--sink-option {next(iter(given))} must go with --sink kafka:TOPIC, got {sink or 'none'}"
        )
    unknown = sorted(given.keys() - {"partitions"})
    if unknown:
        raise ApplicationError(f"a Kafka sink must have options among partitions, got {unknown[0]!r}")
    if not given["partitions"].isdigit():
        raise ApplicationError(f"partitions must be a whole number, got {given['partitions']!r}")
    return replace(sink, partitions=int(given["partitions"]))


def absolute(path: str) -> str:
    """A URL unchanged; a path made absolute, with `~`, as each task manager has its own working directory. `..` is
    removed as Hadoop does, whatever is a symbolic link."""
    return path if is_url(path) else os.path.abspath(os.path.expanduser(path))


def is_url(path: str) -> bool:
    """Tell whether a path has a scheme, such as `s3a:` or `file:`."""
    return _SCHEME.match(path) is not None
