"""Avro schemas as columns of Spark, and the part that a query reads."""

from __future__ import annotations

import json
from typing import Any

import pytest

from qod_magics.errors import ApplicationError
from qod_magics.formats.avro import READ, ddl, normal, pruned


def record(*fields: tuple[str, Any], **more: Any) -> str:
    return json.dumps(
        {"type": "record", "name": "T", "fields": [{"name": name, "type": kind} for name, kind in fields], **more}
    )


ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        ("int", "INT"),
        (["null", "long"], "BIGINT"),
        (["int", "null", "long"], "BIGINT"),
        (["float", "double"], "DOUBLE"),
        (["int", "string"], "STRUCT<member0: INT, member1: STRING>"),
        (["string"], "STRING"),
        ({"type": "array", "items": ["null", "string"]}, "ARRAY<STRING>"),
        ({"type": "map", "values": "long"}, "MAP<STRING, BIGINT>"),
        (ENUM, "STRING"),
        ({"type": "fixed", "name": "F", "size": 4}, "BINARY"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}, "DECIMAL(10,2)"),
        ({"type": "int", "logicalType": "date"}, "DATE"),
        ({"type": "long", "logicalType": "timestamp-micros"}, "TIMESTAMP"),
        ({"type": "long", "logicalType": "local-timestamp-millis"}, "TIMESTAMP_NTZ"),
        ({"type": "string", "logicalType": "uuid"}, "STRING"),
        ({"type": {"type": "string", "avro.java.string": "String"}}, "STRING"),
        (
            {"type": "record", "name": "In", "fields": [{"name": "x", "type": ["null", "bytes"]}]},
            "STRUCT<`x`: BINARY>",
        ),
    ],
)
def test_types_are_those_of_spark(kind: Any, column: str) -> None:
    assert ddl(record(("a", kind))) == f"`a` {column}"


@pytest.mark.parametrize(
    "text",
    [
        "{",
        '{"type": "string"}',
        record(),
        record(("a", "none")),
        record(("a", "null")),
        record((READ, "int")),
        record(("a", {"type": "long", "logicalType": "timestamp-nanos"})),
        record(("a", ["null", "T"])),  # contains itself
        '{"type": "record", "name": "T", "fields": [{"name": "a"}]}',
    ],
)
def test_others_are_refused_in_one_line(text: str) -> None:
    with pytest.raises(ApplicationError) as caught:
        normal(text)
    assert caught.value.option == "--schema"
    assert "\n" not in str(caught.value)


def test_a_pruned_schema_has_the_columns_read_and_a_mark() -> None:
    fields = json.loads(pruned(record(("a", "int"), ("b", "string"), ("c", "long")), ["c", "a"]))["fields"]
    assert [(field["name"], field.get("default")) for field in fields] == [("a", None), ("c", None), (READ, 1)]


def test_a_type_that_is_named_in_a_pruned_field_is_defined_where_it_is_used_next() -> None:
    text = record(("a", ENUM), ("b", ["null", "E"]), ("c", {"type": "array", "items": "n.E"}), namespace="n")
    fields = {field["name"]: field["type"] for field in json.loads(pruned(text, ["b", "c"]))["fields"]}
    assert fields["b"] == ["null", {**ENUM, "name": "n.E"}]
    assert fields["c"] == {"type": "array", "items": "n.E"}
