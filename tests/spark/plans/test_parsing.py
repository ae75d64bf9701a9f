"""The column for malformed values in schemas of both forms, and those of rejects."""

from __future__ import annotations

import pytest

from qod_magics.spark.plans.parsing import _REJECTED, marked
from qod_magics.spark.plans.shedder import taken_name


@pytest.mark.parametrize(
    ("schema", "with_it"),
    [
        ("a INT, b STRING", "a INT, b STRING, _malformed STRING"),
        (" a INT\n", "a INT, _malformed STRING"),
        ("s STRUCT<x: INT>", "s STRUCT<x: INT>, _malformed STRING"),
        ("struct<a: int>", "struct<a: int, _malformed: string>"),
        ("STRUCT <a: int,\nb: STRUCT<c: int>> ", "struct<a: int,\nb: STRUCT<c: int>, _malformed: string>"),
        ("a INT, _corrupt_record STRING", "a INT, _corrupt_record STRING"),
    ],
)
def test_a_schema_gets_a_column_for_malformed_values_unless_it_has_one(schema: str, with_it: str) -> None:
    assert marked(schema) == with_it


@pytest.mark.parametrize("name", [*_REJECTED, _REJECTED[0].upper()])
def test_columns_of_rejects_are_reserved(name: str) -> None:
    assert taken_name(["a", name]) == name
