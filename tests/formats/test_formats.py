"""What formats say of malformed values, and when a query needs another plan."""

from __future__ import annotations

import json

import pytest
from pyspark.sql.types import DoubleType, IntegerType, StringType, StructField, StructType

from qod_magics.formats import schema_registry
from qod_magics.formats.avro import Avro, framed_sql, literal
from qod_magics.formats.csv_lines import Csv, ddl
from qod_magics.formats.format import EMPTY_VALUE, NO_VALUE, Format, why_malformed
from qod_magics.formats.json_values import Json
from tests.formats.registry_server import served
from tests.texts import tells

SCHEMA = StructType([StructField("a", IntegerType()), StructField("d", DoubleType()), StructField("b`c", StringType())])
AVRO = json.dumps({"type": "record", "name": "T", "fields": [{"name": "a", "type": "int"}]})


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("1,2.5", "2 columns"),
        ("1,2,x,y", "4 columns"),
        ("1.5,2,x", "column a"),
        ("1,much,x", "column d"),
        ("1,2,x\n3,4,y", "several lines"),
        ("1,2,x\r3,4,y", "several lines"),
        ("\n\n1,2,x", "several lines"),
        (NO_VALUE, "no value"),
        (EMPTY_VALUE, "no value"),
    ],
)
def test_csv_names_what_does_not_fit(line: str, said: str) -> None:
    found = Csv().misfit(line, SCHEMA)
    assert found is not None
    assert said in found


def test_csv_says_nothing_of_what_fits_or_is_cut() -> None:
    assert Csv().misfit('1,2e3,"x, y"', SCHEMA) is None
    assert Csv().misfit('1,2e3,"x\ny"\r\n', SCHEMA) is None
    assert Csv().misfit("1", SCHEMA, cut=True) is None
    assert ddl(SCHEMA) == "`a` int, `d` double, `b``c` string"


@pytest.mark.parametrize(
    ("form", "sample"),
    [
        (Avro(AVRO, "http://localhost:9", "t-value"), "at is outside of the years 1 to 9999: 5"),
        (Csv(), "1,2," + "x" * 200_000),
        (Json(), '{"a":' * 100_000),
    ],
)
def test_a_value_that_can_not_be_explained_raises_nothing(form: Format, sample: str) -> None:
    assert why_malformed(form, sample, SCHEMA) is None
    assert why_malformed(Csv(), "1,2", SCHEMA) == Csv().misfit("1,2", SCHEMA)


def test_avro_says_whether_frame_or_schema_is_wrong() -> None:
    with served() as registry:
        form = Avro(AVRO, registry.url, "t-value")
        known = registry.register("t-value", json.loads(AVRO))
        schemas = schema_registry.written(registry.url, "t-value")
        schemas.want(9)
        schemas.look()
        told = {each: form.misfit(each, SCHEMA) for each in ("7b7d", f"00{known:08x}ff", f"00{9:08x}02", NO_VALUE)}
    assert told["7b7d"]
    assert tells(told[f"00{known:08x}ff"], f"schema {known}")
    assert "schema 9" in str(told[f"00{9:08x}02"])
    assert "value" in str(told[NO_VALUE])


def test_a_schema_that_a_plan_does_not_know_asks_for_another_plan() -> None:
    with served() as registry:
        form = Avro(AVRO, registry.url, "t-value")
        why = "(STREAM_FAILED) [USER_RAISED_EXCEPTION] no plan for the Avro schema 7 of t-value SQLSTATE: P0001"
        assert form.needs_plan(why)
        assert not form.needs_plan(why.replace("t-value", "tt-value"))
        assert not form.needs_plan("[USER_RAISED_EXCEPTION] other")
        assert not Avro(AVRO).needs_plan(why)
        schemas = schema_registry.written(registry.url, "t-value")
        schemas.look()
        assert list(schemas.absent) == [7]


def test_a_schema_that_is_not_known_ends_a_query_unless_too_many_were_not() -> None:
    with served() as registry:
        known = registry.register("t-value", json.loads(AVRO))
        schemas = schema_registry.written(registry.url, "t-value")
        schemas.want(9)
        schemas.look()
        sql = framed_sql("v", schemas, AVRO, strict=True)
        assert f"WHEN X'00{known:08x}' THEN from_avro(" in sql
        assert "NOT IN (X'0000000009')" in sql
        assert "raise_error(" in sql
        assert "raise_error(" not in framed_sql("v", schemas, AVRO, strict=False)
        for id in range(100, 100 + schema_registry.MOST_ABSENT):
            schemas.want(id)
        schemas.look()
        assert "raise_error(" not in framed_sql("v", schemas, AVRO, strict=True)


def test_the_newest_schema_is_looked_for_first() -> None:
    with served() as registry:
        ids = [registry.register("t-value", json.loads(AVRO)) for _ in range(3)]
        schemas = schema_registry.written(registry.url, "t-value")
        schemas.look()
        sql = framed_sql("v", schemas, AVRO, strict=True)
        assert [sql.index(f"X'00{id:08x}'") for id in ids] == sorted(sql.index(f"X'00{id:08x}'") for id in ids)[::-1]


def test_text_in_a_schema_is_quoted() -> None:
    assert literal('it\'s \\ "x"') == "'it\\'s \\\\ \"x\"'"
