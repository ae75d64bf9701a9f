"""The line of `%%qod_stream`: its options, their help, and errors for anything else."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from qod_magics.application.names import check_stream_name, check_topic
from qod_magics.application.streams.sink import SINK_FORMS, Sink, parse_sink, with_options
from qod_magics.application.streams.stream import (
    MALFORMED,
    MODES,
    STARTING,
    TIME_UNITS,
    Malformed,
    Mode,
    Starting,
    TimeUnit,
    check_min_accuracy,
    check_utility,
)
from qod_magics.application.streams.words import without_comment, words_of
from qod_magics.errors import ApplicationError, UsageProblem, nearest


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """The options of one `%%qod_stream` cell."""

    name: str
    topic: str | None = None
    schema: str | None = None  #: DDL
    upstream: tuple[str, ...] = ()  #: from `--from`; (): to be found in the body
    priority: int | None = None
    min_accuracy: float | None = None  #: fraction of 1
    parallelism: int = 1
    max_parallelism: int | None = None  #: instances
    key: str | None = None
    sink: Sink | None = None
    sink_options: tuple[str, ...] = ()  #: NAME=VALUE, which `sink` has already
    mode: Mode = "auto"
    trigger_s: float | None = None  #: seconds
    max_latency_s: float | None = None  #: seconds
    utility: float | None = None
    starting: Starting = "latest"
    malformed: Malformed | None = None
    time_unit: TimeUnit = "s"
    shed_by: tuple[str, ...] = ()  #: columns
    fuse: bool = True
    sql: bool = False
    estimates: bool = False
    dry_run: bool = False

    @property
    def stated(self) -> frozenset[str]:
        """The fields that differ from their defaults."""
        return frozenset(field.name for field in fields(self) if getattr(self, field.name) != field.default)


@dataclass(frozen=True, slots=True)
class Option:
    """One option of the line, for the parser, the help and the completer."""

    flag: str
    field: str  #: of StreamOptions
    help: str
    short: str | None = None
    metavar: str | None = None  #: None: a switch without a value
    convert: Callable[[str], Any] = str
    several: bool = False  #: takes all the words up to the next option
    choices: tuple[str, ...] = ()

    @property
    def form(self) -> str:
        """As the help shows it: "-p, --priority N"."""
        flags = self.flag if self.short is None else f"{self.short}, {self.flag}"
        return flags if self.metavar is None else f"{flags} {self.metavar}"


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise UsageProblem(f"a whole number is needed, not {text!r}") from None


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UsageProblem(f"a number is needed, not {text!r}") from None


def _accuracy(text: str) -> float:
    if text.endswith("%"):
        raise UsageProblem(f"a fraction of 1 is needed, not {text!r}: write {_number(text[:-1]) / 100:g}")
    value = _number(text)
    check_min_accuracy(value)
    return value


def _instances(text: str) -> int:
    value = _whole(text)
    if value < 1:
        raise UsageProblem(f"it counts instances, from 1, not {text}")
    return value


def _seconds(text: str) -> float:
    value = _number(text.removesuffix("s"))
    if not 0 < value < float("inf"):
        raise UsageProblem(f"seconds above 0 are needed, not {text!r}")
    return value


def max_latency(text: str) -> float:
    """Seconds from "2", "2s" or "500ms". Raises UsageProblem."""
    if not text.endswith("ms"):
        return _seconds(text)
    value = _number(text.removesuffix("ms")) / 1e3
    if not 0 < value < float("inf"):
        raise UsageProblem(f"milliseconds above 0 are needed, not {text!r}")
    return value


def utility(text: str) -> float:
    """A number of 0 or more. Raises UsageProblem or ApplicationError."""
    value = _number(text)
    check_utility(value)
    return value


def _schema(text: str) -> str:
    if not text.strip():
        raise UsageProblem('DDL is needed, such as "id INT, fare DOUBLE"')
    return text


def _choice(choices: tuple[str, ...]) -> Callable[[str], str]:
    def convert(text: str) -> str:
        if text not in choices:
            raise UsageProblem(f"unknown value {text!r}.{nearest(text, choices)} One of {', '.join(choices)}.")
        return text

    return convert


OPTIONS: tuple[Option, ...] = (
    Option(
        "--topic",
        "topic",
        "Kafka topic that feeds the stream; the body calls it `source`, or by its own name",
        metavar="T",
        convert=check_topic,
    ),
    Option(
        "--schema",
        "schema",
        'columns of the topic\'s JSON rows, as DDL in quotes: "id INT, fare DOUBLE"; "array<struct<id INT>>" where '
        "each value is an array of rows",
        metavar="DDL",
        convert=_schema,
    ),
    Option(
        "--starting",
        "starting",
        "starting offsets of a first run; latest if not given",
        metavar="|".join(STARTING),
        convert=_choice(STARTING),
        choices=STARTING,
    ),
    Option(
        "--malformed",
        "malformed",
        "what becomes of values that are not JSON of the schema, besides being counted: drop if not given; keep: null "
        "where a value does not fit; fail: the query ends",
        metavar="|".join(MALFORMED),
        convert=_choice(MALFORMED),
        choices=MALFORMED,
    ),
    Option(
        "--time-unit",
        "time_unit",
        "what numbers in the schema's TIMESTAMP columns count since 1970: s if not given, as in Spark; ms, us or ns",
        metavar="|".join(TIME_UNITS),
        convert=_choice(TIME_UNITS),
        choices=TIME_UNITS,
    ),
    Option(
        "--shed-by",
        "shed_by",
        "columns of the topic's rows: all rows of the same values are kept, or all are dropped, so that joins, "
        "distinct counts and sequences of the values kept are whole; `key`: the record's key; `auto`: by what the "
        "stream's queries ask for, as their cells say; if not given, each row is dropped by itself",
        metavar="COL",
        several=True,
    ),
    Option(
        "--from",
        "upstream",
        "streams that feed it; if not given they are found by name in the body",
        metavar="A B",
        several=True,
    ),
    Option("--priority", "priority", "a whole number, higher wins; a query without one has 0", "-p", "N", _whole),
    Option(
        "--min-accuracy",
        "min_accuracy",
        "minimum share of the application's input that must reach the result, a "
        "fraction between 0 and 1; a query without one has 1.0: it loses no row",
        "-a",
        "F",
        _accuracy,
    ),
    Option(
        "--parallelism",
        "parallelism",
        "instances, each over its share of the partitions; 1 if not given. More than one "
        "with aggregations or joins needs --key",
        "-n",
        "N",
        _instances,
    ),
    Option(
        "--max-parallelism",
        "max_parallelism",
        "the most instances that `%qod scale` or a policy may give it; 8 if not given, for a topic its partitions. The "
        "streams that feed it have as many partitions from the start; if not given, more are added once it is scaled",
        metavar="N",
        convert=_instances,
    ),
    Option("--key", "key", "column that partitions rows of other streams over the instances", metavar="COL"),
    Option(
        "--sink",
        "sink",
        "where the rows go; memory if a query names none. A relative PATH is one of the notebook's directory",
        metavar="|".join(SINK_FORMS),
        convert=parse_sink,
        choices=("memory", "kafka:", "parquet:", "console"),
    ),
    Option(
        "--sink-option",
        "sink_options",
        "of a Kafka sink: partitions=12, which its topic has, and gets where there is none; 1 if not given",
        metavar="NAME=VALUE",
        several=True,
    ),
    Option(
        "--mode",
        "mode",
        "Spark's real-time mode or micro-batches; auto: micro-batches for stateful queries, else real-time mode",
        metavar="|".join(MODES),
        convert=_choice(MODES),
        choices=MODES,
    ),
    Option(
        "--trigger",
        "trigger_s",
        "seconds between two batches (real-time mode: the length of one, at least 5)",
        metavar="S",
        convert=_seconds,
    ),
    Option(
        "--max-latency",
        "max_latency_s",
        "target for 95 % of the rows: seconds (2s, 500ms) from a row's arrival to its result; below 1, stateful "
        "queries run in real-time mode, too",
        metavar="S",
        convert=max_latency,
    ),
    Option(
        "--utility",
        "utility",
        "what meeting the maximum latency is worth, 0 or more; the priority if not given",
        metavar="U",
        convert=utility,
    ),
    Option(
        "--no-fuse",
        "fuse",
        "keep it in a Spark query of its own, apart from its neighbours and its readers",
    ),
    Option(
        "--sql",
        "sql",
        "the body is a Spark SQL query, also where that cannot be told from its first word; `:name` is the notebook's "
        "variable of that name",
    ),
    Option(
        "--estimates",
        "estimates",
        "SQL: columns that are count, sum or avg become estimates, structs of value, low and high (95 %)",
    ),
    Option("--dry-run", "dry_run", "check and show what would run, without running it"),
)
_SWITCHED_ON: Mapping[str, bool] = {"fuse": False, "sql": True, "estimates": True, "dry_run": True}
_BY_FLAG = {flag: option for option in OPTIONS for flag in (option.flag, option.short) if flag is not None}
_EXAMPLE = '%%qod_stream busy --topic trips --schema "zone INT, fare DOUBLE" -p 2 -a 0.4'


def wants_help(line: str) -> bool:
    """Whether the line asks for the help text instead of declaring a stream."""
    return any(word in ("--help", "-h", "-?") for word in without_comment(line).split())


def help_text() -> str:
    """What `%%qod_stream --help` shows: each option with its unit."""
    width = 22
    lines = [
        "%%qod_stream NAME [options]",
        "",
        "Declare a stream. The body is Python whose last expression is a DataFrame, or SQL; streams are in scope by",
        "name. The line goes on below after a \\ at its end. Running the cell again replaces the stream. A stream that",
        "nobody reads and that has a sink, a priority or a minimum accuracy is a query; one without waits until",
        "somebody reads it.",
        "",
    ]
    for option in OPTIONS:
        first, *rest = _wrapped(option.help, 118 - width - 4)
        gap = f"  {option.form:<{width}}  "
        lines += [gap + first] if len(option.form) <= width else [f"  {option.form}", " " * (width + 4) + first]
        lines += [" " * (width + 4) + part for part in rest]
    return "\n".join([*lines, "", f"Example: {_EXAMPLE}", "             source.groupBy('zone').count()"])


def parse_stream_line(line: str) -> StreamOptions:
    """The options of a `%%qod_stream` line.

    Raises UsageProblem, one line that names the option and the nearest word known. Never exits, never prints.
    """
    names, values = _read(words_of(line))
    if not names:
        raise UsageProblem(f"the stream's NAME is missing; it comes first: {_EXAMPLE}")
    if len(names) > 1:
        raise UsageProblem(
            f"one NAME is needed, not {len(names)} ({', '.join(map(repr, names))}): inputs come after --from, "
            "and a value with spaces goes in quotes"
        )
    try:
        name = check_stream_name(names[0])
    except ApplicationError as error:
        raise UsageProblem(str(error)) from None
    try:
        check_together(values)
        if "sink_options" in values:
            values["sink"] = with_options(values.get("sink"), values["sink_options"])
    except ApplicationError as error:
        raise UsageProblem(str(error)) from None
    return StreamOptions(name, **values)


def _read(words: list[str]) -> tuple[list[str], dict[str, Any]]:
    names: list[str] = []
    values: dict[str, Any] = {}
    waiting = iter(_split_at_equals(words))
    word = next(waiting, None)
    while word is not None:
        if not _is_option(word):
            names.append(word)
            word = next(waiting, None)
            continue
        option = _known(word)
        if option.field in values:
            raise UsageProblem(f"{option.flag} is given twice")
        if option.metavar is None:
            values[option.field] = _SWITCHED_ON[option.field]
            word = next(waiting, None)
            continue
        taken, word = _taken(option, waiting)
        values[option.field] = taken if option.several else _converted(option, taken[0])
    return names, values


def _split_at_equals(words: list[str]) -> Iterator[str]:
    for word in words:
        flag, equals, value = word.partition("=")
        if equals and word.startswith("--"):
            yield from (flag, value)
        else:
            yield word


def _is_option(word: str) -> bool:
    return word.startswith("-") and len(word) > 1 and not word[1].isdigit() and word[1] != "."


def _known(word: str) -> Option:
    if word not in _BY_FLAG:
        raise UsageProblem(f"unknown option {word!r}.{nearest(word, _BY_FLAG)} %%qod_stream --help explains them.")
    return _BY_FLAG[word]


def _taken(option: Option, waiting: Iterator[str]) -> tuple[tuple[str, ...], str | None]:
    """The option's values, and the word after them."""
    taken: list[str] = []
    word = next(waiting, None)
    while word is not None and not (_is_option(word) and (option.several or word in _BY_FLAG)):
        taken += [part for part in word.split(",") if part] if option.several else [word]
        word = next(waiting, None)
        if not option.several:
            break
    if not taken:
        raise UsageProblem(f"{option.flag} needs a value: {option.flag} {option.metavar}")
    return tuple(taken), word


def _converted(option: Option, text: str) -> Any:
    try:
        return option.convert(text)
    except (UsageProblem, ApplicationError) as error:
        raise UsageProblem(f"{option.flag}: {error}") from None


def check_together(stated: Collection[str]) -> None:
    """ApplicationError, in one line, unless these options, by their fields, go together."""
    if "topic" in stated and "upstream" in stated:
        raise ApplicationError(
            "a stream reads a topic (--topic) or other streams (--from), not both: give the topic a stream"
        )
    for dependent in ("schema", "starting", "malformed", "time_unit", "shed_by"):
        flag = "--" + dependent.replace("_", "-")
        if dependent in stated and "topic" not in stated:
            raise ApplicationError(f"{flag} describes a topic: name it with --topic, or leave {flag} out")
    for parsing in ("malformed", "time_unit"):
        if parsing in stated and "schema" not in stated:
            flag = "--" + parsing.replace("_", "-")
            raise ApplicationError(
                f"{flag} is about values that a schema parses: give it with --schema, or leave it out"
            )


def _wrapped(text: str, width: int) -> list[str]:
    lines = [""]
    for word in text.split():
        fits = not lines[-1] or len(lines[-1]) + 1 + len(word) <= width
        lines = [*lines[:-1], f"{lines[-1]} {word}".lstrip()] if fits else [*lines, word]
    return lines
