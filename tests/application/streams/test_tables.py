"""What a catalog says of tables, and what is refused of it, without Spark."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from qod_magics.application.streams.sink import AT_LEAST_ONCE, EXACTLY_ONCE, Parquet, TableFacts
from qod_magics.application.streams.tables import DataSource, Delta, Iceberg, Table
from qod_magics.errors import ApplicationError
from tests.raising import breaks

COLUMNS = StructType([StructField("id", LongType()), StructField("name", StringType())])


class Catalog:
    """In the place of a session of Spark: one table, and what DESCRIBE TABLE EXTENDED says of it."""

    def __init__(self, provider: str, *, tells: bool = True, catalog: str = "spark_catalog", **more: str) -> None:
        """`tells`: whether it says in which catalog the table is."""
        details = {"Database": "d", "Type": "EXTERNAL", "Location": "file:/x", **more}
        details |= {"Catalog": catalog} if tells else {}
        self.rows = [("id", "bigint"), ("Type", "string"), ("# Detailed Table Information", "")]
        self.rows += [*details.items(), ("Provider", provider)]
        self.conf = SimpleNamespace(get=lambda name, default: "in-memory")
        self.catalog = SimpleNamespace(getTable=lambda name: SimpleNamespace(catalog=catalog))

    def table(self, name: str) -> Any:
        if name not in ("d.t", "delta.`/x`"):
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
    assert not facts.by_insert
    assert Table("d.t").guarantee_in(facts) == EXACTLY_ONCE
    assert Delta("delta", "/d").guarantee_in(None) == EXACTLY_ONCE
    assert DataSource("noop", "").guarantee_in(None) == AT_LEAST_ONCE


def test_a_delta_table_of_the_own_catalog_is_made_known_with_the_columns_of_its_log() -> None:
    assert found(Catalog("delta", Location="file:/it's")).definition == (
        "CREATE SCHEMA IF NOT EXISTS `d`",
        "CREATE TABLE IF NOT EXISTS d.t USING delta LOCATION 'file:/it\\'s'",
    )


@pytest.mark.parametrize("tells", [False, True])
@pytest.mark.parametrize("provider", ["delta", "parquet", "csv"])
def test_a_table_whose_files_end_with_its_task_manager_is_refused_whatever_its_format(
    provider: str, tells: bool
) -> None:
    with pytest.raises(ApplicationError, check=breaks("external", name="d.t")):
        found(Catalog(provider, tells=tells, Type="MANAGED"))


def test_tables_of_other_catalogs_and_by_path_outlive_task_managers() -> None:
    for provider, catalog in (("delta", "unity"), ("iceberg", "lake"), ("iceberg", "spark_catalog"), ("x", "jdbc")):
        for tells in (False, True):
            facts = found(Catalog(provider, tells=tells, catalog=catalog, Type="MANAGED"))
            assert facts.definition == ()
    assert found(Catalog("delta", tells=False, Type="MANAGED"), Table("delta.`/x`")).definition == ()


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


@pytest.mark.parametrize("scheme", ["", "file:", "file://", "file://localhost"])
def test_a_new_query_does_not_write_where_spark_would_skip_its_batches(tmp_path: Path, scheme: str) -> None:
    sink = DataSource("org.acme.Store", f"{scheme}{tmp_path}")
    sink.check_new()
    (tmp_path / "_spark_metadata").mkdir()
    (tmp_path / "_spark_metadata" / ".0.crc").write_text("")
    sink.check_new()
    (tmp_path / "_spark_metadata" / "0").write_text("v1")
    with pytest.raises(ApplicationError, check=breaks("own directory", option="--sink")):
        sink.check_new()
    DataSource("noop", "").check_new()
    assert sink.file_log == DataSource("org.acme.Store", f"{tmp_path}/").file_log == str(tmp_path)
    assert DataSource("org.acme.Store", "s3a://b/out").file_log == "s3a://b/out"
    assert (DataSource("noop", "").file_log, Delta("delta", "/x").file_log, Parquet("/x").file_log) == ("", "", "")
