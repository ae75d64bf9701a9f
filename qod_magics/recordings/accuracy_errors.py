"""The accuracies that came in a recorded run, beside those that were planned for that time. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from qod_magics.recordings.lines import sources
from qod_magics.recordings.phases import Line, Lines, is_repeated


def accuracy_errors(lines: Lines) -> list[tuple[int, str, float]]:
    """(index of the line, source, |curAc - ac|): the accuracy that came, and the one that was planned for that time.

    A current accuracy is measured over the `window` that its instances name (seconds since the epoch); planned for it
    is the mean, over that window, of the plans in force; where a recording names no windows, the last applied plan.
    """
    errors: list[tuple[int, str, float]] = []
    in_force: list[tuple[float, Mapping[str, float]]] = []  #: (since, desired accuracies), in order
    for index, line in enumerate(lines):
        plan = line.get("plan") or {}
        current = plan.get("current_accuracy", {})
        if is_repeated(line):
            continue
        for source in sources(line):
            planned = _planned(source, in_force, _window(line, source))
            if source in current and planned is not None:
                errors.append((index, source, abs(current[source] - planned)))
        if line.get("applied"):
            in_force.append((datetime.fromisoformat(line["at"]).timestamp(), plan.get("desired", {})))
    return errors


def _window(line: Line, task: str) -> tuple[float, float] | None:
    """When the instances of a task were measured, seconds since the epoch; None where the line does not say."""
    windows = [i.get("window") for i in line["snapshot"]["instances"] if i["task"] == task]
    known = [window for window in windows if window]
    if not known or len(known) < len(windows):
        return None
    return min(window[0] for window in known), max(window[1] for window in known)


def _planned(
    task: str, in_force: Sequence[tuple[float, Mapping[str, float]]], window: tuple[float, float] | None
) -> float | None:
    """The accuracy planned for a task over a window, None where no plan for it was in force throughout."""
    if window is None or window[1] <= window[0]:
        return in_force[-1][1].get(task) if in_force else None
    start, end = window
    total = seconds_covered = 0.0
    for position, (since, desired) in enumerate(in_force):
        until = in_force[position + 1][0] if position + 1 < len(in_force) else float("inf")
        shared = min(until, end) - max(since, start)
        if shared > 0 and task in desired:
            total += shared * desired[task]
            seconds_covered += shared
    return total / seconds_covered if seconds_covered > 0.99 * (end - start) else None
