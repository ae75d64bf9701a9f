"""`python -m qod_magics plan`: what a policy would do, offline. The same code that the controller runs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from time import perf_counter
from typing import Any, TextIO

from qod_magics.arguments.parser import Parser
from qod_magics.core.json_form import plan_to_json, snapshot_from_json
from qod_magics.core.load import current_accuracy
from qod_magics.core.policy import Policy
from qod_magics.errors import QodError, SnapshotError, UsageProblem, show
from qod_magics.policies import PAPER_POLICY, policy, policy_names

INVALID = 2  #: exit status for unusable input or arguments


def main(argv: list[str]) -> int:
    """Print one plan per line for FILE (`-`: standard input). Returns the exit status, 2 for unusable input."""
    try:
        words = _parser().parse_args(argv)
        if words.policy is not None:
            policy(words.policy)  # refused before anything is read
        _plan_all(words.file, words.policy, words.timing)
    except QodError as error:
        print(f"qod_magics plan: {' '.join(str(error).splitlines())}", file=sys.stderr)
        return INVALID
    return 0


def _parser() -> Parser:
    parser = Parser("plan", "Print the plan of a policy for a snapshot, or one plan a line for a recording (.jsonl).")
    parser.add_argument(
        "file", metavar="FILE", help="a snapshot (.json), a recording (.jsonl), or - for standard input"
    )
    parser.add_argument(
        "--policy",
        metavar="NAME",
        help=f"one of: {', '.join(policy_names())} (default: for a line of a recording the one that it names; "
        f"else {PAPER_POLICY})",
    )
    parser.add_argument("--timing", action="store_true", help="add policy_ms, the time of the decision, to each plan")
    return parser


def _plan_all(path: str, chosen: str | None, timing: bool) -> None:
    name = "standard input" if path == "-" else path
    policies: dict[str, Policy] = {}
    states: dict[str, Any] = {}
    with _opened(path, name) as stream:
        for where, obj in _documents(stream, name, lines=path.endswith(".jsonl"), single=path.endswith(".json")):
            try:
                snapshot = snapshot_from_json(_snapshot_of(obj))
            except SnapshotError as error:
                raise SnapshotError(f"{where}: {error}") from None
            by = chosen or _decided_by(obj)
            if by not in policies:
                policies[by] = _policy_of(by, where)
            began = perf_counter()
            plan, states[by] = policies[by].decide(snapshot, states.get(by))
            took = perf_counter() - began
            answer = plan_to_json(plan, current_accuracy(snapshot))
            if timing:
                answer["policy_ms"] = round(took * 1000, 3)
            print(json.dumps(answer), flush=path == "-")


@contextmanager
def _opened(path: str, name: str) -> Iterator[TextIO]:
    if path == "-":
        if sys.stdin is None:
            raise UsageProblem("can't read standard input: it is closed; name a file")
        if isinstance(sys.stdin, TextIOWrapper):
            sys.stdin.reconfigure(encoding="utf-8-sig")  # JSON is UTF-8, whatever the locale
        yield sys.stdin
        return
    try:
        stream = open(path, encoding="utf-8-sig")  # noqa: SIM115
    except (OSError, ValueError) as error:
        raise UsageProblem(f"can't read {name}: {getattr(error, 'strerror', None) or error}; name a file") from None
    with stream:
        yield stream


def _documents(stream: TextIO, name: str, *, lines: bool, single: bool) -> Iterator[tuple[str, Any]]:
    """(location, decoded JSON) for each document: one per line, or a single one; detected if neither is set."""
    text = _read(stream, name, single)
    if single:
        yield name, _decode("".join(text), name)
        return
    empty = True
    for number, line in enumerate(text, 1):
        if not line.strip():
            continue
        where = f"{name} line {number}"
        if empty and not lines:
            try:
                obj = json.loads(line)
            except (ValueError, RecursionError):  # not one document a line, so one over many lines
                yield name, _decode("\n" * (number - 1) + line + "".join(text), name)
                return
        else:
            obj = _decode(line, name, number)
        empty = False
        yield where, obj
    if empty:
        raise SnapshotError(f"{name}: it is empty; give a snapshot, or a recording with one JSON object a line")


def _read(stream: TextIO, name: str, whole: bool) -> Iterator[str]:
    try:
        if whole:
            yield stream.read()
        else:
            yield from stream
    except UnicodeDecodeError as error:
        raise SnapshotError(f"{name}: not UTF-8 text ({error.reason}); give JSON in UTF-8") from None
    except OSError as error:
        raise UsageProblem(f"can't read {name}: {error.strerror or error}") from None


def _decode(text: str, name: str, line: int = 1) -> Any:
    """Return the JSON value that `text`, which begins on `line` of `name`, holds."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        if not text.strip():
            raise SnapshotError(f"{name}: it is empty; give a snapshot") from None
        where = f"{name} line {line + error.lineno - 1} column {error.colno}"
        raise SnapshotError(f"{where}: not JSON, {error.msg}; correct it there") from None
    except RecursionError:
        raise SnapshotError(f"{name} line {line}: nested too deeply; give a snapshot") from None
    except ValueError as error:  # an integer with thousands of digits
        raise SnapshotError(f"{name} line {line}: not usable JSON, {error}") from None


def _snapshot_of(obj: Any) -> Any:
    """Return the snapshot in a line of a recording, or `obj` itself if it is a plain snapshot."""
    if isinstance(obj, dict) and "snapshot" in obj and "task_managers" not in obj:
        if not isinstance(obj["snapshot"], dict):
            raise SnapshotError(f"snapshot: {show(obj['snapshot'])} is not an object; give the snapshot of the cycle")
        return obj["snapshot"]
    return obj


def _policy_of(name: str, where: str) -> Policy:
    """Return the policy of this name. Raises UsageProblem with the location of the name."""
    try:
        return policy(name)
    except UsageProblem as problem:
        raise UsageProblem(f"{where}: {problem}") from None


def _decided_by(obj: Any) -> str:
    """Return the policy that a line of a recording names; the paper's for one without a name and for a snapshot by
    itself."""
    named = obj.get("policy") if isinstance(obj, dict) and "snapshot" in obj else None
    return named if isinstance(named, str) else PAPER_POLICY
