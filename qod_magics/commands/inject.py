"""`python -m qod_magics inject SCENARIO.json --bootstrap HOST:PORT`: send a scenario to Kafka."""

from __future__ import annotations

import argparse
import gc
import json
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

from qod_magics.arguments.parser import Parser
from qod_magics.errors import QodError, ScenarioError, UsageProblem
from qod_magics.kafka.injector import COMPLETE, CONFIG_VARIABLE, INCOMPLETE
from qod_magics.kafka.properties import JAVAS_PREFIX
from qod_magics.kafka.scenario import Scenario
from qod_magics.kafka.scenario import __doc__ as scenario_format

FAILED, MISUSED = 1, 2  #: exit codes, in addition to those of `Injector`

_FORMAT = (scenario_format or "").partition("\n\n")[2]
_EXIT_CODES = """exit codes:
  0  all rows acknowledged, or stopped by a signal
  1  an error
  2  wrong arguments or scenario
  3  some rows failed or were never sent"""


def _parser() -> Parser:
    parser = Parser(
        "inject",
        "Send the rows of a scenario to Kafka, each when it is due, however far its consumers lag.",
        epilog=f"{_EXIT_CODES}\n\nSCENARIO.json, with seconds since the start and rates in rows/s:\n\n{_FORMAT}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("scenario", metavar="SCENARIO.json", help="what to send; its format is below")
    parser.add_argument("--bootstrap", required=True, metavar="HOST:PORT", help="the Kafka broker")
    parser.add_argument(
        "--record", type=Path, metavar="FILE.jsonl", help="write counts here, a line a second and topic"
    )
    parser.add_argument("--speed", type=float, default=1.0, metavar="X", help="scenario seconds per second (default 1)")
    parser.add_argument(
        "--client-option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of the producer (librdkafka's names), for example compression.type=lz4; may be repeated; "
        f"passwords, which other users would see, as JSON in the variable {CONFIG_VARIABLE}",
    )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code. Errors are one line on stderr."""
    try:
        arguments = _parser().parse_args(argv)
        config = _config(arguments)
        if not 0 < arguments.speed < float("inf"):
            raise UsageProblem(f"--speed is {arguments.speed:g}: it must be above 0")
        scenario = Scenario.read(arguments.scenario)
        return _send(scenario, config, arguments.speed, arguments.record)
    except (UsageProblem, ScenarioError) as problem:
        print(f"{type(problem).__name__}: {problem}", file=sys.stderr)
        return MISUSED
    except QodError as problem:
        print(f"{type(problem).__name__}: {problem}", file=sys.stderr)
        return FAILED
    except SystemExit as end:  # --help
        return int(end.code or 0)


def _config(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the producer's settings: from `Injector`, then --bootstrap, then --client-option."""
    try:
        config: dict[str, Any] = dict(json.loads(os.environ.pop(CONFIG_VARIABLE, "{}")))
    except (TypeError, ValueError):  # its text may be secret
        raise UsageProblem(f"{CONFIG_VARIABLE} is not a JSON object of the producer's settings") from None
    config["bootstrap.servers"] = arguments.bootstrap
    for option in arguments.client_option:
        name, equals, value = option.partition("=")
        if not (name and equals):
            raise UsageProblem(f"--client-option is {option!r}: write NAME=VALUE, for example compression.type=lz4")
        if name.startswith(JAVAS_PREFIX):
            raise UsageProblem(
                f"--client-option must be a setting by librdkafka's name, got {option!r}; Java's names, with "
                f"{JAVAS_PREFIX!r}, are for Spark only",
                option="--client-option",
                value=name,
                rule="librdkafka",
            )
        config[name] = value
    return config


def _send(scenario: Scenario, config: dict[str, Any], speed: float, path: Path | None) -> int:
    # imports numpy and pyarrow: wrong arguments need not wait for them
    from qod_magics.kafka.cluster import ExternalKafka
    from qod_magics.kafka.sender import Record, Sender
    from qod_magics.kafka.topics import create_topics

    with ExitStack() as stack:
        file: IO[str] | None = None
        if path is not None:
            try:
                file = stack.enter_context(path.open("w", encoding="utf-8"))
            except OSError as problem:
                raise UsageProblem(f"--record {path} can't be written ({problem.strerror}): choose another") from None
        reach = {name: value for name, value in config.items() if name != "bootstrap.servers"}
        kafka = ExternalKafka(config["bootstrap.servers"], reach)
        told = Record(file, lambda text: print(text, file=sys.stderr, flush=True))
        sender = Sender(scenario, kafka.client_config(), told, speed)
        create_topics(kafka, {feed.topic: feed.partitions for feed in scenario.topics})
        stopped: list[int] = []

        def stop(number: int, _frame: object) -> None:
            stopped.append(number)
            sender.stop()

        for number in (signal.SIGINT, signal.SIGTERM):
            stack.callback(signal.signal, number, signal.signal(number, stop))
        gc.freeze()  # the rows stay alive: spare the collector from scanning them
        stack.callback(gc.unfreeze)
        totals = sender.run()
    for topic, one in totals.items():
        print(f"{topic}: {one.scheduled} due, {one.sent} sent, {one.acknowledged} acknowledged, {one.errors} failed")
    complete = all(one.acknowledged == one.scheduled for one in totals.values())
    return COMPLETE if complete or stopped else INCOMPLETE


if __name__ == "__main__":
    raise SystemExit(main())
