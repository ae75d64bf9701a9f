"""Exercises of the labs: an answer is checked, and a wrong one explained by the mistake behind it. And whether the part
of a lab that runs on Spark can run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from qod_magics.errors import SetupError, UsageProblem, lacking
from qod_magics.machine.java import find_java


def check(
    answer: Any, expected: Any, *, tolerance: float = 0.005, mistakes: Mapping[Any, str] | None = None, hint: str = ""
) -> bool:
    """Print and return whether `answer` is right.

    Numbers may be off by `tolerance`, in mappings and lists too. `mistakes` maps the results of known mistakes to
    explanations; `hint` is for all other wrong answers. `...` (Ellipsis) and None count as not answered yet.

    Raises:
        UsageProblem: `expected` is of a type that can't be compared.

    """
    if not isinstance(expected, int | float | str | list | tuple | set | frozenset | Mapping | bool):
        raise UsageProblem(
            f"an exercise can't expect {type(expected).__name__}: give numbers, texts or collections", rule="comparable"
        )
    if _is_open(answer):
        print("Your turn: put your answer in the place of the dots and run the cell again.")
        return False
    if same(answer, expected, tolerance):
        print(f"Right: {shown(answer)}.")
        return True
    known = next((words for wrong, words in (mistakes or {}).items() if same(answer, wrong, tolerance)), "")
    print(" ".join(word for word in (f"Not yet: {shown(answer)}.", known or hint) if word))
    return False


def runs_on_spark(scale: float = 1.0) -> bool:
    """Return whether the part of a lab that runs on Spark can run here. Where it can't, print one line that says why.

    Args:
        scale: of the length of its phases; 0 leaves that part out.

    """
    why = "its length is 0" if scale <= 0 else _lacking()
    if why:
        print(f"The part on Spark is skipped: {why}")
    return not why


def _lacking() -> str:
    """Return what of Spark and Kafka this machine lacks, "" if nothing."""
    for name in ("pyspark", "confluent_kafka"):
        if find_spec(name) is None and (error := lacking(ImportError(name=name), "this part")):
            return str(error)
    try:
        find_java()
    except SetupError as error:
        return str(error)
    return ""


def same(one: Any, other: Any, tolerance: float) -> bool:
    """Return whether two answers are equal, up to `tolerance` in each number."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if _is_number(one) and _is_number(other):
        return math.isfinite(float(one)) and abs(float(one) - float(other)) <= tolerance
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same(one[key], other[key], tolerance) for key in other)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(same(a, b, tolerance) for a, b in zip(one, other, strict=True))
    if isinstance(one, set | frozenset) and isinstance(other, set | frozenset):
        return one == other
    return isinstance(one, str) and isinstance(other, str) and one.strip() == other.strip()


def shown(answer: Any) -> str:
    """Return an answer as a reader would write it."""
    if _is_number(answer):
        return f"{float(answer):.4g}"
    if isinstance(answer, Mapping):
        return ", ".join(f"{key}: {shown(value)}" for key, value in answer.items())
    if isinstance(answer, list | tuple):
        return "[" + ", ".join(shown(value) for value in answer) + "]"
    return str(answer)


def _is_open(answer: Any) -> bool:
    if isinstance(answer, list | tuple):
        return any(_is_open(each) for each in answer)
    return answer is ... or answer is None


def _is_number(value: Any) -> bool:
    return not isinstance(value, bool) and hasattr(value, "__float__")
