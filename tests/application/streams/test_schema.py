"""Schemas as DDL, and the rows that JSON values stand for."""

from __future__ import annotations

import pytest
from pyspark.sql.types import ArrayType, IntegerType, MapType, StringType, StructField, StructType

from qod_magics.application.streams.topic_input import CORRUPT, Form, TopicInput, as_schema, columns_of, form_of
from qod_magics.errors import ApplicationError

NAME = StructType([StructField("first-name", IntegerType())])


@pytest.mark.parametrize(
    ("given", "ddl"),
    [
        (StructType().add("zone", NAME), "`zone` struct<`first-name`: int>"),
        (StructType().add("a", ArrayType(NAME)), "`a` array<struct<`first-name`: int>>"),
        (StructType().add("m", MapType(StringType(), NAME)), "`m` map<string, struct<`first-name`: int>>"),
        (ArrayType(NAME), "array<struct<`first-name`: int>>"),
        (MapType(StringType(), IntegerType()), "map<string, int>"),
        ("id INT", "id INT"),
        (None, None),
    ],
)
def test_names_within_types_are_quoted(given, ddl):
    assert as_schema(given) == ddl


@pytest.mark.parametrize(
    ("schema", "form", "columns"),
    [
        ("zone INT, fare DOUBLE", Form.ROW, "zone INT, fare DOUBLE"),
        ("struct<zone INT>", Form.ROW, "struct<zone INT>"),
        ("array ARRAY<INT>", Form.ROW, "array ARRAY<INT>"),
        ("array<struct<zone INT>>", Form.ROWS, "`value` array<struct<zone INT>>"),
        (" ARRAY < STRUCT < a: STRUCT<b: INT> > > ", Form.ROWS, "`value` ARRAY < STRUCT < a: STRUCT<b: INT> > >"),
        ("array<int>", Form.VALUE, "`value` array<int>"),
        ("map<string, struct<a INT>>", Form.VALUE, "`value` map<string, struct<a INT>>"),
        ("DECIMAL(10, 2)", Form.VALUE, "`value` DECIMAL(10, 2)"),
        ("STRING", Form.VALUE, "`value` STRING"),
    ],
)
def test_a_value_is_a_row_several_rows_or_a_column(schema, form, columns):
    assert (form_of(schema), columns_of(schema)) == (form, columns)
    assert (TopicInput("t", schema).form, TopicInput("t", schema).columns) == (form, columns)


def test_what_arrays_of_rows_do_not_take():
    for arguments in (
        (f"array<struct<{CORRUPT} STRING>>",),
        ("array<struct<a INT>>", "latest", None, ("a",)),
        ("array<struct<a INT>>", "latest", None, (), "ms"),
    ):
        with pytest.raises(ApplicationError):
            TopicInput("t", *arguments)
    assert TopicInput("t", "array<struct<a INT>>", shed_by=("key",)).form is Form.ROWS
