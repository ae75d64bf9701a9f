"""Which rows of a Kafka sink are records as they are, and what the cell says of it."""

from __future__ import annotations

import pytest
from pyspark.sql.types import ArrayType, BinaryType, DataType, StringType, StructType

from qod_magics.application.streams.sink import KafkaTopic
from qod_magics.application.streams.sinks import AvroTopic
from qod_magics.spark.plans.records import RecordForm, record_form
from tests.texts import tells

HEADERS = ArrayType(StructType().add("key", StringType()).add("value", BinaryType()))
RAW = {"key": "binary", "value": "binary", "topic": "string", "partition": "integer", "offset": "long"}
RAW |= {"timestamp": "timestamp", "timestampType": "integer", "headers": HEADERS}


def form(**types: DataType | str) -> RecordForm:
    schema = StructType()
    for name, kind in types.items():
        schema.add(name, kind)
    return record_form(schema, KafkaTopic("out"))


@pytest.mark.parametrize(
    ("types", "columns"),
    [
        ({"key": "string", "value": "string"}, ("key", "value")),
        ({"VALUE": "binary", "Partition": "integer"}, ("value", "partition")),
        ({"value": "string", "headers": HEADERS, "topic": "string"}, ("value", "headers", "topic")),
        (RAW, ("key", "value", "headers")),
    ],
)
def test_columns_of_a_record_are_the_records(types: dict[str, DataType | str], columns: tuple[str, ...]) -> None:
    assert form(**types).columns == columns


@pytest.mark.parametrize(
    ("types", "why"),
    [
        ({"zone": "integer", "n": "long"}, ""),
        ({"key": "string", "n": "long"}, ""),
        ({"value": "string", "zone": "integer"}, "zone"),
        ({"value": "double"}, "value"),
        ({"key": "integer", "value": "string"}, "key"),
        ({"partition": "long", "value": "string"}, "partition"),
        ({"value": "string", "_weight": "double"}, "_weight"),
    ],
)
def test_other_rows_are_json_and_the_cell_says_why(types: dict[str, DataType | str], why: str) -> None:
    found = form(**types)
    assert found.columns == ()
    assert found.why.startswith(why)
    assert bool(found.why) == bool(why)


def test_the_cell_says_which_form_it_writes() -> None:
    assert tells(form(key="string", value="string").words("out", ("key",)), "key, value")
    assert "else out" in form(topic="string", value="string").words("out", None)
    assert tells(form(**RAW).words("out", None), "topic, partition, offset")
    assert tells(form(zone="integer").words("out", None), "JSON", "value")
    assert tells(form(zone="integer").words("out", ("zone",)), "key zone", "JSON")
    assert tells(form(n="long").words("out", ()), "key {}", "JSON")


def test_columns_of_a_record_are_avro_in_its_value_where_that_is_asked_for() -> None:
    found = record_form(StructType().add("value", "string"), AvroTopic("out", registry="http://u:pass@host:8081"))
    assert found.columns == ()
    said = found.words("out", None)
    assert tells(said, "Avro", "out-value", "host:8081")
    assert "pass" not in said
