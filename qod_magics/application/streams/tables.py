"""Sinks in formats of Spark's `writeStream`, and in tables of a catalog: `delta:PATH`, `table:NAME`, `iceberg:NAME`.

A batch that is tried again is written once where the format remembers the batches of a query: Delta by the id of the
query and the number of the batch, and Iceberg likewise. Tables of other formats get the rows of each batch by INSERT.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from os.path import normpath
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from qod_magics.application.recipes.building import analysis_errors_unprinted, first_line, raise_unless_connection
from qod_magics.application.streams.sink import (
    AT_LEAST_ONCE,
    EXACTLY_ONCE,
    FILE_LOG,
    Output,
    Sink,
    TableFacts,
    absolute,
    is_url,
    options_of_writer,
)
from qod_magics.errors import ApplicationError, nearest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery
    from pyspark.sql.types import StructType

DELTA, ICEBERG = "delta", "iceberg"
#: How a catalog calls where the files of a table are, its format, its kind, and itself.
_LOCATION, _PROVIDER, _TYPE, _CATALOG = "Location", "Provider", "Type", "Catalog"
#: The catalog that each Spark server has, and the setting that says whether it outlives the server.
_OWN_CATALOG, _IMPLEMENTATION, _IN_MEMORY = "spark_catalog", "spark.sql.catalogImplementation", "in-memory"
#: A Delta table by its path, which is in no catalog.
_BY_PATH = re.compile(r"\s*delta\s*\.\s*`(/|[a-z][a-z0-9+.-]+:)", re.IGNORECASE)
#: Below which line it says so, behind the columns.
_DETAILS = "# Detailed Table Information"


@dataclass(frozen=True, slots=True)
class DataSource(Sink):
    """A format of Spark's `writeStream`, with the path, if it has one, that this format takes."""

    format: str  #: a short name, or that of a class
    place: str  #: "": it takes none
    options: tuple[tuple[str, str], ...] = ()
    kind: ClassVar[str] = "format"
    looks_up: ClassVar[bool] = True
    realtime: ClassVar[bool] = False

    def __str__(self) -> str:
        return f"{self.format}:{self.place}"

    def with_options(self, given: Mapping[str, str]) -> Sink:
        """Return it with options of its writer."""
        return replace(self, options=options_of_writer(given))

    def found(self, spark: SparkSession, columns: StructType) -> TableFacts | None:
        """Raise ApplicationError where the task manager has no such format."""
        with analysis_errors_unprinted():
            try:
                _ = spark.read.format(self.format).load().schema
            except Exception as error:  # without a path most formats refuse: then there is one
                if "DATA_SOURCE_NOT_FOUND" in str(error):
                    raise ApplicationError(
                        f"--sink {self} must name a format that the task managers know, got {self.format!r}; `%qod up "
                        "--packages GROUP:ARTIFACT:VERSION` adds the package of a format",
                        name=self.format,
                        option="--sink",
                        rule="format",
                    ) from error
        return None

    def write(self, rows: DataFrame, output: Output) -> DataStreamWriter:
        """Write to its place."""
        writer = rows.writeStream.format(self.format).options(**dict(self.options))
        return writer.option("path", self.place) if self.place else writer

    @property
    def file_log(self) -> str:
        """Return its place: a format of another package may write files by Spark's own log."""
        place = re.sub("^file:(//(localhost)?)?(?=/)", "", self.place)
        return normpath(place) if place.startswith("/") else place

    def check_new(self) -> None:
        """Raise ApplicationError where the directory has a log of batches: Spark skips every batch whose number is in
        it. A place on another machine is not looked at."""
        log = Path(self.file_log) / FILE_LOG
        if self.file_log and any(each.name.isdigit() for each in (log.iterdir() if log.is_dir() else ())):
            raise ApplicationError(
                f"--sink {self} must be a directory without {FILE_LOG} where a query begins on a new checkpoint, got "
                "one with it: Spark would skip the first batches; take another directory",
                value=self.place,
                option="--sink",
                rule="own directory",
            )

    def instead(self, printed: str) -> str:
        """Name the call that reads them."""
        return f"read it by spark.read.format({self.format!r}).load({self.place!r}), or declare it with --sink memory"


class Delta(DataSource):
    """A Delta table by its path."""

    __slots__ = ()
    kind: ClassVar[str] = DELTA
    appends: ClassVar[bool] = True
    exactly_once: ClassVar[bool] = True

    @property
    def file_log(self) -> str:
        """Return "": Delta tells the batches of queries apart."""
        return ""

    @classmethod
    def parsed(cls, place: str | None) -> Sink:
        """Return the sink of a path."""
        if not (place or "").strip():
            raise ApplicationError("the sink 'delta' needs a path: delta:/data/out")
        return cls(DELTA, absolute(place or ""))


@dataclass(frozen=True, slots=True)
class Table(Sink):
    """A table of a catalog of the task managers."""

    name: str  #: as SQL has it: "fares", "lake.taxi.fares"
    options: tuple[tuple[str, str], ...] = ()
    kind: ClassVar[str] = "table"
    looks_up: ClassVar[bool] = True
    realtime: ClassVar[bool] = False
    appends: ClassVar[bool] = True
    runs_python: ClassVar[bool] = True
    providers: ClassVar[tuple[str, ...]] = ()  #: formats that its table may have; (): any

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"

    @classmethod
    def parsed(cls, place: str | None) -> Sink:
        """Return the sink of a table."""
        if not (place or "").strip():
            raise ApplicationError(f"the sink {cls.kind!r} needs a table: {cls.kind}:NAME")
        return cls((place or "").strip())

    def with_options(self, given: Mapping[str, str]) -> Sink:
        """Return it with options of its writer."""
        return replace(self, options=options_of_writer(given))

    def found(self, spark: SparkSession, columns: StructType) -> TableFacts:
        """Return what the catalog says of the table."""
        with analysis_errors_unprinted():
            try:
                there = {field.name: field.dataType.simpleString() for field in spark.table(self.name).schema.fields}
                told = _details(spark.sql(f"DESCRIBE TABLE EXTENDED {self.name}").collect())
                provider = told.get(_PROVIDER, "").lower()
                by_insert = provider not in (DELTA, ICEBERG)
                facts = TableFacts(provider, tuple(there.items()), told.get(_LOCATION, ""), by_insert=by_insert)
                if provider != ICEBERG and self._is_forgotten(spark, told):
                    facts = replace(facts, definition=self._definition(spark, facts, told))
            except ApplicationError:
                raise
            except Exception as error:
                raise_unless_connection(error)
                raise ApplicationError(
                    f"--sink {self} must name a table that a task manager can read, got: {first_line(error)}; make it "
                    'by `qod.spark.sql("CREATE TABLE ...")`',
                    name=self.name,
                    option="--sink",
                    rule="exists",
                ) from error
        if self.providers and facts.provider not in self.providers:
            raise ApplicationError(
                f"--sink {self} must name a table of {' or '.join(self.providers)}, got one of {facts.provider}; take "
                f"--sink table:{self.name}",
                name=self.name,
                value=facts.provider,
                option="--sink",
                rule="format",
            )
        known = {name.casefold() for name in there}
        for name in columns.names:
            if name.casefold() not in known:
                raise ApplicationError(
                    f"--sink {self} must name a table with the columns of the result, and it has no {name!r}."
                    f"{nearest(name, there)} Select those that it has: {', '.join(there)}",
                    name=self.name,
                    value=name,
                    option="--sink",
                    rule="columns",
                )
        return facts

    def _is_forgotten(self, spark: SparkSession, told: Mapping[str, str]) -> bool:
        """Return whether the table is in a catalog that ends with its task manager. Iceberg has catalogs of its own."""
        if _BY_PATH.match(self.name) or spark.conf.get(_IMPLEMENTATION, _IN_MEMORY) != _IN_MEMORY:
            return False
        catalog = told.get(_CATALOG)  # formats with classes of their own for tables do not tell
        return (spark.catalog.getTable(self.name).catalog if catalog is None else catalog) == _OWN_CATALOG

    def _definition(self, spark: SparkSession, facts: TableFacts, told: Mapping[str, str]) -> tuple[str, ...]:
        """Return the SQL that makes the table known to a task manager whose catalog ends with it."""
        if told.get(_TYPE) != "EXTERNAL" or not is_url(facts.location):
            raise ApplicationError(
                f"--sink {self} must name a table with a LOCATION, got one whose files end with its task manager; make "
                "it by CREATE TABLE ... LOCATION '/data/out'",
                name=self.name,
                option="--sink",
                rule="external",
            )
        if facts.provider == DELTA:  # its columns are in its log
            text = f"CREATE TABLE {self.name} USING delta LOCATION '{_quoted(facts.location)}'"
        else:
            text = str(spark.sql(f"SHOW CREATE TABLE {self.name}").collect()[0][0])
        schema = f"CREATE SCHEMA IF NOT EXISTS `{told.get('Database') or told.get('Namespace') or 'default'}`"
        return schema, re.sub(r"^CREATE TABLE\b", "CREATE TABLE IF NOT EXISTS", text)

    def guarantee_in(self, table: TableFacts | None) -> str:
        """Say whether the format of the table remembers batches."""
        return EXACTLY_ONCE if table is not None and not table.by_insert else AT_LEAST_ONCE

    def write(self, rows: DataFrame, output: Output) -> DataStreamWriter:
        """Write to the table as its format allows."""
        assert output.table is not None
        facts = output.table
        if facts.provider == DELTA and facts.location:
            return rows.writeStream.format(DELTA).options(**dict(self.options)).option("path", facts.location)
        if facts.provider == ICEBERG:
            return rows.writeStream.format(ICEBERG).options(**dict(self.options))
        facts.define(rows.sparkSession)
        return rows.writeStream.foreachBatch(_inserting(self.name, facts.columns, dict(self.options)))

    def begin(self, writer: DataStreamWriter, table: TableFacts | None) -> StreamingQuery:
        """Start the query, into the table where Spark writes it itself."""
        return writer.toTable(self.name) if table is not None and table.provider == ICEBERG else writer.start()

    def instead(self, printed: str) -> str:
        """Name the call that reads them."""
        return f"read it by spark.table({self.name!r}), or declare it with --sink memory"


class Iceberg(Table):
    """An Iceberg table."""

    __slots__ = ()
    kind: ClassVar[str] = ICEBERG
    runs_python: ClassVar[bool] = False
    providers: ClassVar[tuple[str, ...]] = (ICEBERG,)


def _quoted(text: str) -> str:
    """Return a text as it stands in a literal of SQL."""
    return text.replace("\\", "\\\\").replace("'", "\\'")


def _details(rows: Sequence[Any]) -> dict[str, str]:
    """Return what DESCRIBE TABLE EXTENDED says of a table below its columns."""
    names = [row[0] for row in rows]
    begin = names.index(_DETAILS) if _DETAILS in names else 0
    return {row[0]: row[1] for row in rows[begin:]}


def _inserting(
    table: str, columns: tuple[tuple[str, str], ...], options: dict[str, str]
) -> Callable[[DataFrame, int], Any]:
    """Return a function that inserts a batch, null where the rows lack a column. It is sent as it is to the Python of
    the server."""

    def insert(batch: DataFrame, number: int) -> None:
        from pyspark.sql import functions as F

        there = {name.lower(): name for name in batch.columns}
        row = [
            (F.col(f"`{there[name.lower()]}`") if name.lower() in there else F.lit(None)).cast(kind).alias(name)
            for name, kind in columns
        ]
        batch.select(*row).write.options(**options).insertInto(table)

    return insert
