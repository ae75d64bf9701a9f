"""The line of %%qod_stream."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qod_magics.application.streams.keywords import stream_options
from qod_magics.application.streams.options import (
    COMMAND,
    OPTIONS,
    StreamOptions,
    as_json_options,
    parse_stream_line,
)
from qod_magics.application.streams.sink import (
    AvroFiles,
    Console,
    CsvFiles,
    JsonFiles,
    KafkaTopic,
    Memory,
    Named,
    Orc,
    Parquet,
    TextFiles,
)
from qod_magics.application.streams.sinks import AvroTopic
from qod_magics.application.streams.tables import DataSource, Delta, Iceberg, Table
from qod_magics.application.streams.topic_input import TopicInput
from qod_magics.arguments.parser import wants_help
from qod_magics.errors import ApplicationError, UsageProblem
from qod_magics.formats.json_values import Json
from tests.raising import breaks


def problem(line: str) -> UsageProblem:
    with pytest.raises(UsageProblem) as caught:
        parse_stream_line(line)
    assert "\n" not in str(caught.value)
    return caught.value


def test_a_name_alone_has_the_documented_defaults() -> None:
    assert parse_stream_line("busy") == StreamOptions(
        name="busy", parallelism=1, mode="auto", starting="latest", fuse=True, sql=False, dry_run=False
    )


def test_every_option_in_its_long_form() -> None:
    line = (
        'busy --topic nyc-taxi --schema "zone INT, at STRUCT<x: DOUBLE>" --starting earliest --priority 3 '
        "--min-accuracy 0.4 --parallelism 2 --max-parallelism 4 --near trips --key zone --sink kafka:out "
        "--mode realtime --trigger 5 --max-latency 0.5 --utility 2.5 --min-juice 0.9 --no-fuse "
        "--sql --estimates --dry-run"
    )
    assert parse_stream_line(line) == StreamOptions(
        name="busy",
        topic="nyc-taxi",
        schema="zone INT, at STRUCT<x: DOUBLE>",
        starting="earliest",
        priority=3,
        min_accuracy=0.4,
        parallelism=2,
        max_parallelism=4,
        near="trips",
        key="zone",
        sink=KafkaTopic("out"),
        mode="realtime",
        trigger_s=5.0,
        max_latency_s=0.5,
        utility=2.5,
        min_juice=0.9,
        fuse=False,
        sql=True,
        estimates=True,
        dry_run=True,
    )


@pytest.mark.parametrize(
    ("text", "seconds"), [("2s", 2.0), ("2", 2.0), ("500ms", 0.5), ("1.5s", 1.5), ("1h30m", 5400.0)]
)
def test_times_have_units(text: str, seconds: float) -> None:
    assert parse_stream_line(f"q --max-latency {text}").max_latency_s == seconds
    assert parse_stream_line(f"q --refresh {text}").refresh_s == seconds
    assert stream_options("q", {"trigger_s": text, "refresh_s": text}) == StreamOptions(
        "q", trigger_s=seconds, refresh_s=seconds
    )


@pytest.mark.parametrize("text", ["5sm", "inf", "nan", f"{'9' * 400}d", "1h30", "0m", "10x", "m", "5m s"])
def test_what_is_no_time_is_refused_in_cells_and_in_python_and_quoted_whole(text: str) -> None:
    assert repr(text) in str(problem(f"q --refresh '{text}'"))
    with pytest.raises(ApplicationError, check=breaks("duration", value=text)):
        stream_options("q", {"refresh_s": text})


def test_short_forms_and_equals_signs() -> None:
    assert parse_stream_line("q -p -1 -a 0 -n 4") == StreamOptions("q", priority=-1, min_accuracy=0.0, parallelism=4)
    assert parse_stream_line("q --topic=t --schema='a INT'") == StreamOptions("q", topic="t", schema="a INT")


@pytest.mark.parametrize(
    "line", ["q --from a b -p 1", "q -p 1 --from a b", "q --from a,b -p 1", "q --from a, b --priority=1"]
)
def test_from_takes_all_words_up_to_the_next_option(line: str) -> None:
    assert parse_stream_line(line) == StreamOptions("q", upstream=("a", "b"), priority=1)


@pytest.mark.parametrize(
    ("text", "sink"),
    [
        ("memory", Memory()),
        ("console", Console()),
        ("kafka:a.b", KafkaTopic("a.b")),
        ("parquet:/d/x:y", Parquet("/d/x:y")),
        ("orc:/d", Orc("/d")),
        ("json:s3a://b/c", JsonFiles("s3a://b/c")),
        ("csv:/d", CsvFiles("/d")),
        ("avro:/d", AvroFiles("/d")),
        ("function:write", Named("write")),
        ("$write", Named("write")),
        ("text:/d", TextFiles("/d")),
        ("delta:/d", Delta("delta", "/d")),
        ("table:lake.taxi.fares", Table("lake.taxi.fares")),
        ("iceberg:lake.fares", Iceberg("lake.fares")),
        ("noop:", DataSource("noop", "")),
        ("org.acme.Store:a:b", DataSource("org.acme.Store", "a:b")),
        ("'parquet:/with space'", Parquet("/with space")),
    ],
)
def test_sinks(text: str, sink: object) -> None:
    assert parse_stream_line(f"q --sink {text}").sink == sink


def test_a_kafka_sink_has_partitions() -> None:
    made = parse_stream_line("q --sink-option partitions=12 --sink kafka:out -p 1")
    assert made.sink == KafkaTopic("out", 12)
    assert made.priority == 1
    assert parse_stream_line("q --sink kafka:out --sink-option format=json").sink == KafkaTopic("out")


def test_a_kafka_sink_writes_avro_by_a_registry_or_by_a_schema(tmp_path: Path) -> None:
    file = tmp_path / "out.avsc"
    file.write_text('{"type": "record", "name": "r", "fields": [{"name": "a", "type": "int"}]}')
    text = file.read_text().replace(" ", "")
    made = parse_stream_line("q --sink kafka:out --sink-option format=avro registry=http://h:1 partitions=3").sink
    assert made == AvroTopic("out", 3, registry="http://h:1")
    assert parse_stream_line(f"q --sink kafka:out --sink-option format=avro schema={file}").sink == AvroTopic(
        "out", schema=text
    )
    assert made != KafkaTopic("out", 3)


def test_files_take_options_of_their_writer() -> None:
    made = parse_stream_line("q --sink csv:/d --sink-option sep=; header=true")
    assert made.sink == CsvFiles("/d", (("header", "true"), ("sep", ";")))
    made = parse_stream_line("q --sink csv:/d --sink-option sep=, 'timestampFormat=EEE, d'")
    assert made.sink == CsvFiles("/d", (("sep", ","), ("timestampFormat", "EEE, d")))


def test_options_of_json_have_sparks_names() -> None:
    made = parse_stream_line(
        "q --topic t --schema 'a DATE' --json-option dateformat=dd.MM.yyyy ALLOWCOMMENTS=true -p 1"
    )
    assert made.json_options == (("dateFormat", "dd.MM.yyyy"), ("allowComments", "true"))
    assert made.json_options == as_json_options({"dateFormat": "dd.MM.yyyy", "allowComments": "true"})
    values = TopicInput("t", "a DATE", json_options=made.json_options).values
    assert isinstance(values, Json)
    assert values.options == dict(made.json_options)
    for option in ("mode=FAILFAST", "multiLine=true", "dateFormat", "=x"):
        assert problem(f"q --topic t --schema 'a DATE' --json-option {option}").option == "--json-option"


@pytest.mark.parametrize(("text", "bare"), [("delta:/d", Delta("delta", "/d")), ("table:t", Table("t"))])
def test_tables_and_formats_take_options_of_their_writer(text: str, bare: DataSource | Table) -> None:
    made = parse_stream_line(f"q --sink {text} --sink-option mergeSchema=true").sink
    assert made == replace(bare, options=(("mergeSchema", "true"),))
    assert made != bare


@pytest.mark.parametrize(
    ("option", "lines"),
    {
        "NAME": [
            *("", "-p 1", "--from a b", "a b", "q --schema a INT --topic t", "class", "2fast", "my-stream", "source"),
            *("filter", "_x"),
        ],
        "--sink-option": [
            "q --sink-option partitions=12",
            "q --sink memory --sink-option partitions=12",
            *(f"q --sink kafka:o --sink-option {words}" for words in ("", "12", "parts=12", "partitions=two")),
            "q --sink kafka:o --sink-option partitions=0",
            *(f"q --sink kafka:o --sink-option {words}" for words in ("format=avro", "format=csv", "schema=a.avsc")),
            *(f"q --sink kafka:o --sink-option format=avro {words}" for words in ("schema=none.avsc", "schema=a")),
            "q --sink kafka:o --sink-option registry=http://h:1",
            "q --sink csv:/d --sink-option checkpointLocation=/x",
            "q --sink csv:/d --sink-option header=true HEADER=false",
            "q --sink csv:/d --sink-option header=true header=false",
            "q --sink function:write --sink-option a=1",
        ],
        "--priority": ["q -p", "q -p -a 1", "q -p high", "q -p 1.5", "q -p 1 -p 2"],
        "--min-accuracy": [f"q -a {value}" for value in ("1.01", "-0.1", "nan", "40", "40%")],
        "--parallelism": ["q -n 0"],
        "--max-parallelism": ["q --max-parallelism 0"],
        "--trigger": ["q --trigger 0", "q --trigger inf"],
        "--refresh": ["q --refresh 0m", "q --refresh 10x", "q --refresh m"],
        "--from": ["q --from", "q --topic t --from a"],
        "--sink": [
            f"q --sink {text}"
            for text in (
                "kafak:t",
                "noop",
                "$",
                "$a-b",
                "delta:",
                "detla:/x",
                "table",
                "parquet",
                "parquet:",
                "kafka:",
                "'kafka:a b'",
                "memory:x",
            )
        ],
        "--mode": ["q --mode realtme"],
        "--topic": ["q --topic t/x"],
        "--schema": ["q --topic t --schema ' '", "q --schema 'a INT'"],
        "--starting": ["q --topic t --starting newest", "q --starting latest"],
        "--malformed": [
            "q --malformed drop",
            "q --topic t --malformed drop",
            "q --topic t --schema 'a INT' --malformed dorp",
        ],
        "--priorty": ["q --priorty 1"],
        "-x": ["q -x"],
    }.items(),
)
def test_what_is_wrong_is_said_of_its_option_in_one_line(option: str, lines: list[str]) -> None:
    for line in lines:
        assert problem(line).option == option, line


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("2fast", "'fast'"),
        ("my-stream", "'my_stream'"),
        ("q --priorty 1", "Did you mean '--priority'?"),
        ("q -a 40", "0.4"),
        ("q -a 40%", "0.4"),
        ("q --sink kafak:t", "Did you mean 'kafka'?"),
        ("q --sink noop", "memory, kafka:TOPIC, parquet:PATH, orc:PATH"),
        ("q --sink detla:/x", "Did you mean 'delta'?"),
        ("q --mode realtme", "Did you mean 'realtime'?"),
        ("q --topic t --starting newest", "latest, earliest"),
        ("q --schema 'a INT'", "--topic"),
        ("q --topic t --malformed drop", "--schema"),
        ("q --schema a INT --topic t", "quotes"),
        ('q --topic t --schema "a INT', 'closing "'),
    ],
)
def test_and_how_it_is_written(line: str, hint: str) -> None:
    assert hint in str(problem(line))


def test_help_names_every_option_and_its_unit_and_is_not_parsed() -> None:
    text = COMMAND.help()
    for option in OPTIONS:
        assert option.usage in text
    for unit in ("seconds", "fraction between 0 and 1", "whole number", "instances"):
        assert unit in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 120
    assert wants_help("q --help")
    assert wants_help("-h")
    assert not wants_help("helper --from help")


def test_the_example_of_the_help_is_right() -> None:
    example = next(line for line in COMMAND.help().splitlines() if line.startswith("Example: "))
    assert parse_stream_line(example.partition("%%qod_stream")[2]).min_accuracy == 0.4


@given(st.text(max_size=40) | st.text(alphabet="qab -=,'\"%.:015", max_size=40))
def test_any_line_parses_or_is_refused_in_one_line(line: str) -> None:
    said = "a stream"
    try:
        parse_stream_line(line)
    except UsageProblem as error:
        said = str(error)
    assert len(said.splitlines()) == 1


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "--priority": st.integers(-99, 99),
            "--min-accuracy": st.floats(0, 1),
            "--parallelism": st.integers(1, 64),
            "--max-parallelism": st.integers(1, 64),
            "--trigger": st.floats(0.1, 1e6),
            "--max-latency": st.floats(0.1, 1e6),
            "--key": st.from_regex(r"[a-z][a-z ]{0,8}", fullmatch=True),
        },
    )
)
def test_values_come_back_as_written(values: dict[str, object]) -> None:
    line = "q " + " ".join(f"{flag} {shlex.quote(str(value))}" for flag, value in values.items())
    options = parse_stream_line(line)
    got = {
        "--priority": options.priority,
        "--min-accuracy": options.min_accuracy,
        "--parallelism": options.parallelism,
        "--max-parallelism": options.max_parallelism,
        "--trigger": options.trigger_s,
        "--max-latency": options.max_latency_s,
        "--key": options.key,
    }
    assert {flag: got[flag] for flag in values} == values


def test_a_source_takes_the_place_of_a_topic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert parse_stream_line('x --source json:in --schema "id INT"').source == f"json:{tmp_path}/in"
    for line, option in [
        ("x --topic t --source json:in", "--source"),
        ("x --source json:in --from a", "--from"),
        ("x --source jsn:in", "--source"),
        ("x --source json:in --malformed drop", "--malformed"),
    ]:
        with pytest.raises(UsageProblem) as caught:
            parse_stream_line(line)
        assert caught.value.option == option


def test_a_pattern_takes_the_place_of_a_topic() -> None:
    made = parse_stream_line("x --topic-pattern 'trips-.*' --schema 'id INT' --starting earliest")
    assert (made.topic, made.pattern) == (None, "trips-.*")
    for line, option in [
        ("x --topic t --topic-pattern t.*", "--topic-pattern"),
        ("x --topic-pattern t.* --source rate:1", "--topic-pattern"),
        ("x --topic-pattern t.* --from a", "--from"),
        ("x --topic-pattern 't('", "--topic-pattern"),
        ("x --topic t.*", "--topic"),
    ]:
        with pytest.raises(UsageProblem) as caught:
            parse_stream_line(line)
        assert caught.value.option == option
