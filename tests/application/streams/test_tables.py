"""What a catalog says of tables, and what is refused of it, without Spark."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from qod_magics.application.streams.sink import AT_LEAST_ONCE, EXACTLY_ONCE, TableFacts
from qod_magics.application.streams.tables import DataSource, Delta, Iceberg, Table
from qod_magics.errors import ApplicationError
from tests.raising import breaks

COLUMNS = StructType([StructField("id", LongType()), StructField("name", StringType())])


class Catalog:
    """In the place of a session of Spark: one table, and what DESCRIBE TABLE EXTENDED says of it."""

    def __init__(self, provider: str, **more: str) -> None:
        details = {"Catalog": "spark_catalog", "Database": "d", "Type": "EXTERNAL", "Location": "file:/x", **more}
        self.rows = [("id", "bigint"), ("Type", "string"), ("# Detailed Table Information", "")]
        self.rows += [*details.items(), ("Provider", provider)]
        self.conf = SimpleNamespace(get=lambda name, default: "in-memory")

    def table(self, name: str) -> Any:
        if name != "d.t":
            raise ValueError(f"[TABLE_OR_VIEW_NOT_FOUND] {name}")
        return SimpleNamespace(schema=COLUMNS)

    def sql(self, text: str) -> Any:
        shown = [("CREATE TABLE spark_catalog.d.t (id BIGINT)\nUSING x",)]
        return SimpleNamespace(collect=lambda: shown if text.startswith("SHOW") else self.rows)


def found(catalog: Catalog, table: Table | None = None) -> TableFacts:
    return (table or Table("d.t")).found(catalog, COLUMNS)  # type: ignore[arg-type]


def test_a_table_of_files_is_made_known_where_its_query_starts_and_gets_rows_by_insert() -> None:
    facts = found(Catalog("parquet"))
    assert (facts.provider, facts.location, facts.by_insert) == ("parquet", "file:/x", True)
    assert facts.definition == (
        "CREATE SCHEMA IF NOT EXISTS `d`",
        "CREATE TABLE IF NOT EXISTS spark_catalog.d.t (id BIGINT)\nUSING x",
    )
    assert Table("d.t").guarantee_in(facts) == AT_LEAST_ONCE


@pytest.mark.parametrize("provider", ["delta", "iceberg"])
def test_a_table_that_knows_its_batches_has_each_row_once(provider: str) -> None:
    facts = found(Catalog(provider))
    assert (facts.by_insert, facts.definition) == (False, ())
    assert Table("d.t").guarantee_in(facts) == EXACTLY_ONCE
    assert Delta("delta", "/d").guarantee_in(None) == EXACTLY_ONCE
    assert DataSource("noop", "").guarantee_in(None) == AT_LEAST_ONCE


def test_tables_that_are_not_there_end_with_a_server_or_lack_a_column_are_refused() -> None:
    with pytest.raises(ApplicationError, check=breaks("exists", name="d.u")):
        found(Catalog("parquet"), Table("d.u"))
    with pytest.raises(ApplicationError, check=breaks("external", name="d.t")):
        found(Catalog("parquet", Type="MANAGED"))
    with pytest.raises(ApplicationError, check=breaks("format", value="parquet")):
        found(Catalog("parquet"), Iceberg("d.t"))
    more = StructType([*COLUMNS.fields, StructField("nmae", StringType())])
    with pytest.raises(ApplicationError, check=breaks("columns", value="nmae")):
        Table("d.t").found(Catalog("delta"), more)  # type: ignore[arg-type]
