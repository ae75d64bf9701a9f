"""The options of a `%%qod_stream` cell and of `qod.stream(...)`: the table, and the line that is read by it.

Each field of `StreamOptions` is a row. The line's parser, the help, the completion, the keywords of `Session.stream`
(`keywords.py`), the reference, and what a change means for a running query come from here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from qod_magics.application.graph import check_stream_name
from qod_magics.application.streams.rules import Rule, as_rules, rule
from qod_magics.application.streams.sink import Sink
from qod_magics.application.streams.sinks import SINK_FORMS, as_sink, parse_sink, with_options
from qod_magics.application.streams.stream import (
    DEFAULT_MAX_PARALLELISM,
    DEFAULT_MIN_ACCURACY,
    DEFAULT_PRIORITY,
    MODES,
    Mode,
    check_min_accuracy,
    check_min_juice,
    check_utility,
)
from qod_magics.application.streams.topic_input import (
    FORMATS,
    MALFORMED,
    REJECTS,
    TIME_UNITS,
    WITH,
    FormatName,
    Malformed,
    TimeUnit,
    as_schema,
    check_malformed,
    schema_text,
)
from qod_magics.arguments.option import Option, as_duration, duration, number, pairs, whole, words
from qod_magics.arguments.parser import Command, words_of
from qod_magics.errors import ApplicationError, UsageProblem, nearest
from qod_magics.formats.json_values import OPTIONS as JSON_OPTIONS
from qod_magics.sources.registry import FORMS, KINDS, as_source, source_name
from qod_magics.sources.source import ENDS, LATEST, check_pattern, check_start, check_topics
from qod_magics.sources.source import FORMS as FORMS_OF_START

#: What changes an option of a stream that runs; by default, the cell again: its query then begins without its state.
BY_SET = "%qod set, from the next cycle on"
BY_CELL = "the cell again: the query starts without its state"
BY_RESTART = "the cell again: the query restarts and keeps its state"


def accuracy(text: str) -> float:
    """Read a fraction of 1. Raises UsageProblem, ApplicationError."""
    if text.endswith("%"):
        raise UsageProblem(f"a fraction of 1 is needed, not {text!r}: write {number(text[:-1]) / 100:g}")
    value = number(text)
    check_min_accuracy(value)
    return value


def instances(text: str) -> int:
    """Read a number of instances. Raises UsageProblem."""
    value = whole(text)
    if value < 1:
        raise UsageProblem(f"it counts instances, from 1, not {text}")
    return value


def utility(text: str) -> float:
    """Read a number of 0 or more. Raises UsageProblem, ApplicationError."""
    value = number(text)
    check_utility(value)
    return value


def juice(text: str) -> float:
    """Read a fraction above 0 and up to 1. Raises UsageProblem, ApplicationError."""
    value = number(text)
    check_min_juice(value)
    return value


def ddl(text: str) -> str:
    """Read a schema, from a file if it names one. Raises UsageProblem: it is empty, or the file can't be read."""
    if not text.strip():
        raise UsageProblem('DDL is needed, such as "id INT, fare DOUBLE"')
    return schema_text(text)


def json_option(text: str) -> tuple[tuple[str, str], ...]:
    """Return an option NAME=VALUE, as Spark spells its name. Raises UsageProblem or ApplicationError: it has no such
    form, or there is none of this name."""
    ((name, value),) = pairs([text]).items()
    found = next((each for each in JSON_OPTIONS if each.casefold() == name.casefold()), None)
    if found is None:
        raise ApplicationError(
            f"--json-option must be one of {', '.join(JSON_OPTIONS)}, got {name!r}.{nearest(name, JSON_OPTIONS)}",
            name=name,
            option="--json-option",
            rule="known",
        )
    return ((found, value),)


def as_json_options(given: str | Sequence[str] | Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the options that the Python API is given. Raises UsageProblem, ApplicationError."""
    if isinstance(given, Mapping):
        given = [f"{name}={value}" for name, value in given.items()]
    return tuple(each for text in ((given,) if isinstance(given, str) else given) for each in json_option(text))


#: What rows have in common: all options of a topic, those that a schema parses, and the restrictions of a query.
_OF_TOPIC: Mapping[str, Any] = {"needs": ("topic",)}
_OF_SCHEMA: Mapping[str, Any] = {"needs": ("topic", "schema")}
_RESTRICTION: Mapping[str, Any] = {"running": BY_SET, "resumes": True}


def _row(form: str, help: str, default: Any = None, **more: Any) -> Any:
    """Return the field of a row."""
    row = Option(form, help, default=default, **{"running": BY_CELL, **more})
    return field(default=default, metadata={"row": row})


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """The options of one `%%qod_stream` cell."""

    name: str
    topic: str | None = _row(
        "--topic T",
        "Kafka topic that feeds the stream; the body calls it `source`, or by its own name; several with commas "
        "between, with one schema",
        convert=check_topics,
        changes="input",
    )
    pattern: str | None = _row(
        "--topic-pattern REGEX",
        "topics that feed the stream, by a regular expression of their whole names, also those that are created later: "
        "these are read from their first row",
        convert=check_pattern,
        changes="input",
    )
    source: str | None = _row(
        f"--source {'|'.join(FORMS)}",
        "what feeds the stream in the place of a topic: files that appear in a directory, with a JSON value or "
        "comma-separated values in each line, or Parquet",
        convert=source_name,
        offers=tuple(f"{kind}:" for kind in KINDS),
        accepts=as_source,
    )
    schema: str | None = _row(
        "--schema DDL",
        'columns of the topic\'s rows, as DDL in quotes: "id INT, fare DOUBLE"; "array<struct<id INT>>" where each '
        "JSON value is an array of rows; of another type: the column `value`; of Avro: a file .avsc, or its JSON",
        convert=ddl,
        unless="raw records; the columns of Parquet files; with --registry, the newest of the subject TOPIC-value",
        **_OF_TOPIC,
        accepts=as_schema,
        in_python="or a type of Spark",
    )
    format: FormatName | None = _row(
        "--format",
        "what the topic's values are; avro needs Spark's Avro package on the task managers",
        choices=FORMATS,
        unless="json with --schema, else raw",
        **_OF_TOPIC,
    )
    registry: str | None = _row(
        "--registry URL",
        "the schema registry in whose frames Avro values are; ${NAME} in the URL is a variable of the environment",
        unless="Avro values have no frame",
        needs=("topic", "format"),
    )
    with_record: tuple[str, ...] = _row(
        f"--with {'|'.join(WITH)}",
        "columns _key, _timestamp, _headers, _topic, _partition, _offset of the record beside those of its value; "
        "several with commas between",
        (),
        convert=words,
        several=True,
        offers=WITH,
        **_OF_SCHEMA,
    )
    starting: str = _row(
        "--starting WHERE",
        f"where a first run begins: {FORMS_OF_START} (offsets of all partitions); times are in UTC",
        LATEST,
        convert=check_start,
        offers=(*ENDS, "group:"),
        **_OF_TOPIC,
    )
    malformed: Malformed | None = _row(
        f"--malformed {'|'.join(MALFORMED)}|{REJECTS}NAME",
        "what happens to values that are not of the schema, besides being counted: drop; keep: null where a value "
        "does not fit; fail: the query ends; topic:NAME: the records go there at least once, with reason, topic, "
        "partition and offset in headers",
        convert=check_malformed,
        offers=(*MALFORMED, REJECTS),
        unless="drop; keep if the schema has a column _corrupt_record",
        **_OF_SCHEMA,
    )
    time_unit: TimeUnit = _row(
        "--time-unit",
        "what numbers in the schema's TIMESTAMP columns count since 1970; s as in Spark",
        "s",
        choices=TIME_UNITS,
        **_OF_SCHEMA,
    )
    json_options: tuple[tuple[str, str], ...] = _row(
        "--json-option NAME=VALUE",
        "of Spark's reader of JSON, such as timestampFormat=dd.MM.yyyy or allowComments=true",
        (),
        convert=json_option,
        several=True,
        **_OF_SCHEMA,
        accepts=as_json_options,
        in_python="or a mapping",
    )
    shed_by: tuple[str, ...] = _row(
        "--shed-by COL",
        "columns of the topic's rows: all rows of the same values are kept, or all are dropped, so that joins, "
        "distinct counts and sequences of the values kept are whole; `key`: the record's key; `auto`: by what the "
        "stream's queries ask for, as their cells say",
        (),
        convert=words,
        several=True,
        unless="each row is dropped by itself",
        **_OF_TOPIC,
    )
    upstream: tuple[str, ...] = _row(
        "--from A B",
        "streams that feed it",
        (),
        convert=words,
        several=True,
        names=("streams",),
        unless="those that the body names",
    )
    priority: int | None = _row(
        "-p, --priority N",
        "a whole number, higher wins",
        convert=whole,
        unless=f"{DEFAULT_PRIORITY} for a query",
        changes="restrictions of a query",
        **_RESTRICTION,
    )
    min_accuracy: float | None = _row(
        "-a, --min-accuracy F",
        "minimum share of the application's input that must reach the result, a fraction between 0 and 1",
        convert=accuracy,
        unless=f"{DEFAULT_MIN_ACCURACY} for a query: it loses no row",
        **_RESTRICTION,
    )
    max_latency_s: float | None = _row(
        "--max-latency S",
        "target for 95 % of the rows: seconds (2s, 500ms) from a row's arrival to its result; below 1, stateful "
        "queries run in real-time mode, too",
        convert=duration,
        accepts=as_duration,
        in_python='or text: "500ms"',
        **_RESTRICTION,
        removable=True,
    )
    utility: float | None = _row(
        "--utility U",
        "what meeting the maximum latency is worth, 0 or more",
        convert=utility,
        unless="the priority",
        **_RESTRICTION,
        removable=True,
    )
    min_juice: float | None = _row(
        "--min-juice F",
        "throughput target: share of the rows that arrive which must be processed, a fraction above 0 and up to 1; "
        "policy henge acts on it",
        convert=juice,
        **_RESTRICTION,
        removable=True,
    )
    parallelism: int = _row(
        "-n, --parallelism N",
        "instances, each over its share of the partitions. More than one with aggregations or joins needs --key",
        1,
        convert=instances,
        changes="instances",
        running=f"%qod scale; {BY_CELL}",
    )
    max_parallelism: int | None = _row(
        "--max-parallelism N",
        "the most instances that `%qod scale` or a policy may give it. The streams that feed it have as many "
        "partitions from the start; if it is not given, more are added once it is scaled",
        convert=instances,
        unless=f"{DEFAULT_MAX_PARALLELISM}, or the partitions of its topic",
        running=BY_RESTART,
        resumes=True,
    )
    near: str | None = _row(
        "--near STREAM",
        "start its instances on a task manager where this stream runs by then, if that has the CPU for them",
        names=("streams",),
        running=BY_RESTART,
        resumes=True,
    )
    key: str | None = _row("--key COL", "column that partitions rows of other streams over the instances")
    lend: bool = _row(
        "--lend",
        "with --key: instances may count rows of a key that belongs to another one, as policies dirigo and auto ask "
        "for a hot key; reading results merges the parts. Columns are count, sum, min, max, and avg beside its count",
        False,
    )
    fuse: bool = _row(
        "--no-fuse",
        "keep it in a Spark query of its own, apart from its neighbours and its readers",
        True,
        running="%qod fuse, %qod unfuse; the cell again",
        resumes=True,
        in_python="False for that; True: it may share one, and is recomputed by each reader where that is cheaper",
    )
    expect: tuple[Rule, ...] = _row(
        "--expect RULE",
        'what is true of each row of the stream, in SQL: "fare > 0". Rows that break it, or for which it is null, are '
        'counted, and kept; "fare > 0:drop" drops them, "fare > 0:fail" ends the query',
        (),
        convert=rule,
        several=True,
        accepts=as_rules,
    )
    sink: Sink | None = _row(
        "--sink SINK",
        f"where the rows go: {', '.join(SINK_FORMS)}. A relative PATH is one of the notebook's directory; a function "
        "of the notebook takes each batch (a DataFrame) and its number; a table exists already; FORMAT is one of "
        "Spark's writeStream",
        convert=parse_sink,
        offers=tuple(form.rstrip("ABCDEFGHIJKLMNOPQRSTUVWXYZ") for form in SINK_FORMS),
        unless="memory for a query",
        changes="output",
        accepts=as_sink,
        in_python="or a function for foreachBatch",
    )
    sink_options: tuple[str, ...] = _row(
        "--sink-option NAME=VALUE",
        "of a Kafka sink: partitions=12, which its topic has, and gets where there is none, 1 if not given, and "
        "format=avro with registry=URL or schema=FILE; of files, tables and formats: an option of Spark's writer, such "
        "as compression=gzip",
        (),
        several=True,
        cell_only=True,
    )  #: which `sink` has already
    mode: Mode = _row(
        "--mode",
        "Spark's real-time mode or micro-batches; auto: micro-batches for stateful queries, else real-time mode",
        "auto",
        choices=MODES,
        changes="execution",
    )
    trigger_s: float | None = _row(
        "--trigger S",
        "seconds between two batches (real-time mode: the length of one, at least 5)",
        convert=duration,
        accepts=as_duration,
        in_python='or text: "500ms"',
        running=BY_RESTART,
        resumes=True,
    )
    refresh_s: float | None = _row(
        "--refresh TIME",
        "how often tables beside the stream, which the body joins it with, are read again: 10m, 1h, 90s. The query "
        "restarts between two batches, and keeps its state; it runs in micro-batches, as a restart would have a "
        "real-time batch read again",
        convert=duration,
        accepts=as_duration,
        in_python='or text: "10m"',
        unless="once, when the query starts",
        running=BY_RESTART,
        resumes=True,
    )
    sql: bool = _row(
        "--sql",
        "the body is a Spark SQL query, also where that cannot be told from its first word; `:name` is the notebook's "
        "variable of that name",
        False,
        changes="the body",
        cell_only=True,
    )
    estimates: bool = _row(
        "--estimates",
        "SQL: columns that are count, sum or avg become estimates, structs of value, low and high (95 %)",
        False,
    )
    dry_run: bool = _row(
        "--dry-run",
        "check and show what would run, without running it",
        False,
        changes="checks",
        running="",
        cell_only=True,
    )

    @property
    def stated(self) -> frozenset[str]:
        """Return the fields that differ from their defaults."""
        return frozenset(field.name for field in fields(self) if getattr(self, field.name) != field.default)

    def shared(self, kind: type) -> dict[str, Any]:
        """Return those of the options that are fields of another dataclass, too, by name."""
        return {each.name: getattr(self, each.name) for each in fields(kind) if each.name in self.__slots__}


#: The rows, in the order of the help.
OPTIONS: tuple[Option, ...] = tuple(
    replace(each.metadata["row"], name=each.name) for each in fields(StreamOptions) if each.metadata
)
#: Those of the Python API.
IN_PYTHON = tuple(row for row in OPTIONS if not row.cell_only)
#: Those of a query that change while it runs, without a restart.
RESTRICTIONS = tuple(row for row in OPTIONS if row.running == BY_SET)
#: The defaults of those options that a cell may change while its query keeps its state.
RESUMING: Mapping[str, Any] = {row.name: row.default for row in OPTIONS if row.resumes}
_EXAMPLE = '%%qod_stream busy --topic trips --schema "zone INT, fare DOUBLE" -p 2 -a 0.4'
COMMAND = Command(
    "%%qod_stream",
    "Declare a stream. The body is Python whose last expression is a DataFrame, or SQL; streams are in scope by name. "
    "The line goes on below after a \\ at its end. Running the cell again replaces the stream. A stream that nobody "
    "reads and that has a sink, a priority or a minimum accuracy is a query; one without waits until somebody reads "
    "it.",
    OPTIONS,
    "NAME [options]",
    f"Example: {_EXAMPLE}\n             source.groupBy('zone').count()",
)
#: What an option means nothing without, and how that is said.
_NEEDED = {
    "topic": "{0} describes a topic: name it with --topic, or leave {0} out",
    "schema": "{0} is about values that a schema parses: give it with --schema, or leave it out",
    "format": "{0} is about values in Avro: add --format avro, or leave it out",
}


def parse_stream_line(line: str) -> StreamOptions:
    """Return the options of a `%%qod_stream` line.

    Raises UsageProblem, one line that names the option and the nearest word known. Never exits, never prints.
    """
    values, names = COMMAND.given(words_of(line))
    if not names:
        raise UsageProblem(f"the stream's NAME is missing; it comes first: {_EXAMPLE}", option="NAME")
    if len(names) > 1:
        raise UsageProblem(
            f"one NAME is needed, not {len(names)} ({', '.join(map(repr, names))}): inputs come after --from, "
            "and a value with spaces goes in quotes",
            option="NAME",
        )
    option = "NAME"
    try:
        name = check_stream_name(names[0])
        check_together(values)
        if "sink_options" in values:
            option = "--sink-option"
            values["sink"] = with_options(values.get("sink"), values["sink_options"])
    except (ApplicationError, UsageProblem) as error:
        raise UsageProblem(str(error), option=error.option or option) from None
    return StreamOptions(name, **values)


def check_together(stated: Collection[str]) -> None:
    """Raise ApplicationError, one line, unless these options, by their fields, go together."""
    if "topic" in stated and "source" in stated:
        raise ApplicationError(
            "a stream reads a topic (--topic) or another source (--source), not both: leave one out", option="--source"
        )
    if "pattern" in stated and not {"topic", "source"}.isdisjoint(stated):
        other = "--topic" if "topic" in stated else "--source"
        raise ApplicationError(
            f"--topic-pattern must stand without {other}, which names what is read, got both; leave one out",
            option="--topic-pattern",
            rule="one input",
        )
    if "source" in stated or "pattern" in stated:
        stated = {*stated, "topic"}
    if "topic" in stated and "upstream" in stated:
        raise ApplicationError(
            "a stream reads a topic (--topic) or other streams (--from), not both: give the topic a stream",
            option="--from",
        )
    given = {*stated, "schema"} if "registry" in stated else stated  # which has one
    for needed, message in _NEEDED.items():
        for row in OPTIONS:
            if needed in row.needs and row.name in stated and needed not in given:
                raise ApplicationError(message.format(row.flag), option=row.flag)
