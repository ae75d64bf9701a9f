"""The Avro schema of rows: what is read back by it has the same columns."""

from __future__ import annotations

import json
import re

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    CalendarIntervalType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from qod_magics.errors import ApplicationError
from qod_magics.formats.avro import columns, encoded_sql, schema_of

PLACE = StructType().add("x", DoubleType()).add("at", StructType().add("day", DateType()))
KINDS: list[DataType] = [
    *(BooleanType(), IntegerType(), LongType(), DoubleType(), StringType(), BinaryType(), DateType(), TimestampType()),
    *(TimestampNTZType(), DecimalType(12, 3), PLACE, ArrayType(PLACE), MapType(StringType(), ArrayType(LongType()))),
]


def test_rows_are_read_back_with_the_columns_that_they_had() -> None:
    row = StructType()
    for number, kind in enumerate(KINDS):
        row.add(f"c{number}", kind)
    found = columns(json.loads(schema_of(row)))
    told = {name: kind.lower().replace("`", "").replace(": ", ":").replace(", ", ",") for name, kind in found.items()}
    assert told == {field.name: field.dataType.simpleString() for field in row.fields}


@pytest.mark.parametrize(
    "row",
    [
        StructType().add("a b", LongType()),
        StructType().add("a", StructType().add("é", LongType())),
        StructType().add("a", MapType(LongType(), LongType())),
        StructType().add("a", ArrayType(CalendarIntervalType())),
    ],
)
def test_what_avro_does_not_have_is_refused_and_the_column_named(row: StructType) -> None:
    with pytest.raises(ApplicationError, match="column a") as caught:
        schema_of(row)
    assert caught.value.option == "--sink-option"


def test_records_of_columns_have_names_of_their_own() -> None:
    inner = StructType().add("x", LongType())
    row = StructType().add("a", StructType().add("b", inner)).add("a_b", StructType().add("y", LongType()))
    assert columns(json.loads(schema_of(row))).keys() == {"a", "a_b"}
    names = re.findall(r'"type":"record","name":"(\w+)"(?:,"namespace":"([\w.]+)")?', schema_of(row))
    assert names == [("Row", ""), ("a", "Row"), ("b", "Row.a"), ("a_b", "Row")]


def test_a_frame_has_the_id_of_the_schema() -> None:
    assert encoded_sql(["a"], "{}", 300) == "concat(X'000000012c', to_avro(struct(`a`), '{}'))"
    assert encoded_sql(["a`b"], "{}", None) == "to_avro(struct(`a``b`), '{}')"
