"""The line of %%qod_stream."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qod_magics.application.streams.options import COMMAND, OPTIONS, StreamOptions, parse_stream_line
from qod_magics.application.streams.sink import Console, KafkaTopic, Memory, Parquet
from qod_magics.arguments.parser import wants_help
from qod_magics.errors import UsageProblem


def complaint(line: str) -> str:
    with pytest.raises(UsageProblem) as caught:
        parse_stream_line(line)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_name_alone_has_the_documented_defaults() -> None:
    assert parse_stream_line("busy") == StreamOptions(
        name="busy", parallelism=1, mode="auto", starting="latest", fuse=True, sql=False, dry_run=False
    )


def test_every_option_in_its_long_form() -> None:
    line = (
        'busy --topic nyc-taxi --schema "zone INT, at STRUCT<x: DOUBLE>" --starting earliest --priority 3 '
        "--min-accuracy 0.4 --parallelism 2 --max-parallelism 4 --key zone --sink kafka:out "
        "--mode realtime --trigger 5 --max-latency 0.5 --utility 2.5 --no-fuse --sql --estimates --dry-run"
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
        key="zone",
        sink=KafkaTopic("out"),
        mode="realtime",
        trigger_s=5.0,
        max_latency_s=0.5,
        utility=2.5,
        fuse=False,
        sql=True,
        estimates=True,
        dry_run=True,
    )


@pytest.mark.parametrize(("text", "seconds"), [("2s", 2.0), ("2", 2.0), ("500ms", 0.5), ("1.5s", 1.5)])
def test_a_maximum_latency_in_seconds_or_milliseconds(text: str, seconds: float) -> None:
    assert parse_stream_line(f"q --max-latency {text}").max_latency_s == seconds


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
        ("'parquet:/with space'", Parquet("/with space")),
    ],
)
def test_sinks(text: str, sink: object) -> None:
    assert parse_stream_line(f"q --sink {text}").sink == sink


def test_a_kafka_sink_has_partitions() -> None:
    made = parse_stream_line("q --sink-option partitions=12 --sink kafka:out -p 1")
    assert made.sink == KafkaTopic("out", 12)
    assert made.priority == 1


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("q --sink-option partitions=12", "must go with --sink kafka:TOPIC, got none"),
        ("q --sink memory --sink-option partitions=12", "--sink-option partitions must go with --sink kafka:TOPIC"),
        ("q --sink kafka:o --sink-option 12", "must be NAME=VALUE, got '12'"),
        ("q --sink kafka:o --sink-option parts=12", "got 'parts'"),
        ("q --sink kafka:o --sink-option partitions=two", "must be a whole number, got 'two'"),
        ("q --sink kafka:o --sink-option partitions=0", "must be 1 or more, got 0"),
        ("q --sink kafka:o --sink-option", "--sink-option needs a value"),
        ("", "NAME is missing"),
        ("-p 1", "NAME is missing"),
        ("--from a b", "NAME is missing"),
        ("a b", "one NAME"),
        ("q --schema a INT --topic t", "quotes"),
        ("class", "keyword"),
        ("2fast", "identifier is needed, such as 'fast'"),
        ("my-stream", "such as 'my_stream'"),
        ("source", "reserved for the topic"),
        ("filter", "builtin"),
        ("_x", "underscore"),
        ("q --priorty 1", "Did you mean '--priority'?"),
        ("q -x", "unknown option '-x'"),
        ("q -p", "--priority needs a value"),
        ("q -p -a 1", "--priority needs a value"),
        ("q --from", "--from needs a value"),
        ("q -p high", "--priority: a whole number is needed, not 'high'"),
        ("q -p 1.5", "whole number"),
        ("q -a 1.01", "between 0 and 1, not 1.01"),
        ("q -a -0.1", "between 0 and 1"),
        ("q -a nan", "between 0 and 1"),
        ("q -a 40", "write 0.4 for 40 %"),
        ("q -a 40%", "write 0.4"),
        ("q -n 0", "from 1, not 0"),
        ("q --max-parallelism 0", "--max-parallelism: it counts instances, from 1, not 0"),
        ("q --trigger 0", "above 0"),
        ("q --trigger inf", "above 0"),
        ("q --sink kafak:t", "Did you mean 'kafka'?"),
        ("q --sink file:/x", "memory, kafka:TOPIC, parquet:PATH, console"),
        ("q --sink parquet", "needs a path: parquet:/"),
        ("q --sink parquet:", "needs a path"),
        ("q --sink kafka:", "needs a topic"),
        ("q --sink 'kafka:a b'", "can't name a Kafka topic"),
        ("q --sink memory:x", "nothing after it"),
        ("q --mode realtme", "Did you mean 'realtime'?"),
        ("q --topic t --starting newest", "latest, earliest"),
        ("q --topic t/x", "can't name a Kafka topic"),
        ("q --topic t --schema ' '", "DDL is needed"),
        ("q --topic t --from a", "not both"),
        ("q --schema 'a INT'", "name it with --topic"),
        ("q --starting latest", "name it with --topic"),
        ("q --malformed drop", "name it with --topic"),
        ("q --topic t --malformed drop", "give it with --schema"),
        ("q --topic t --schema 'a INT' --malformed dorp", "Did you mean 'drop'?"),
        ("q -p 1 -p 2", "--priority is given twice"),
        ('q --topic t --schema "a INT', 'closing " is missing'),
    ],
)
def test_what_is_wrong_is_said_in_one_line(line: str, says: str) -> None:
    assert says in complaint(line)


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
