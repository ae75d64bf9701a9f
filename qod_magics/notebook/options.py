"""The table of `%qod`: its commands and their options.

A row's name is the keyword of the session's method that the command calls. Parser, help, completion, `%config` and the
reference come from here; so do those of `%%qod_stream`, whose rows are the fields of `StreamOptions`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from qod_magics.application.streams.options import COMMAND as STREAM
from qod_magics.application.streams.options import RESTRICTIONS as OF_STREAMS
from qod_magics.application.streams.options import accuracy
from qod_magics.arguments.option import Option, cores, or_none, whole, words
from qod_magics.arguments.parser import Command, wrapped
from qod_magics.machine.java import JIT_OPTIONS
from qod_magics.policies import is_policy, parameters_of, policy_names
from qod_magics.results.drawing import FORMS
from qod_magics.results.exact import CPU
from qod_magics.session.settings import Settings

_SETTINGS: Mapping[str, Any] = {each.name: each.default for each in fields(Settings)}

#: Of options that take several values.
_SEVERAL: Mapping[str, Any] = {"default": [], "several": True, "repeats": True}

# -- rows of several commands ------------------------------------------------------------------------------------------

PERIOD = Option(
    "--period S",
    "seconds between two decisions of the controller",
    float,
    name="period_s",
    default=_SETTINGS["period_s"],
    changes="decisions",
    running="%qod period SECONDS",
)
POLICY = Option(
    "--policy NAME",
    "the policy that decides (stream-economics: the paper's); in quotes with its parameters, 'henge settle_s=15'",
    name="policy_name",
    default=_SETTINGS["policy_name"],
    one_of=policy_names,
    changes="decisions",
    running="%qod policy NAME",
)
HEADROOM = Option(
    "--headroom F",
    "part of each task manager's cores that plans leave free, 0..1",
    float,
    default=_SETTINGS["headroom"],
)
JIT = Option(
    "--jit",
    "JIT compilation of local task managers: full; jvm, the JVM's defaults; or c1 for runs of a few minutes",
    default=_SETTINGS["jit"],
    choices=tuple(JIT_OPTIONS),
)
CHECKPOINTS = Option(
    "--checkpoints URL",
    "where checkpoints go: any URL that Spark writes to",
    default=_SETTINGS["checkpoints"],
    unless="a temporary directory",
)
RECORD = Option(
    "--record FILE",
    "append the recording to this .jsonl",
    unless="a temporary file",
    changes="files",
    running="qod.record(FILE)",
)
KAFKA = Option("--kafka HOST:PORT", "your own broker", unless="one is started", changes="Kafka")
KAFKA_OPTION = Option(
    "--kafka-option NAME=VALUE",
    "an option of its clients (SASL, TLS), as librdkafka names it",
    name="kafka_options",
    default=[],
    repeats=True,
    secret=True,
)
KAFKA_CONFIG = Option(
    "--kafka-config FILE", "client.properties of your broker, with ${NAME} for variables of the environment"
)
KAFKA_PREFIX = Option(
    "--kafka-prefix TEXT", "begins the names of the session's own topics and consumer groups on your broker", default=""
)
INTERNAL_KAFKA = Option(
    "--internal-kafka HOST:PORT",
    "make the session's own topics on this broker, and none on yours; own: on one that is started",
    offers=("own",),
    unless="on yours",
)
INTERNAL_KAFKA_OPTION = replace(
    KAFKA_OPTION,
    form="--internal-kafka-option NAME=VALUE",
    name="internal_kafka_options",
    help="the same of its clients",
)
INTERNAL_KAFKA_CONFIG = Option("--internal-kafka-config FILE", "client.properties of it")
#: The Kafka clusters of a session.
CLUSTERS = (
    KAFKA,
    KAFKA_OPTION,
    KAFKA_CONFIG,
    KAFKA_PREFIX,
    INTERNAL_KAFKA,
    INTERNAL_KAFKA_OPTION,
    INTERNAL_KAFKA_CONFIG,
)
PACKAGES = Option(
    "--packages G:A:V",
    "Maven packages that local task managers load, with what these need",
    words,
    default=[],
    repeats=True,
    changes="Spark",
)
JARS = Option("--jars FILE", "jars that local task managers load", words, default=[], repeats=True)
CONF = Option(
    "--conf NAME=VALUE",
    "a Spark setting of local task managers, as for spark-submit",
    default=[],
    repeats=True,
    secret=True,
)
MEMORY = Option("--memory SIZE", "Java heap of each local task manager", default=_SETTINGS["memory"])
SLOTS = Option("--slots N", "task slots of each local task manager", int, default=_SETTINGS["slots"])
#: The rows whose defaults `%config QodMagics` holds.
CONFIGURED = (PERIOD, HEADROOM, POLICY, JIT, CHECKPOINTS)
#: The commands to which they apply: others take the session's values.
CONFIGURABLE = frozenset({"up", "attach"})


#: What a server of the user's does not tell itself.
UI = Option("--ui URL", "address of its Spark UI, http or https, for CPU times", unless="looked for")
UI_HEADER = Option(
    "--ui-header NAME=VALUE", "a header that its UI asks for", name="ui_headers", default=[], repeats=True, secret=True
)


def _as_up(row: Option) -> Option:
    return replace(row, default=None, unless="as for `up`")


def _restriction(row: Option) -> Option:
    """Return the row of a stream's restriction for `%qod set`."""
    row = replace(row, unless="", changes="", running="")
    if row.removable:
        return replace(row, convert=or_none(row.convert), help=f"{row.help}; or none")
    return replace(row, convert=int if row.convert is whole else float)


#: Of `%qod set`: it takes away what a query may do without.
RESTRICTIONS = tuple(map(_restriction, OF_STREAMS))


def _command(name: str, summary: str, *options: Option) -> Command:
    return Command(f"%qod {name}", summary, options)


# -- parameters of policies --------------------------------------------------------------------------------------------


def _parameters(words: Sequence[str]) -> Iterable[str]:
    """Yield the beginnings of the parameters that the policy of a line has and the line does not give."""
    if words and is_policy(words[0]):
        given = {word.partition("=")[0] for word in words[1:]}
        yield from (f"{row.name}=" for row in parameters_of(words[0]) if row.name not in given)


def parameters_text(name: str) -> str:
    """Return a policy's parameters with their values, a line each. Raises UsageProblem: there is no such policy."""
    rows = parameters_of(name)
    if not rows:
        return f"policy {name} has no parameters"
    shown = [wrapped(f"{row.name}={row.value}  ({row.rule}) {row.meaning}", 2) for row in rows]
    return "\n".join([f"parameters of policy {name}:", *shown])


def _help_on_parameters(words: Sequence[str]) -> str:
    named = [word for word in words if not word.startswith("-") and "=" not in word]
    if not named or not is_policy(named[0]):
        found = {name: len(parameters_of(name)) for name in policy_names()}
        known = ", ".join(f"{name} ({count})" for name, count in found.items() if count)
        return wrapped(f"Policies with parameters: {known}. %qod policy NAME -h lists those of one.", 0)
    return parameters_text(named[0])


_COMMANDS = (
    _command(
        "up",
        "Start Kafka, task managers and the controller.",
        Option(
            "-n, --task-managers N",
            "local ones to start",
            int,
            unless="1, with --connect none",
            changes="task managers",
            running="%qod add-tm or %qod remove-tm",
        ),
        Option(
            "--cores N",
            "cores of each local one or, with --connect alone, of each server; or a number for the local ones and each "
            "server, in their order",
            int,
            unless="an equal share; of a server, as its UI tells",
            **_SEVERAL,
        ),
        Option("--connect URL", "servers to use, sc://host:port", **_SEVERAL, running="%qod add-tm URL"),
        replace(UI, help="addresses of their Spark UIs, for CPU times: one for each, or none for none", **_SEVERAL),
        replace(UI_HEADER, help="a header that these UIs ask for"),
        MEMORY,
        SLOTS,
        JIT,
        Option(
            "--max-task-managers N",
            "budget within which plans add and release task managers",
            int,
            unless="they don't",
            changes="budget",
        ),
        Option("--spare-connect URL", "servers that plans may add", **_SEVERAL),
        Option("--no-standby", "start none ahead within the budget", name="standby", default=True),
        *CLUSTERS,
        Option("--kafka-cpus N,N", "cores for the embedded broker", cores, unless="all"),
        PACKAGES,
        JARS,
        CONF,
        PERIOD,
        POLICY,
        HEADROOM,
        RECORD,
        CHECKPOINTS,
        Option("--name NAME", "go on with this session after the kernel has ended; needs --checkpoints"),
        Option("--take-over", "go on with it though another kernel holds it, whose queries then end", default=False),
        Option("--config FILE", "a TOML file with any of these options; the line overrides it"),
    ),
    _command(
        "attach",
        "Use the notebook's own Spark session as the only task manager.",
        Option("[name]", "the variable that holds it", default="spark"),
        *CLUSTERS,
        PERIOD,
        POLICY,
        RECORD,
        CHECKPOINTS,
    ),
    _command("down", "Stop everything that was started."),
    _command(
        "topic",
        "Create a Kafka topic, for rows of your own; without a NAME, list the topics.",
        Option("[name] NAME", ""),
        Option("--partitions N", "partitions of the topic", int, unless="1"),
    ),
    _command(
        "peek",
        "Look into a topic: its rate, its newest records, and a --schema line for them.",
        Option("name TOPIC", "", names=("topics",)),
    ),
    _command("status", "What runs where, and how it keeps up."),
    _command(
        "watch",
        "Show the dashboard here; in a terminal, the status once a period. `await qod.watch(30)` waits as well.",
        Option("[seconds]", "show the status for this long, in a notebook too", float),
    ),
    _command(
        "show",
        "Show a query's newest results, estimates with their intervals: live in a notebook, else as a table.",
        Option("[query]", "", names=("streams",)),
        Option("--kind", "the form", choices=FORMS, unless="what suits the columns"),
        Option("--rows N", "windows of a line, bars, or rows of a table", int),
        Option("--x COLUMN", "windows, times or numbers of a line; what names the bars"),
        Option("--y COLUMN", "what is drawn", unless="the first estimate, or else the first number"),
        Option("--save FILE", "keep there, as JSON lines, what is on show, and the accuracy"),
        Option("--from FILE", "show what was saved; needs no session", name="sample"),
    ),
    _command(
        "exact",
        "Compute a span of a query's windows again without shedding: exact figures beside the estimates.",
        Option("name QUERY", "", names=("streams",)),
        Option("--from TIME", "begin of the span (UTC): 10:00, 2026-01-31T10:00 or -15m", name="from_"),
        Option("--to TIME", "its end: windows count that lie in it as a whole"),
        Option(
            "--margin S",
            "how much earlier and later than the span its rows may have been sent",
            float,
            name="margin_s",
            unless="60, or what its watermark waits",
        ),
        Option("--cpu F", "share of a core that it takes, 0..1", float, default=CPU),
        Option("--merge", "write the exact figures to its memory sink, in the place of the estimates", default=False),
    ),
    _command(
        "stop",
        "Stop and remove a stream.",
        Option("[name]", "", names=("streams",)),
        Option("--all", "all of them", default=False),
    ),
    _command(
        "set", "Change a query's restrictions while it runs.", Option("name", "", names=("streams",)), *RESTRICTIONS
    ),
    _command(
        "why",
        "Show the last decision about a stream, instance or task manager, and why.",
        Option("[name]", "without it: the stages of the policy", names=("streams", "instances", "task_managers")),
    ),
    _command(
        "add-tm",
        "Add a task manager: a local one, or the server behind a URL.",
        Option("[url] URL", ""),
        Option("--cores N", "its cores", int),
        Option("--cpus N,N", "core numbers of a local one", cores),
        UI,
        UI_HEADER,
        *map(_as_up, (SLOTS, JIT, MEMORY)),
    ),
    _command(
        "remove-tm",
        "Move its instances to the others, then end it or, with a budget, let it stand by.",
        Option("[id]", "", names=("task_managers",)),
        Option("--count N", "as many that the policy chooses; stela and what it is compared with do", int),
        Option("--kill", "kill a local one that hangs", default=False),
    ),
    _command(
        "cpu",
        "Limit the CPU that plans use on a task manager; 1 takes the limit away.",
        Option("task_manager", "", names=("task_managers",)),
        Option("share", "of its cores, from 0.05 to 1", accuracy),
    ),
    _command(
        "move",
        "Move an instance to another task manager.",
        Option("instance", "", names=("instances",)),
        Option("task_manager", "", names=("task_managers",)),
    ),
    _command(
        "scale",
        "Run a task without state as more or fewer instances.",
        Option("task", "", names=("streams",)),
        Option("parallelism", "instances", int),
    ),
    _command(
        "fuse",
        "Run two neighbouring tasks as one query, without Kafka between them.",
        Option("first", "a task", names=("streams",)),
        Option("second", "the task that reads it", names=("streams",)),
    ),
    _command(
        "unfuse",
        "Run a task as two queries, with a Kafka topic between two of its streams.",
        Option("first", "a stream within the task", names=("streams",)),
        Option("second", "the stream that reads it", names=("streams",)),
    ),
    _command(
        "metrics",
        "Serve metrics for Prometheus on the loopback interface, write them to a file, or export them by OTLP; without "
        "options, say where.",
        Option("--port N", "serve /metrics and /healthz there; 0: a free port", int),
        Option("--token-file FILE", "holds the token that /metrics asks for; made if missing", unless="the user's"),
        Option("--file FILE", "write them there after each cycle, for node-exporter: NAME.prom"),
        Option("--otlp", "export them as OpenTelemetry's environment variables say", default=False),
        Option("--off", "stop all", default=False),
    ),
    _command(
        "report", "Write a page with charts of the recording so far.", Option("[path]", "", default="report.html")
    ),
    Command(
        "%qod policy",
        "Have another policy decide from the next cycle on; without a name, show it and its parameters.",
        (
            Option("[name]", "the policy", one_of=policy_names),
            Option(
                "[parameters] PARAMETER=VALUE",
                "what is to differ from its defaults; without a name, of the policy that decides",
                default=[],
                several=True,
                following=_parameters,
            ),
        ),
        ending=_help_on_parameters,
    ),
    _command(
        "pause",
        "Recommend only: make plans, apply none; or pause one stage of the policy.",
        Option("[stage]", "as %qod policy lists them", names=("stages",)),
    ),
    _command("period", "Change the time between decisions.", Option("seconds", "", float)),
    _command(
        "override",
        "Hold a shedder's non-drop probability by hand, or return it to the plan.",
        Option("name", 'a source, or a stream "from>to"', names=("shedders",)),
        Option("d", "a fraction from 0 to 1, or auto"),
    ),
    _command(
        "resume", "Apply plans again; or resume one stage of the policy.", Option("[stage]", "", names=("stages",))
    ),
)
#: The commands of `%qod`, by name, in the order of the help.
COMMANDS: Mapping[str, Command] = {each.name.removeprefix("%qod "): each for each in _COMMANDS}
#: The whole table, by what is typed.
TABLE: Mapping[str, Command] = {each.name: each for each in (STREAM, *COMMANDS.values())}
