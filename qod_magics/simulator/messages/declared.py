"""Declared streams as jobs of the engine: a notebook's application, with its costs."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from qod_magics.application.application import Application
from qod_magics.application.recipes.recipe import Recipe, SqlRecipe
from qod_magics.application.tasks import TaskSpec, tasks
from qod_magics.errors import ScenarioError, nearest
from qod_magics.simulator.messages.dataflow import Arrivals, Job, Source, Stage

# --- Windows of recipes -----------------------------------------------------------------------------------------------

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
    """Return the first window that a recipe groups by; None if its text has no `window(column, 'duration')`."""
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


@dataclass(frozen=True, slots=True)
class Costs:
    """Of a stream, measured or assumed; those of fused streams add up."""

    fixed_us: float = 0.0  #: CPU a message
    row_us: float = 0.0  #: CPU a row
    selectivity: float = 1.0  #: rows out for a row read


def jobs_of(
    application: Application, costs: Mapping[str, Costs], arrivals: Mapping[str, tuple[int, Arrivals]]
) -> tuple[Job, ...]:
    """Return the application's live streams as jobs, one for each connected part, named by its first query.

    Streams that run as one Spark query are one stage; its windows are those of its recipes (`application.windows`), its
    operators the instances. A job's target is the smallest of its queries'.

    Args:
        application: as declared; streams that wait for a reader are left out.
        costs: by stream.
        arrivals: by topic: the number of clients, and how each sends.

    Raises ScenarioError for a stream without costs, or a topic without arrivals.

    """
    specs = tasks(application)
    for spec in specs:
        for stream in spec.members:
            if stream not in costs:
                raise ScenarioError(
                    f"stream {stream!r} has no costs: state them.{nearest(stream, costs)}", name=stream, rule="costs"
                )
        for topic in spec.topics.values():
            if topic.topic not in arrivals:
                raise ScenarioError(
                    f"topic {topic.topic!r} lacks arrivals: state them.{nearest(topic.topic, arrivals)}",
                    name=topic.topic,
                    rule="arrivals",
                )
    return tuple(_job(part, costs, arrivals) for part in _parts(specs))


def _job(part: list[TaskSpec], costs: Mapping[str, Costs], arrivals: Mapping[str, tuple[int, Arrivals]]) -> Job:
    topics = list(dict.fromkeys(topic.topic for spec in part for topic in spec.topics.values()))
    targets = [spec.max_latency_s for spec in part if spec.max_latency_s is not None]
    stages = []
    for spec in part:
        fixed = row = 0.0
        share = 1.0  # rows at this stream for a row read by the first
        for stream in spec.members:
            each = costs[stream]
            fixed += each.fixed_us
            row += share * each.row_us
            share *= each.selectivity
        window = next((found for stream in spec.streams if (found := window_of(stream.recipe)) is not None), None)
        stages.append(
            Stage(
                spec.id,
                (*dict.fromkeys(_source(topic.topic) for topic in spec.topics.values()), *spec.upstream),
                spec.parallelism,
                fixed,
                row,
                share,
                slide_ms=0.0 if window is None else 1e3 * window.slide_s,
                length_ms=0.0 if window is None else 1e3 * window.length_s,
                exchange="all" if spec.key is not None or window is not None else "turns",
            )
        )
    sources = tuple(Source(_source(topic), *arrivals[topic]) for topic in topics)
    name = next((spec.id for spec in part if spec.is_query), part[-1].id)
    return Job(name, tuple(stages), sources, 1e3 * min(targets, default=0.0))


def _source(topic: str) -> str:
    """Return a name that no stream has."""
    return f"topic {topic}"


def _parts(specs: tuple[TaskSpec, ...]) -> list[list[TaskSpec]]:
    """Return tasks that share a topic or stream, directly or through others; in order."""
    parts: list[tuple[set[str], list[TaskSpec]]] = []
    for spec in specs:
        names = {spec.id, *spec.upstream, *(_source(topic.topic) for topic in spec.topics.values())}
        joined = [part for part in parts if part[0] & names]
        parts = [part for part in parts if not part[0] & names]
        members = [each for _, part in joined for each in part]
        parts.append((names.union(*(part[0] for part in joined)), [*members, spec]))
    rank = {spec.id: n for n, spec in enumerate(specs)}
    ordered = [sorted(part, key=lambda spec: rank[spec.id]) for _, part in parts]
    return sorted(ordered, key=lambda part: rank[part[0].id])
