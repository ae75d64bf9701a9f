"""Options of `%qod up` from files: a TOML file with any of them, and client properties of Kafka.

Strings may hold `${NAME}`, a variable of the environment, so that no secret stands in a file or a notebook.
"""

from __future__ import annotations

import os
import re
import tomllib
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from qod_magics.arguments.option import Option
from qod_magics.arguments.parser import Command
from qod_magics.errors import UsageProblem, nearest
from qod_magics.kafka.clusters import STARTED
from qod_magics.kafka.properties import MSK_MODULE

_VARIABLE = re.compile(r"\$\{(\w+)\}")
#: Options of the command line only: a file names no other file.
_NOT_IN_FILES = frozenset({"config"})
#: Of the login modules with a user name and a password (PLAIN, SCRAM), as Java writes them.
_JAAS = re.compile(r"""\b(username|password)\s*=\s*(["'])((?:\\.|(?!\2).)*)\2""")

#: The login module of Amazon MSK's IAM, for the credentials that AWS's own tools find or that its arguments name.
_MSK = re.compile(rf"""{re.escape(MSK_MODULE)}\s+required(?:\s+\w+\s*=\s*(?:"[^"]*"|'[^']*'|[^\s;"']+))*\s*;""")
#: Options that Java's clients alone have, as those of `--kafka-option`.
_JAVAS = {name: f"kafka.{name}" for name in ("sasl.client.callback.handler.class", "sasl.login.callback.handler.class")}


def options_of(file: str, command: Command) -> dict[str, Any]:
    """Return the values of a command's options that a TOML file sets, by name.

    A key is an option without its dashes (`task-managers = 2`); options NAME=VALUE are a table (`[conf]`).

    Raises:
        UsageProblem: the file can't be read, or a key or a value is no option of the command.

    """
    try:
        found = tomllib.loads(_text(file))
    except tomllib.TOMLDecodeError as error:
        raise UsageProblem(f"{file} must be TOML: {error}", rule="TOML") from None
    rows = {row.flag.lstrip("-"): row for row in command.options if row.name not in _NOT_IN_FILES}
    values = {}
    for key, value in found.items():
        row = rows.get(key.replace("_", "-"))
        if row is None:
            hint = nearest(key, rows)
            raise UsageProblem(
                f"a key of {file} must be an option of {command.name}, got {key!r}.{hint}", name=key, rule="exists"
            )
        values[row.name] = _value(row, value, file)
    return values


def with_file(given: Namespace, found: Mapping[str, Any], command: Command) -> Namespace:
    """Return the options of a line with those of a file: of NAME=VALUE ones, the file has the names that the line does
    not."""
    merged = vars(given).copy()
    for row in command.options:
        if "NAME=VALUE" in row.metavar and row.name in found:
            line = {each.partition("=")[0]: each for each in merged[row.name]}
            merged[row.name] = list({**{each.partition("=")[0]: each for each in found[row.name]}, **line}.values())
    return Namespace(**merged)


def _value(row: Option, value: Any, file: str) -> Any:
    """Return the value of one option. Raises UsageProblem."""
    if row.switch:
        if not isinstance(value, bool):
            raise _wrong(row, value, file, "true or false")
        return not row.default if value else row.default
    if isinstance(value, dict):
        if "NAME=VALUE" not in row.metavar:
            raise _wrong(row, value, file, "no table")
        return [f"{name}={_filled(_scalar(row, each, file), file)}" for name, each in value.items()]
    parts = value if isinstance(value, list) else [value]
    if len(parts) > 1 and not (row.several or row.repeats):
        raise _wrong(row, value, file, "one value")
    read = [_read(row, _filled(_scalar(row, part, file), file), file) for part in parts]
    if row.several or row.repeats:
        return [one for each in read for one in (each if isinstance(each, tuple) else (each,))]
    return read[0]


def _read(row: Option, text: str, file: str) -> Any:
    try:
        return row.read(text)
    except ValueError:
        raise _wrong(row, text, file, f"a {row.kind}") from None


def _scalar(row: Option, value: Any, file: str) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str | int | float):
        raise _wrong(row, value, file, "text or a number")
    return str(value)


def _wrong(row: Option, value: Any, file: str, needed: str) -> UsageProblem:
    return UsageProblem(f"{row.flag} in {file} must be {needed}, got {value!r}", option=row.flag, rule="type")


def _filled(text: str, file: str) -> str:
    """Return a text with the values of the environment's variables in it. Raises UsageProblem."""

    def value(found: re.Match[str]) -> str:
        if (known := os.environ.get(found[1])) is None:
            raise UsageProblem(
                f"{found[0]} in {file} must be a variable of the environment, got none; set {found[1]} "
                "before the kernel starts",
                name=found[1],
                rule="environment",
            )
        return known

    return _VARIABLE.sub(value, text)


def client_properties(file: str) -> dict[str, str]:
    """Return the options of a properties file, by librdkafka's names: `sasl.jaas.config` of Java clients, too, becomes
    user name and password. Raises UsageProblem."""
    found: dict[str, str] = {}
    for number, line in enumerate(_joined(_text(file)), start=1):
        name, equals, value = (part.strip() for part in line.partition("="))
        if not equals or not name:
            raise UsageProblem(f"line {number} of {file} must be NAME=VALUE, got {line!r}", rule="NAME=VALUE")
        read = _login(value, file) if name == "sasl.jaas.config" else {_JAVAS.get(name, name): value}
        found |= {each: _filled(text, file) for each, text in read.items()}
    return found


def _login(jaas: str, file: str) -> dict[str, str]:
    """Return user name and password of a Java client's login module; of Amazon MSK's, which needs none, its text.
    Raises UsageProblem: it has neither."""
    if _MSK.fullmatch(jaas):
        return {"kafka.sasl.jaas.config": jaas}
    found = {f"sasl.{name}": re.sub(r"\\(.)", r"\1", value) for name, _, value in _JAAS.findall(jaas)}
    if len(found) != 2:
        raise UsageProblem(
            f"sasl.jaas.config in {file} must have a username and a password, got {len(found)} of them; give the "
            "options of another login by their librdkafka names",
            name="sasl.jaas.config",
            rule="login",
        )
    return found


def _joined(text: str) -> list[str]:
    """Return the lines with something in them; those that end with a backslash go on below."""
    stated = "\n".join(line for line in text.splitlines() if line.strip()[:1] not in ("#", "!"))
    return [line.strip() for line in re.sub(r"\\\n\s*", "", stated).splitlines() if line.strip()]


def kafka_of(given: Mapping[str, Any], options: Mapping[str, str], kafka: str = "kafka") -> dict[str, Any]:
    """Return `kafka` and `kafka_options` for a session, or those of its other broker `kafka`: what its `--kafka-config`
    names, below what the line says. Raises UsageProblem."""
    file = given.get(f"{kafka}_config")
    if file and given.get(kafka) == STARTED:
        flag = f"--{kafka.replace('_', '-')}"
        raise UsageProblem(
            f"{flag}-config {file} must go with a broker of yours, got {flag} {STARTED}, which is started; leave one "
            "out",
            option=f"{flag}-config",
            value=file,
            rule="own broker",
        )
    found = client_properties(file) if file else {}
    named = found.pop("bootstrap.servers", None)
    return {kafka: given.get(kafka) or named, f"{kafka}_options": {**found, **options}}


def _text(file: str) -> str:
    try:
        return Path(file).expanduser().read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        raise UsageProblem(f"{file} must be a file that can be read: {why}", name=file, rule="readable") from None
