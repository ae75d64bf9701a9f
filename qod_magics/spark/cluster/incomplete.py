"""Results that lack rows though no shedder dropped them: rows behind a watermark, and state that was lost. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime


@dataclass(slots=True)
class Incomplete:
    """What is missing in the results of tasks, by task, since the start."""

    late: dict[str, int] = field(default_factory=dict)  #: rows that came behind a watermark; see `Batch.late`
    grouped: set[str] = field(default_factory=set)  #: the tasks of which these are rows of groups: at least so many
    watermarks: dict[str, str] = field(default_factory=dict)  #: where they were when rows came late last
    anew: dict[str, float] = field(default_factory=dict)  #: when its state was lost, seconds since the epoch

    def add(self, task: str, late: int, grouped: bool, watermark: str | None = None) -> None:
        """Count the late rows of a batch."""
        if late:
            self.late[task] = self.late.get(task, 0) + late
            self.grouped |= {task} if grouped else set()
            self.watermarks |= {task: watermark} if watermark else {}

    def forget(self, task: str) -> None:
        """Drop a task that is gone."""
        self.late.pop(task, None)
        self.grouped.discard(task)
        self.watermarks.pop(task, None)
        self.anew.pop(task, None)

    def copy(self) -> Incomplete:
        """A copy for a rollback."""
        return Incomplete(dict(self.late), set(self.grouped), dict(self.watermarks), dict(self.anew))

    def texts(self, task: str) -> list[str]:
        """A sentence for each reason for which a task's results are incomplete."""
        told = []
        if rows := self.late.get(task):
            told.append(late_text(rows, task in self.grouped, self.watermarks.get(task)))
        if (since := self.anew.get(task)) is not None:
            told.append(f"{anew_text(since)}; its results are incomplete there")
        return told


def late_text(rows: int, grouped: bool, watermark: str | None = None) -> str:
    """Such as: at least 3 rows came behind the watermark and are in none of its results, whose sums lack them.

    Args:
        rows: how many.
        grouped: whether there may be more.
        watermark: where it is; a single time far ahead of the others moves it there for good.

    """
    least = "at least " if grouped else ""
    came, are, them = ("row came", "is", "it") if rows == 1 else ("rows came", "are", "them")
    at = f", which was at {watermark}," if watermark else ""
    return (
        f"{least}{rows:,} {came} behind the watermark{at} and {are} in none of its results, whose sums and counts lack "
        f"{them}; a longer delay in withWatermark() waits for such rows"
    )


def anew_text(since: float) -> str:
    """Such as: its state began anew at 12:00:05: windows and groups that were open then lack the rows from before."""
    at = datetime.fromtimestamp(since).astimezone()
    return f"its state began anew at {at:%H:%M:%S}: windows and groups that were open then lack the rows from before"
