"""Recipes against a real Spark Connect server: one session for the module, sources of rate."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, StringType, StructType

from qod_magics.application.cell import declaration_of
from qod_magics.application.chain import opened_chain
from qod_magics.application.recipes.building import temporary_views
from qod_magics.application.recipes.python import PythonRecipe
from qod_magics.application.recipes.recipe import FunctionRecipe, SqlRecipe
from qod_magics.application.streams.options import parse_stream_line
from qod_magics.application.streams.stream import StreamDeclaration
from qod_magics.application.streams.topic_input import TopicInput, as_schema
from qod_magics.application.tasks import TaskSpec, tasks
from qod_magics.errors import ApplicationError
from qod_magics.session.session import Session
from qod_magics.spark.plans.inlining import analyzed_plan_of
from qod_magics.spark.plans.parsing import JSON, parsed
from qod_magics.spark.plans.plan_text import positions
from qod_magics.spark.servers.connection import connect, let_go
from tests.application.frames import application
from tests.live.conftest import PATIENCE_S, server_of
from tests.raising import breaks
from tests.texts import tells

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture(scope="module")
def spark(cluster: Session) -> Iterator[SparkSession]:
    """A session of these tests' own on a server that is up and warm."""
    session = connect(server_of(cluster).url, patience_s=90)
    yield session
    let_go(session, PATIENCE_S)


@pytest.fixture
def rate(spark: SparkSession) -> DataFrame:
    return spark.readStream.format("rate").option("rowsPerSecond", 200).load()


def failure(recipe: Any, spark: SparkSession, **inputs: DataFrame) -> str:
    with pytest.raises(ApplicationError) as caught, recipe.opened(spark, inputs):
        pass
    assert "\n" not in str(caught.value)
    return str(caught.value)


def views(spark: SparkSession) -> set[str]:
    return {table.name for table in spark.catalog.listTables() if table.isTemporary}


def chain(*cells: tuple[str, str], **namespace: Any) -> TaskSpec:
    """The one task that the streams of these cells make, where each reader may compute its inputs itself."""
    app = application()
    for line, body in cells:
        app = app.declare(declaration_of(parse_stream_line(line), body, namespace, app))
    (spec,) = tasks(app, inlinable=dict.fromkeys(app.live, 1))
    return spec


@pytest.mark.smoke
def test_a_python_recipe_has_its_inputs_spark_and_functions_in_scope(spark: SparkSession, rate: DataFrame) -> None:
    body = """
big = trips.filter(F.col('value') > limit)
names = spark.createDataFrame([(1, 'x')], 'value INT, name STRING')
big.join(names, 'value')
"""
    built = PythonRecipe(body, {"limit": 7}).build(spark, {"trips": rate})
    assert built.columns == ["value", "timestamp", "name"]
    assert built.isStreaming
    assert PythonRecipe("").build(spark, {"trips": rate}) is rate


def test_a_function_gets_its_inputs(spark: SparkSession, rate: DataFrame) -> None:
    assert FunctionRecipe(lambda spark, trips: trips.select("value")).build(spark, {"trips": rate}).columns == ["value"]


@pytest.mark.smoke
def test_what_can_not_be_built_is_said_in_one_line(
    spark: SparkSession, rate: DataFrame, capfd: pytest.CaptureFixture[str]
) -> None:
    said = failure(PythonRecipe("x = 1\ntrips.select('valu').schema\ntrips"), spark, trips=rate)
    assert tells(said, "line 2", "trips.select('valu').schema", "AnalysisException", "[UNRESOLVED_COLUMN")
    assert "UNRESOLVED_COLUMN" in failure(PythonRecipe("trips.select('valu')"), spark, trips=rate)
    assert "stream" in failure(PythonRecipe("spark.range(3)"), spark)
    assert "gives a Column, not a DataFrame" in failure(PythonRecipe("F.col('x')"), spark)
    assert "gives a Column, not a DataFrame" in failure(FunctionRecipe(lambda df: df.value), spark, df=rate)
    assert "stream" in failure(SqlRecipe("SELECT 1"), spark)
    assert "UNRESOLVED_COLUMN" in failure(SqlRecipe("SELECT valu FROM trips"), spark, trips=rate)
    assert "TABLE_OR_VIEW_NOT_FOUND" in failure(SqlRecipe("SELECT * FROM nothing"), spark, trips=rate)
    assert "UNRESOLVED_COLUMN" in failure(FunctionRecipe(lambda df: df.select("valu")), spark, df=rate)
    assert capfd.readouterr().err == ""
    assert views(spark) == set()


@pytest.mark.smoke
@pytest.mark.parametrize(
    "sql",
    [
        "SELECT value FROM trips WATERMARK timestamp DELAY OF INTERVAL 5 SECONDS",
        "SELECT window.end AS value, count(*) FROM trips WATERMARK timestamp DELAY OF INTERVAL 5 SECONDS "
        "GROUP BY window(timestamp, '5 seconds')",
        "SELECT value FROM STREAM trips",
        "SELECT value FROM STREAM(trips)",
        "WITH trips AS (SELECT * FROM trips WHERE value > 1) SELECT value FROM TRIPS",
        "FROM trips |> WHERE value > 1 |> SELECT value",
    ],
)
def test_spark_takes_the_sql_in_which_inputs_are_found(spark: SparkSession, rate: DataFrame, sql: str) -> None:
    recipe = SqlRecipe(sql)
    assert recipe.missing(("trips",)) == ()
    with recipe.opened(spark, {"trips": rate}) as built:
        assert built.columns[0] == "value"
        assert views(spark) == {"trips"}
    assert views(spark) == set()


def test_a_chain_of_python_sql_and_a_udf_runs_after_its_views_are_gone(spark: SparkSession, rate: DataFrame) -> None:
    notebook: dict[str, Any] = {"__name__": "__main__", "F": F, "more": 0}
    exec("plus = F.udf(lambda x: x + more, 'long')", notebook)
    spec = chain(
        ("trips --topic taxi --sql", "SELECT timestamp, value FROM taxi WHERE value % 2 = 0"),
        ("doubled", "double = F.udf(lambda x: 2 * x + bonus, 'long')\ntrips.select(plus(double('value')).alias('y'))"),
        ("out -p 1 --sql", "SELECT y, y % 4 AS rest FROM doubled"),
        bonus=1,
        plus=notebook["plus"],
    )
    notebook["more"] = 1000  # by a later cell
    with opened_chain(spec, spark, {"trips": rate}) as rows:
        query = rows.writeStream.format("memory").queryName("out_rows").trigger(processingTime="0 seconds").start()
    try:
        assert views(spark) == {"out_rows"}
        deadline = time.monotonic() + PATIENCE_S
        while not (found := spark.sql("SELECT y, rest FROM out_rows ORDER BY y LIMIT 3").collect()) or len(found) < 3:
            assert query.isActive, query.exception()
            assert time.monotonic() < deadline
            time.sleep(0.3)
        # rows 0, 2, 4 of the source; 2 * x + 1
        assert [tuple(row) for row in found] == [(1, 1), (5, 1), (9, 1)]
    finally:
        query.stop()
        spark.catalog.dropTempView("out_rows")


def test_a_union_in_a_chain_pairs_the_columns_that_it_would_pair_between_tasks(
    spark: SparkSession, rate: DataFrame
) -> None:
    """`_weight` is the last column of each stream, also where a recipe adds columns behind it."""
    spec = chain(
        ("east --topic e", "source.withColumn('net', F.col('value') * 2.0)"),
        ("west --topic w", "source.select('value', F.lit(-1.0).alias('net'), '_weight')"),
        ("both -p 1", "east.union(west).select('value', 'net', '_weight')"),
    )
    given = {name: rate.selectExpr("value", "4D AS _weight") for name in ("east", "west")}
    with opened_chain(spec, spark, given) as rows:
        query = rows.writeStream.format("memory").queryName("both_rows").trigger(processingTime="0 seconds").start()
    try:
        deadline, third = time.monotonic() + PATIENCE_S, "SELECT * FROM both_rows WHERE value = 3 ORDER BY net"
        while [tuple(row) for row in spark.sql(third).collect()] != [(3, -1.0, 4.0), (3, 6.0, 4.0)]:
            assert query.isActive, query.exception()
            assert time.monotonic() < deadline
            time.sleep(0.3)
    finally:
        query.stop()
        spark.catalog.dropTempView("both_rows")


def test_a_union_whose_inputs_have_their_weight_at_different_positions_is_told(
    spark: SparkSession, rate: DataFrame
) -> None:
    a = rate.selectExpr("value", "4D AS _weight")
    b, c = a.withColumn("net", F.lit(0.5)), rate.selectExpr("value", "0.5D AS net", "4D AS _weight")
    assert positions(analyzed_plan_of(b.union(c)), "_weight") == (2, 3)
    assert positions(analyzed_plan_of(c.union(b.where("value > 1"))), "_weight") == (3, 2)
    assert positions(analyzed_plan_of(b.unionByName(c)), "_weight") == ()
    assert positions(analyzed_plan_of(b.union(b)), "_weight") == ()
    with temporary_views({"b": b, "c": c}):
        assert positions(analyzed_plan_of(spark.sql("SELECT * FROM b UNION ALL SELECT * FROM c")), "_weight") == (2, 3)


def test_a_topic_and_a_stream_of_a_chain_may_differ_in_case_only(spark: SparkSession, rate: DataFrame) -> None:
    spec = chain(
        ("orders --topic Orders --sql", "SELECT value AS n FROM Orders WHERE value > 1"),
        ("out -p 1 --sql", "SELECT n % 4 AS rest FROM orders"),
    )
    with opened_chain(spec, spark, {"orders": rate}) as rows:
        assert rows.columns == ["rest"]
    assert views(spark) == set()


def test_a_failing_chain_names_the_stream_and_leaves_no_view(spark: SparkSession, rate: DataFrame) -> None:
    spec = chain(("a --topic t --sql", "SELECT value FROM source"), ("b -p 1", "a.select('valu')"))
    with (
        pytest.raises(ApplicationError, match=r"^stream 'b': .*UNRESOLVED_COLUMN") as caught,
        opened_chain(spec, spark, {"a": rate}),
    ):
        pass
    assert type(caught.value.__cause__).__name__ == "AnalysisException"
    assert views(spark) == set()
    with pytest.raises(ApplicationError, check=breaks("input", name="t")), opened_chain(spec, spark, {}):
        pass


def test_a_view_of_the_users_is_not_lost(spark: SparkSession, rate: DataFrame) -> None:
    spark.range(3).createOrReplaceTempView("trips")
    try:
        assert "view 'trips'" in failure(SqlRecipe("SELECT * FROM trips"), spark, trips=rate)
        assert spark.table("trips").count() == 3
    finally:
        spark.catalog.dropTempView("trips")


def test_builders_of_one_session_wait_for_one_another(spark: SparkSession, rate: DataFrame) -> None:
    other = rate.withColumnRenamed("value", "other")
    columns: list[list[str]] = []

    def second() -> None:
        with SqlRecipe("SELECT * FROM source").opened(spark, {"source": other}) as built:
            columns.append(built.columns)

    thread = threading.Thread(target=second)
    with SqlRecipe("SELECT * FROM source").opened(spark, {"source": rate}) as built:
        thread.start()
        thread.join(1.0)
        assert thread.is_alive()
        columns.append(built.columns)
    thread.join(60)
    assert columns == [["timestamp", "value"], ["timestamp", "other"]]


def test_a_view_that_could_not_be_dropped_is_replaced_by_the_next_builder(spark: SparkSession, rate: DataFrame) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(spark.catalog), "dropTempView", _unreachable)
        with temporary_views({"behind": rate}):
            pass
    assert views(spark) == {"behind"}
    with temporary_views({"behind": rate}):
        pass
    assert views(spark) == set()


def _unreachable(*_: object) -> None:
    raise ConnectionError("gone")


def test_data_frames_of_the_notebooks_session_are_read_on_the_task_managers(
    spark: SparkSession, rate: DataFrame
) -> None:
    zones = spark.range(3)
    namespace: dict[str, Any] = {"__name__": "__main__", "spark": spark, "zones": zones}
    joined = "df.join(zones, df.value == zones.id).join(spark.range(5).toDF('n'), zones.id == F.col('n'))"
    exec(f"def enrich(df): return {joined}", namespace)
    namespace["F"] = F
    recipes = [
        PythonRecipe("trips.join(zones, trips.value == zones.id)", namespace),
        PythonRecipe("enrich(trips)", namespace),
        FunctionRecipe(namespace["enrich"]),
        FunctionRecipe(lambda trips, tables={"z": zones}: trips.join(tables["z"], trips.value == tables["z"].id)),
    ]
    elsewhere = spark.newSession()
    try:
        theirs = elsewhere.readStream.format("rate").load()
        for recipe in recipes:
            assert recipe.build(spark, {"trips": rate}).isStreaming
            built = recipe.build(elsewhere, {"trips": theirs})
            assert built.sparkSession is elsewhere
            assert built.isStreaming
        streaming = PythonRecipe("trips.union(other)", {"other": rate})
        assert failure(streaming, elsewhere, trips=theirs).startswith("other: ")
        large = spark.createDataFrame(pd.DataFrame({"id": range(300_000)}))
        kept = PythonRecipe("trips.join(large, trips.value == large.id)", {"large": large})
        assert failure(kept, elsewhere, trips=theirs).startswith("large: ")
    finally:
        let_go(elsewhere, PATIENCE_S)


def test_declarations_without_a_cell(spark: SparkSession, rate: DataFrame) -> None:
    declaration = StreamDeclaration(
        "q", FunctionRecipe(lambda df: df.select("value")), TopicInput("nyc-taxi"), priority=1
    )
    (spec,) = tasks(application(declaration))
    with opened_chain(spec, spark, {"q": rate}) as rows:
        assert rows.columns == ["value"]


def test_a_schema_may_be_a_struct_type(spark: SparkSession) -> None:
    struct = StructType().add("a`b c", "integer").add("at", StructType().add("x", ArrayType(StringType())))
    row = spark.range(1).select(F.from_json(F.lit("{}"), as_schema(struct)).alias("row"))
    assert row.schema["row"].dataType == struct


VALUES = (
    "{bad",
    '{"a": 3}',
    '{"a": 9, "b": "z"}',
    "[1]",
    "",
    "null",
    "{}",
    '{"a": "x", "b": "y"}',
    '[{"a": 1}, {"a": 2}]',
)


@pytest.mark.parametrize("schema", ["a INT, b STRING", "a INT NOT NULL", "a INT, _corrupt_record STRING"])
def test_each_record_becomes_one_row_as_spark_parses_it(spark: SparkSession, schema: str) -> None:
    from pyspark.sql import functions as F

    records = spark.createDataFrame(
        [(None, 0), *((value, i) for i, value in enumerate(VALUES, 1))], "value STRING, n INT"
    )
    plain = records.select(F.from_json("value", schema).alias("row"), "n").select("row.*", "n")
    ours = parsed(records, schema, JSON, "n")
    assert ours.schema == plain.schema
    for wanted in ("true", "a IS NULL", "a > 5", "n > 2 AND a IS NOT NULL"):
        assert sorted(map(str, ours.where(wanted).collect())) == sorted(map(str, plain.where(wanted).collect()))
    assert ours.count() == len(VALUES) + 1


def test_a_filter_does_not_parse_again(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    records = spark.readStream.format("rate").load().selectExpr("CAST(value AS STRING) AS value")
    parsed(records, "a INT, b STRING, c STRING", JSON).where("a > 1 AND b <> c").explain()
    assert capsys.readouterr().out.count("from_json") == 1
