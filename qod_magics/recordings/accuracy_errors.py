"""Measured accuracies of a recorded run against those planned for the same time. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from qod_magics.controller.record import Record, Records
from qod_magics.core.freshness import window_of
from qod_magics.recordings.names import sources


def accuracy_errors(records: Records, *, by_rates: bool = False) -> list[tuple[int, str, float]]:
    """(index of the record, source, absolute error): measured against planned accuracies.

    Measured is the share of the rows read that was kept; with `by_rates`, and where that is not recorded, the current
    accuracy of Stream Economics (Eqs. 3.4 and 3.5), rows/s kept / rows/s that arrive, which is higher while a backlog
    is drained. It is measured over the `window` of the instances (seconds since the epoch) and compared with the mean,
    over that window, of the plans in force, each from when its dials were set; in a recording without windows, with the
    last applied plan.
    """
    errors: list[tuple[int, str, float]] = []
    in_force: list[tuple[float, Mapping[str, float]]] = []  #: (since, desired accuracies), in order
    for index, record in enumerate(records):
        if record.repeated:
            continue
        for source in sources(record):
            planned = _planned(source, in_force, _window(record, source))
            kept = None if by_rates else record.measured.accuracy.get(source)
            measured = record.current_accuracy.get(source) if kept is None else kept
            if measured is not None and planned is not None:
                errors.append((index, source, abs(measured - planned)))
        if record.applied:
            in_force.append((record.at.timestamp() + record.applied_s, record.plan.desired))
    return errors


def _window(record: Record, task: str) -> tuple[float, float] | None:
    """The window that the instances of a task were measured over, seconds since the epoch; None if not recorded."""
    windows = [window_of(instance) for instance in record.snapshot.instances if instance.task == task]
    known = [window for window in windows if window is not None]
    if not known or len(known) < len(windows):
        return None
    return min(begin for begin, _ in known), max(end for _, end in known)


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
