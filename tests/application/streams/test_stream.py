"""A declaration by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import StructType

from qod_magics.application.recipes.python import PythonRecipe
from qod_magics.application.streams.sink import ForEachBatch, KafkaTopic, Memory, Parquet
from qod_magics.application.streams.stream import StreamDeclaration
from qod_magics.application.streams.topic_input import CORRUPT, TopicInput, as_schema
from qod_magics.errors import ApplicationError
from tests.application.frames import stream
from tests.raising import breaks

RECIPE = PythonRecipe("source")


def test_a_query_that_states_no_restriction_loses_no_row() -> None:
    query = stream("q", topic="t", sink=Parquet("/out"))
    assert (query.effective_priority, query.effective_min_accuracy) == (0, 1.0)
    assert not query.restricted


def test_a_query_that_states_no_sink_writes_to_memory() -> None:
    assert stream("q", topic="t", priority=1).effective_sink == Memory()


@pytest.mark.parametrize(
    ("declared", "path"),
    [
        ("out", "{0}/out"),
        ("./a/../out/", "{0}/out"),
        ("~/out", "{0}/home/out"),
        ("/data/out", "/data/out"),
        ("s3a://bucket/out", "s3a://bucket/out"),
        ("file:/data/out", "file:/data/out"),
        ("hdfs://namenode:8020/out", "hdfs://namenode:8020/out"),
    ],
)
def test_files_go_to_a_url_or_beside_the_notebook(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, declared: str, path: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    sink = Parquet(declared)
    assert sink.path == path.format(tmp_path)
    assert str(sink) == f"parquet:{sink.path}"
    monkeypatch.chdir("/")  # which another cell may do: the declaration stays the same
    assert stream("q", topic="t", sink=sink) == stream("q", topic="t", sink=Parquet(sink.path))


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ({"parallelism": 2}, "instances"),
        ({"key": "k"}, "instances"),
        ({"key": "k", "parallelism": 2, "sink": KafkaTopic("out")}, "memory"),
    ],
)
def test_rows_are_lent_between_instances_whose_parts_are_merged(given: dict[str, Any], rule: str) -> None:
    with pytest.raises(ApplicationError, check=breaks(rule, name="q", option="--lend")):
        stream("q", "a", priority=1, lend=True, **given)
    assert stream("q", "a", priority=1, lend=True, key="k", parallelism=2).lend


def test_demands_read_as_the_user_would_write_them() -> None:
    assert stream("q", topic="t", priority=0, min_accuracy=0.0, sink=KafkaTopic("out")).demands == (
        "--sink kafka:out --priority 0 --min-accuracy 0.0"
    )
    assert stream("q", topic="t").demands == ""


@pytest.mark.parametrize(
    ("topic", "names"), [("taxi", ("source", "taxi")), ("nyc-taxi", ("source",)), ("class", ("source",))]
)
def test_a_topic_is_called_source_and_its_own_name_when_that_is_an_identifier(
    topic: str, names: tuple[str, ...]
) -> None:
    assert stream("q", topic=topic).input_names == names


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"name": "F"}, "pyspark.sql.functions"),
        ({"priority": 1.5}, "whole"),
        ({"priority": True}, "whole"),
        ({"min_accuracy": 1.2}, "0.012"),
        ({"min_accuracy": -0.1}, "between 0 and 1"),
        ({"min_accuracy": float("nan")}, "between 0 and 1"),
        ({"parallelism": 0}, "from 1, not 0"),
        ({"parallelism": True}, "from 1"),
        ({"parallelism": 3, "max_parallelism": 2}, "not 2"),
        ({"max_parallelism": True}, "not True"),
        ({"trigger_s": 0.0}, "above 0"),
        *(({"refresh_s": refresh_s}, "from 5 s and finite") for refresh_s in (1.0, float("inf"), float("nan"), "10m")),
        ({"mode": "realtime", "refresh_s": 60.0}, "--mode realtime"),
        ({"trigger_s": 60.0, "refresh_s": 30.0}, "--trigger"),
        ({"max_latency_s": 0.0}, "above 0"),
        ({"max_latency_s": float("inf")}, "above 0"),
        ({"utility": -0.5}, "utility"),
        ({"utility": float("nan")}, "utility"),
        ({"mode": "fast"}, "'fast'"),
        ({"key": "zone"}, "partitions"),
        ({"inputs": (), "parallelism": 2}, "2"),
        ({"inputs": (), "key": "zone"}, "no input"),
        ({"inputs": ("a", "b", "a")}, "'a' twice"),
        ({"inputs": ("a",), "key": " "}, "is empty"),
        ({"mode": "realtime", "sink": Parquet("/out")}, "parquet:/out"),
        ({"mode": "realtime", "sink": ForEachBatch(print)}, "foreachBatch:print"),
        ({"mode": "realtime", "trigger_s": 1.0}, "at least 5 s"),
    ],
)
def test_what_a_declaration_may_not_say(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ApplicationError) as caught:
        StreamDeclaration(**{"name": "q", "recipe": RECIPE, "inputs": TopicInput("t"), **settings})
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [(("a b",), "'a b'"), (("t", " "), "'t'"), (("t", None, "now"), "--starting")],
)
def test_what_a_topic_input_may_not_say(arguments: tuple[Any, ...], says: str) -> None:
    with pytest.raises(ApplicationError, match=says):
        TopicInput(*arguments)


def test_a_schema_is_ddl_or_a_struct_type() -> None:
    struct = StructType().add("zone", "integer", nullable=False).add("at day`s end", StructType().add("x", "double"))
    assert as_schema(struct) == "`zone` int, `at day``s end` struct<`x`: double>"
    assert TopicInput("t", as_schema(StructType().add(CORRUPT, "string"))).has_corrupt
    assert (as_schema("id INT"), as_schema(None)) == ("id INT", None)
    with pytest.raises(ApplicationError, check=breaks("schema")):
        as_schema({"id": "INT"})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "given",
    [
        {"topic": "csv:/data", "schema": "id INT", "time_unit": "ms"},
        {"topic": "parquet:/data", "malformed": "keep"},
        {"topic": "json:/data", "shed_by": ("key",)},
        {"topic": "csv:/data", "schema": "id INT", "shed_by": ("auto",)},
        {"topic": "rate:5", "schema": "id INT"},
        {"topic": "json:/data", "schema": "id INT", "shed_by": ("key",)},
        {"topic": "csv:/data", "schema": "array<INT>"},
        {"topic": "jsn:/data"},
        {"topic": "json:"},
        {"topic": "s3a://bucket/data"},
    ],
)
def test_a_source_takes_the_options_of_its_kind_only(given: dict[str, Any]) -> None:
    with pytest.raises(ApplicationError):
        TopicInput(**given)


def test_sources_of_files_have_one_name_however_they_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names = {TopicInput(text).topic for text in ("json:in", f"json:{tmp_path}/in", f"json:file://{tmp_path}/x/../in")}
    assert names == {f"json:{tmp_path}/in"}
    assert TopicInput("json:in", "key INT", shed_by=("key",)).names == ("source",)
    assert TopicInput("kafka:trips").topic == TopicInput("trips").topic == "trips"
    assert TopicInput("parquet:in", shed_by=("zone",)).schema is None


AVRO = '{"type": "record", "name": "T", "fields": [{"name": "a", "type": ["null", "int"]}]}'


def test_the_columns_of_avro_are_those_of_its_schema() -> None:
    topic = TopicInput("t", AVRO, format="avro")
    assert (topic.columns, topic.values.label) == ("`a` INT", "Avro")
    assert TopicInput("t", "a INT", format="csv").values.label == "CSV"
    assert TopicInput("t", format="raw").columns is None
    assert TopicInput("json:in", "a INT").values.label == "JSON"
    assert TopicInput("csv:in", "a INT").values.label == "CSV"


@pytest.mark.parametrize(
    "given",
    [
        {"topic": "t", "schema": "a INT", "format": "avro"},
        {"topic": "t", "schema": AVRO},
        {"topic": "t", "schema": AVRO, "format": "json"},
        {"topic": "t", "schema": "a INT", "format": "raw"},
        {"topic": "t", "format": "csv"},
        {"topic": "t", "format": "avro"},
        {"topic": "t", "schema": "array<struct<a: int>>", "format": "csv"},
        {"topic": "t", "schema": "a INT", "format": "xml"},
        {"topic": "t", "schema": "a INT", "registry": "http://host"},
        {"topic": "t", "schema": AVRO, "format": "avro", "registry": "host:8081"},
        {"topic": "t", "schema": "a TIMESTAMP", "format": "csv", "time_unit": "ms"},
        {"topic": "json:in", "schema": "a INT", "format": "csv"},
        {"topic": "t", "schema": "a INT", "format": "csv", "json_options": (("locale", "de"),)},
        {"topic": "csv:in", "schema": "a INT", "json_options": (("locale", "de"),)},
        {"topic": "t", "schema": "a INT", "json_options": (("locale", "de"), ("locale", "en"))},
        {"topic": "t", "schema": "a TIMESTAMP", "time_unit": "ms", "json_options": (("timestampFormat", "yyyy"),)},
    ],
)
def test_a_format_and_its_schema_fit(given: dict[str, Any]) -> None:
    with pytest.raises(ApplicationError):
        TopicInput(**given)


def test_a_schema_may_be_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "t.avsc"
    file.write_text(AVRO, encoding="utf-8")
    assert as_schema(str(file)) == AVRO
    with pytest.raises(ApplicationError) as caught:
        as_schema(str(tmp_path / "other.avsc"))
    assert caught.value.rule == "readable"
