"""Lasting faults: reported when they begin, change and end, not at every cycle between."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that goes wrong at present."""

    words: str
    since: int  #: number of the first cycle
    cycles: int = 1  #: in how many cycles it occurred


class Faults:
    """The open faults, by kind."""

    def __init__(self) -> None:
        self._open: dict[str, Fault] = {}

    def report(self, kind: str, words: str, cycle: int) -> bool:
        """Note a fault of this `cycle`. Returns whether it is news: its kind was not open, or had other words."""
        known = self._open.get(kind)
        if known is None:
            self._open[kind] = Fault(words, cycle)
            return True
        self._open[kind] = Fault(words, known.since, known.cycles + 1)
        return known.words != words

    def clear(self, kind: str) -> Fault | None:
        """End and return the fault of this kind; None when there is none."""
        return self._open.pop(kind, None)

    def open(self) -> dict[str, Fault]:
        """A copy of the open faults, by kind."""
        return dict(self._open)
