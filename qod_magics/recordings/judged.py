"""A recorded run with what its criteria share: its phases, and the settled part of each. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from qod_magics.controller.record import Record, Records
from qod_magics.recordings.phases import Phase, phases, seconds, settled


@dataclass(frozen=True)
class Judged:
    """A recording with the derived data that the criteria share."""

    records: Records
    at: tuple[float, ...]
    phases: tuple[Phase, ...]
    settled: Mapping[Phase, tuple[int, ...]]

    @property
    def settled_records(self) -> Iterator[tuple[Phase, int, Record]]:
        """Each settled record with its phase and its index."""
        for phase, indices in self.settled.items():
            for index in indices:
                yield phase, index, self.records[index]

    @property
    def unsettled(self) -> tuple[Phase, ...]:
        """The phases without a settled record. Of several with one name, attempts at a load, the last one counts."""
        last = {phase.name: phase for phase in self.phases}
        return tuple(phase for phase, indices in self.settled.items() if not indices and last[phase.name] is phase)

    def where(self, phase: Phase, index: int) -> str:
        """Where a record is, in words: "at 12 s in calm"."""
        return f"at {self.at[index]:.0f} s{_in(phase)}"

    @classmethod
    def of(cls, records: Records, settle_s: float) -> Judged:
        """`settle_s`: seconds after a phase's start or a disturbance by which the cluster must have settled."""
        every = phases(records)
        parts = tuple(phase for phase in every if phase.name) or every  # before its first phase a run starts up
        return cls(records, seconds(records), parts, {p: settled(records, p, settle_s) for p in parts})


def _in(phase: Phase) -> str:
    return f" in {phase.name}" if phase.name else ""


def never_settled(parts: Sequence[Phase]) -> str:
    """A sentence that names the phases without a settled cycle, or nothing."""
    if not parts:
        return ""
    return f"; no settled cycle in {', '.join(part.name or 'the run' for part in parts)}"
