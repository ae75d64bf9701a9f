"""The windows of time by which a recipe groups, read from its text."""

from __future__ import annotations

import ast
import re
from typing import NamedTuple

from qod_magics.application.recipes.recipe import Recipe, SqlRecipe

_SECONDS = {
    "microsecond": 1e-6,
    "millisecond": 1e-3,
    "second": 1.0,
    "minute": 60.0,
    "hour": 3600.0,
    "day": 86400.0,
    "week": 7 * 86400.0,
}
_DURATION = re.compile(r"(?:interval\s+)?(\d+(?:\.\d+)?)\s*([a-z]+?)s?", re.IGNORECASE)
_SQL = re.compile(r"\bwindow\s*\(\s*[^,()]+,\s*(['\"])(.+?)\1(?:\s*,\s*(['\"])(.+?)\3)?", re.IGNORECASE)
_COMMENT = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)


class Window(NamedTuple):
    """A window of time, seconds."""

    length_s: float
    slide_s: float  #: between two windows: the length for tumbling ones


def window_of(recipe: Recipe) -> Window | None:
    """The first window that a recipe groups by; None if its text has no `window(column, 'duration')`."""
    found = _in_sql(recipe.text) if isinstance(recipe, SqlRecipe) else _in_python(recipe.text)
    durations = [_seconds(text) for text in found]
    if not durations or durations[0] is None:
        return None
    slide = durations[1] if len(durations) > 1 else None
    return Window(durations[0], slide or durations[0])


def _in_sql(text: str) -> list[str]:
    found = _SQL.search(_COMMENT.sub(" ", text))
    return [] if found is None else [each for each in (found[2], found[4]) if each is not None]


def _in_python(text: str) -> list[str]:
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return []
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and _name(call.func) == "window":
            more = {each.arg: each.value for each in call.keywords}
            given = [*call.args[1:3], *(more[name] for name in ("windowDuration", "slideDuration") if name in more)]
            return [each.value for each in given if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    return []


def _name(called: ast.expr) -> str:
    return called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""


def _seconds(text: str) -> float | None:
    found = _DURATION.fullmatch(text.strip())
    unit = None if found is None else _SECONDS.get(found[2].lower())
    return None if found is None or unit is None else float(found[1]) * unit
