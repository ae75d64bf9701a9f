"""The kinds of sources, and those of a session.

A new kind is a module with a class of the protocol `Source`, and a line of `KINDS`.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from qod_magics.errors import ApplicationError, QodError, nearest
from qod_magics.sources.source import KAFKA, Context, GoOn, Part, Position, Source, Span, kind_and_place, read_on

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: How `--source` names each kind, and its class, which is loaded when it is asked for.
KINDS: Mapping[str, tuple[str, str]] = {
    KAFKA: ("kafka:TOPIC", "qod_magics.sources.kafka:KafkaSource"),
    "json": ("json:PATH", "qod_magics.sources.files:JsonFiles"),
    "csv": ("csv:PATH", "qod_magics.sources.files:CsvFiles"),
    "parquet": ("parquet:PATH", "qod_magics.sources.files:ParquetFiles"),
    "delta": ("delta:PATH", "qod_magics.sources.delta:DeltaTable"),
    "rate": ("rate[:ROWS_PER_S]", "qod_magics.sources.rate:Rate"),
}
FORMS = tuple(form for form, _ in KINDS.values())


@cache
def class_of(kind: str) -> type[Source]:
    """Return the class of a kind. Raises ApplicationError: there is no such kind."""
    if kind not in KINDS:
        raise ApplicationError(f"a source must be one of {', '.join(FORMS)}, got {kind!r}.{nearest(kind, KINDS)}")
    module, _, name = KINDS[kind][1].partition(":")
    found: type[Source] = getattr(import_module(module), name)
    return found


def kind_of(name: str) -> type[Source]:
    """Return the class of a source by its name."""
    return class_of(kind_and_place(name)[0])


def source_name(text: str) -> str:
    """Return the name of the source that `--source` gives, such as "rate" or "json:data/in", in normal form. Raises
    ApplicationError."""
    kind, _, place = text.partition(":")
    found = class_of(kind).checked(place)
    return found if kind == KAFKA else f"{kind}:{found}"


def as_source(given: str | None) -> str | None:
    """Return the name of the source that the Python API is given. Raises ApplicationError."""
    return None if given is None else source_name(given)


def checked_name(name: str) -> str:
    """Return a name as `source_name` does; one without a kind is a topic's. Raises ApplicationError."""
    kind, place = kind_and_place(name)
    return source_name(f"{kind}:{place}")


def described(name: str) -> str:
    """Return a source in words: "topic trips", "directory /data/in"."""
    return f"{kind_of(name).unit} {kind_and_place(name)[1]}"


def span_of(name: str, noted: Mapping[str, Any]) -> Span | None:
    """Return which rows of a source a batch read, from what was observed of it; None: its progress reports tell."""
    kind, place = kind_and_place(name)
    return class_of(kind).span(place, noted) if kind in KINDS else None


class Sources:
    """The sources of a session, by name. Thread-safe.

    Args:
        context: what they share.

    """

    def __init__(self, context: Context) -> None:
        self.context = context
        self._made: dict[str, Source] = {}
        self._making = threading.Lock()

    def __repr__(self) -> str:
        return f"sources of kinds {', '.join(self._made) or 'none yet'}"

    def of(self, name: str) -> Source:
        """Return the object for a source's kind."""
        kind, _ = kind_and_place(name)
        with self._making:
            if kind not in self._made:
                self._made[kind] = class_of(kind)(self.context)
            return self._made[kind]

    def splits(self, name: str) -> int:
        """See `Source.splits`."""
        return self.of(name).splits(kind_and_place(name)[1])

    def begin(self, name: str, starting: str) -> Position:
        """See `Source.begin`."""
        return self.of(name).begin(kind_and_place(name)[1], starting)

    def ends(self, names: Iterable[str]) -> tuple[dict[str, Position], dict[str, str]]:
        """Return the ends of these sources by name, and why others are not known. Raises KafkaError."""
        by_kind: dict[str, dict[str, str]] = {}
        for name in names:
            kind, place = kind_and_place(name)
            by_kind.setdefault(kind, {})[place] = name
        found: dict[str, Position] = {}
        missing: dict[str, str] = {}
        for places in by_kind.values():
            ends, problems = self.of(next(iter(places.values()))).ends(places)
            found |= {places[place]: end for place, end in ends.items()}
            missing |= {places[place]: why for place, why in problems.items()}
        return found, missing

    def read(self, spark: SparkSession, part: Part) -> DataFrame:
        """See `Source.read`."""
        return self.of(part.name).read(spark, kind_and_place(part.name)[1], part)

    def close(self) -> None:
        """Remove the files that sources have made."""
        if self.context.directory is not None:
            shutil.rmtree(self.context.directory, ignore_errors=True)

    def tend(self, parts: Iterable[Part], go_on: GoOn = read_on) -> None:
        """See `Source.tend`; each kind gets all parts that are read of it. Raises what a kind raised, once each had its
        turn."""
        by_kind: dict[str, list[Part]] = {kind: [] for kind in list(self._made)}
        for part in parts:
            by_kind.setdefault(kind_and_place(part.name)[0], []).append(part)
        failed: list[Exception] = []
        for kind, mine in by_kind.items():
            if kind in self._made:
                try:
                    self._made[kind].tend(mine, go_on)
                except (QodError, OSError) as error:
                    failed.append(error)
        if failed:
            raise failed[0]
