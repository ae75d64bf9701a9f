"""Time in a recording: seconds since its start, its phases, and the settled part of a phase. Pure.

A recording is a sequence of lines, one a controller cycle (JSON objects with `at`, `snapshot`, `plan`, `applied`,
`measured`, `events`). A run that follows a script adds `phase`, the name of the part that it is in, and `period_s`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Any

Line = Mapping[str, Any]  #: one controller cycle of a recording, as JSON
Lines = Sequence[Line]

DEFAULT_PERIOD_S = 5.0
DEFAULT_SETTLE_S = 20.0

#: after one of these the cluster needs time to settle again
DISTURBANCES = frozenset({"move", "task-manager-up", "task-manager-lost", "query-restarted"})


@dataclass(frozen=True, slots=True)
class Phase:
    """Consecutive lines with the same `phase`. A name that comes back later is another phase."""

    name: str  #: "" for lines that name no phase
    first: int  #: index of its first line
    last: int  #: index of its last line
    start_s: float  #: of its first line, seconds since the start of the recording


def seconds(lines: Lines) -> tuple[float, ...]:
    """The instant of each line in seconds since the first one.

    Raises KeyError or ValueError when a line has no `at` in ISO 8601.
    """
    instants = [datetime.fromisoformat(line["at"]) for line in lines]
    return tuple((instant - instants[0]).total_seconds() for instant in instants)


def period_s(line: Line) -> float:
    """Length of the controller's cycle, seconds; 5 where the line does not say."""
    return float(line.get("period_s") or DEFAULT_PERIOD_S)


def phases(lines: Lines) -> tuple[Phase, ...]:
    """The phases in order; one without a name when the recording names none; () for an empty recording."""
    at = seconds(lines)
    found = []
    for name, group in groupby(range(len(lines)), key=lambda index: str(lines[index].get("phase") or "")):
        indices = list(group)
        found.append(Phase(name, indices[0], indices[-1], at[indices[0]]))
    return tuple(found)


def is_repeated(line: Line) -> bool:
    """Whether the line only carries late events, its snapshot, plan and measures being those of the line before."""
    return bool(line.get("repeated"))


def is_warming_up(line: Line) -> bool:
    """Whether an instance of the line's snapshot is warming up."""
    return any(instance.get("warming_up") for instance in line["snapshot"]["instances"])


def settled(lines: Lines, phase: Phase, settle_s: float = DEFAULT_SETTLE_S) -> tuple[int, ...]:
    """Indices of the lines in the settled part of `phase`; () when it never settled.

    Those are the lines at least `settle_s` seconds after the start of the phase and after the last disturbance in it
    (a move, a task manager that joined or was lost, a query that restarted), with no instance warming up. A repeated
    line says nothing new and is none of them.
    """
    at = seconds(lines)
    indices = range(phase.first, phase.last + 1)
    disturbed = [at[i] for i in indices if any(e.get("kind") in DISTURBANCES for e in lines[i].get("events") or ())]
    from_s = max([phase.start_s, *disturbed]) + settle_s
    return tuple(i for i in indices if at[i] >= from_s and not is_warming_up(lines[i]) and not is_repeated(lines[i]))
