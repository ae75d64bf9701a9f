"""Rules of a stream's rows, `--expect "fare > 0:drop"`: read, counted in its plan, and carried out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from qod_magics.errors import ApplicationError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RuleAction = Literal["drop", "warn", "fail"]
ACTIONS: tuple[str, ...] = get_args(RuleAction)
_WORDS = re.compile(r"\s*(?P<condition>.+?)\s*(?::\s*(?P<action>\w+)\s*)?", re.DOTALL)
#: How the names of metrics begin that count rows which break rules, before the name of the stream.
COUNTED = "expect."
#: How the message begins with which such a row ends a query.
BROKEN = "a row breaks the rule "
#: By stream, rows that break each of its rules, in their order.
Broken: TypeAlias = Mapping[str, Sequence[int]]


@dataclass(frozen=True, slots=True)
class Rule:
    """What is true of each row of a stream; a row for which it is null breaks it."""

    condition: str  #: SQL
    action: RuleAction = "warn"  #: what is done with a row that breaks it, besides being counted

    def __str__(self) -> str:
        return f"{self.condition}:{self.action}"


@dataclass(frozen=True, slots=True)
class RuleCount:
    """How many rows of a stream have broken a rule."""

    stream: str
    rule: Rule
    rows: int


def rule(text: str) -> Rule:
    """Return the rule of a text, "fare > 0" or "fare > 0:drop". Raises ApplicationError: it has no condition."""
    found = _WORDS.fullmatch(text)
    if found is None or text.strip()[:1] in ("", ":"):
        raise ApplicationError(
            f'a rule must be a condition in SQL, got {text!r}; such as "fare > 0:drop"', option="--expect", rule="SQL"
        )
    action = found["action"]
    if action is None or action not in ACTIONS:  # a colon may be one of SQL, as in a text
        return Rule(text.strip())
    return Rule(found["condition"], action)  # type: ignore[arg-type]


def as_rules(given: str | Sequence[str]) -> tuple[Rule, ...]:
    """Return the rules that the Python API is given. Raises ApplicationError."""
    return tuple(map(rule, (given,) if isinstance(given, str) else given))


def kept(rows: DataFrame, stream: str, rules: Sequence[Rule]) -> DataFrame:
    """Count the rows of a stream that break its rules, and drop those, or end the query, as the rules say.

    Raises ApplicationError: Spark can't read a rule over these rows.
    """
    from pyspark.sql import functions as F

    if not rules:
        return rows
    broken = [f"coalesce(({each.condition}), false) = false" for each in rules]
    counts = [F.expr(f"count(CASE WHEN {sql} THEN 1 END)").alias(f"rule_{n}") for n, sql in enumerate(broken)]
    rows = rows.observe(f"{COUNTED}{stream}", *counts)
    for each, sql in zip(rules, broken, strict=True):
        if each.action == "drop":
            rows = rows.where(f"NOT ({sql})")
        elif each.action == "fail":
            told = (BROKEN + each.condition).replace("\\", "\\\\").replace("'", "\\'")
            rows = rows.where(f"assert_true(NOT ({sql}), '{told}') IS NULL")
    return rows


def broken_text(each: Rule, rows: int) -> str:
    """Such as: 3 rows break the rule fare > 0 and were dropped. Those that end a query are not counted."""
    what, were = ("1 row breaks", "was") if rows == 1 else (f"{rows:,} rows break", "were")
    return f"{what} the rule {each.condition} and {were} {'dropped' if each.action == 'drop' else 'kept'}"
