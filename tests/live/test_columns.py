"""Which columns of JSON records recipes read, by Spark's own plans; what they give does not depend on it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from qod_magics.application.recipes.recipe import SqlRecipe
from qod_magics.session.session import Session
from qod_magics.spark.plans.inlining import plan_of
from qod_magics.spark.plans.job import Feed, Job
from qod_magics.spark.plans.parsing import MALFORMED, columns_read, parsed_input
from qod_magics.spark.servers.connection import connect, let_go
from tests.live.conftest import PATIENCE_S, server_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "a INT, b STRING, c DOUBLE, `d #7` TIMESTAMP"
COLUMNS = ("a", "b", "c", "d #7")
VALUES = (
    *(f'{{"a": {n % 3}, "b": "{n % 5}", "c": {n}.5, "d #7": "2026-01-0{n % 4 + 1}T00:00:00Z"}}' for n in range(12)),
    '{"a": "no number", "b": "x"}',
    "{bad",
    "",
    "{}",
)

#: No sink, no topic of results, no trigger.
NO = (None, None, None)


@pytest.fixture(scope="module")
def spark(cluster: Session) -> Iterator[SparkSession]:
    session = connect(server_of(cluster).url, patience_s=90)
    yield session
    let_go(session, PATIENCE_S)


def source(spark: SparkSession, read: frozenset[str] | None = None) -> DataFrame:
    """As the pipeline makes an instance's rows."""
    records = spark.createDataFrame([(value, n) for n, value in enumerate(VALUES)], "value STRING, _weight INT")
    schema: Any = spark.range(0).select(F.from_json(F.lit("{}"), SCHEMA).alias("row")).schema["row"].dataType
    assert isinstance(schema, StructType)
    counted = records.observe("shed.t", F.count(F.lit(1)).alias("rows"))
    return parsed_input(counted, schema, "keep", "malformed.0.t", read=read)


@pytest.mark.parametrize(
    ("body", "read"),
    [
        ("source.select('a')", "a"),
        ("source.where('c > 3').select('a', '_weight')", "ac"),
        ("source.withColumn('e', F.col('c') * 2).drop('e').select('b')", "b"),
        ("source.groupBy('a').agg(F.count('*'), F.max('d #7'))", "ad"),
        ("source.groupBy(F.window('d #7', '1 day'), 'a').agg(F.sum('c'))", "acd"),
        ("source.dropDuplicates(['a', 'b'])", "abcd"),
        ("source.select('a', 'b').distinct()", "ab"),
        ("source.select(F.count('*'))", ""),
        ("source", "abcd"),
        ("source.where('a = 1')", "abcd"),
        ("source.select('a', 'c').union(source.select('c', 'a'))", "ac"),
        ("source.select('a', 'b').union(source.selectExpr('int(c)', 'string(`d #7`)'))", "abcd"),
        ("source.alias('x').join(source.alias('y'), F.expr('x.a = y.c')).select('x.b')", "abc"),
        ("source.select('a', F.explode(F.split('b', '')).alias('e'))", "ab"),
        ("source.select(F.udf(lambda a: a and a + 1, 'int')('a').alias('e'))", "a"),
        ("source.select('a', 'c').mapInPandas(lambda frames: frames, 'a INT, c DOUBLE')", "ac"),
        ("source.mapInPandas(lambda frames: frames, source.schema)", "abcd"),
        ("source.groupBy('a').applyInPandas(lambda frame: frame[['a', 'c']], 'a INT, c DOUBLE')", "abcd"),
        ("source.observe('mine', F.max('c').alias('c')).select('a')", "ac"),
        ("source.select('a', F.lit('two\\nlines').alias('e'))", "abcd"),
        ("source.selectExpr('a', 'row_number() OVER (PARTITION BY b ORDER BY c) AS e')", "abc"),
    ],
)
def test_what_is_read_is_found_and_what_is_not_read_does_not_matter(spark: SparkSession, body: str, read: str) -> None:
    whole: DataFrame = eval(body, {"source": source(spark), "F": F})
    plan = plan_of(whole.select(F.struct("*")))
    found = columns_read(plan, {"shed.t": (*COLUMNS, MALFORMED)}).get("shed.t", frozenset(COLUMNS)) - {MALFORMED}
    assert {name[0] for name in found} >= set(read), "a column that is read would be null"
    less: DataFrame = eval(body, {"source": source(spark, found), "F": F})
    assert less.schema == whole.schema
    assert sorted(map(str, less.collect())) == sorted(map(str, whole.collect()))
    assert {name[0] for name in found} == set(read)


@pytest.mark.smoke
@pytest.mark.parametrize(
    ("sql", "read", "keeps_state"),
    [
        ("SELECT a, sum(c) FROM trips GROUP BY a", "ac", True),
        ("SELECT DISTINCT b FROM trips", "b", True),
        ("SELECT `d #7` FROM trips WHERE a > 1", "ad", False),
        ("SELECT * FROM trips", "abcd", False),
    ],
)
def test_what_sql_reads_is_found_too(cluster: Session, sql: str, read: str, keeps_state: bool) -> None:
    job = Job("t", "t.1", 0, (Feed("t", ("trips",), "t", (0,), {}, SCHEMA, False),), SqlRecipe(sql).opened, (), (), *NO)
    facts = cluster.runtime.workshop().plan_facts(job)
    assert facts.keeps_state is keeps_state
    found = facts.read["t"].columns - {MALFORMED} if facts.read else frozenset(COLUMNS)
    assert {name[0] for name in found} == set(read)


@contextmanager
def union_of_firsts(_spark: SparkSession, inputs: Mapping[str, DataFrame]) -> Iterator[DataFrame]:
    """The first column of each input."""
    first, *others = [rows.select(F.col(rows.columns[0]).alias("first")) for rows in inputs.values()]
    for other in others:
        first = first.union(other)
    yield first


@pytest.mark.parametrize("second", ["one", "other"])
def test_feeds_of_one_topic_are_parsed_whole_each_by_its_own_schema(cluster: Session, second: str) -> None:
    feeds = tuple(
        Feed(name, (name,), topic, (0,), {}, schema, False)
        for name, topic, schema in (("a", "one", "a INT, b INT"), ("x", second, "x INT, y INT"))
    )
    job = Job("t", "t.1", 0, feeds, union_of_firsts, (), (), *NO)
    found = cluster.runtime.workshop().plan_facts(job).read
    wanted = {} if second == "one" else {"one": {"a"}, "other": {"x"}}
    assert {topic: read.columns - {MALFORMED} for topic, read in found.items()} == wanted
