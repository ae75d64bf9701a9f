"""Replay of recordings: the views of a live session without Spark, Kafka or Java, and what-if."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qod_magics.controller.log import DecisionLog
from qod_magics.controller.record import Record
from qod_magics.controller.status import cycle_text
from qod_magics.core.plan import Plan
from qod_magics.core.snapshot import Snapshot, replace
from qod_magics.errors import UsageProblem, nearest
from qod_magics.policies import PAPER_POLICY, policy
from qod_magics.recordings.frame import Frame, frames
from qod_magics.recordings.reading import cycle_of, load, seconds
from qod_magics.session.show import mime_bundle

if TYPE_CHECKING:
    from qod_widgets.dashboard import Dashboard

#: An hour of cycles, played in two minutes.
DEFAULT_SPEED = 30.0


class Replay:
    """A recording played at `speed` recorded seconds per second. As the last expression of a cell it is displayed."""

    def __init__(self, path: str | os.PathLike[str], speed: float = DEFAULT_SPEED) -> None:
        """Read the whole recording; of one that holds several runs, the last, with a line that says so. Raises
        RecordingError if it is invalid, UsageProblem if it can't be read or for a speed of 0 or less."""
        if not speed > 0:
            raise UsageProblem(
                f"a speed of {speed!r} plays nothing: take a number above 0", value=speed, rule="positive"
            )
        self.path, self.speed = Path(path).expanduser(), speed
        try:
            self.records = load(self.path, say=print)
        except OSError as error:
            raise UsageProblem(
                f"{self.path} can't be read ({error.strerror}): name a recording", rule="readable"
            ) from None
        self.at = seconds(self.records)
        self.log = DecisionLog()
        self.frames: list[Frame] = list(frames(self.records, self.records[0].at, self.log))
        self.position = len(self.records) - 1  #: index of the record that is shown
        self._dashboard: Dashboard | None = None
        self._playing = threading.Event()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._moved: list[Callable[[int], object]] = []

    @property
    def record(self) -> Record:
        """Return the cycle at the present position."""
        return self.records[self.position]

    @property
    def snapshot(self) -> Snapshot:
        """Return the snapshot at the present position."""
        return self.record.snapshot

    def seek(self, second: float) -> None:
        """Go to the last cycle that began by `second`, counted from the recording's start."""
        self._go(max((i for i, t in enumerate(self.at) if t <= second), default=0))

    def play(self, start: float | None = None) -> None:
        """Play from here, or from second `start`; at the end, from the beginning."""
        if start is not None:
            self.seek(start)
        elif self.position == len(self.records) - 1:
            self._go(0)
        self._playing.set()
        if self._thread is None or not self._thread.is_alive():
            self._ended.clear()
            self._thread = threading.Thread(target=self._run, name="qod-replay", daemon=True)
            self._thread.start()

    def pause(self) -> None:
        """Stop playing; the position stays."""
        self._playing.clear()

    def close(self) -> None:
        """End the thread and the view."""
        self._ended.set()
        self._playing.set()
        if self._thread is not None:
            self._thread.join(5.0)
        if self._dashboard is not None:
            self._dashboard.end()

    def why(self, name: str) -> str:
        """Return the last decision about a task, an instance or a task manager in the recording, and why."""
        return self.log.why(name)

    def status(self) -> str:
        """Task managers, tasks with their accuracies, lag and drops, and the decision at the present position."""
        return cycle_text(cycle_of(self.record))

    def what_if(
        self,
        name: str,
        *,
        priority: int | None = None,
        min_accuracy: float | None = None,
        policy_name: str | None = None,
    ) -> Plan:
        """Return the plan that the policy would have made at the present position, had this query had these
        restrictions.

        Made by the policy that decided there, unless `policy_name` names another. A learning policy knows only what
        was recorded.

        Raises:
            UsageProblem: there is no such query or policy, or the accuracy is out of range.

        """
        name_of = policy_name or self.record.policy or PAPER_POLICY
        return policy(name_of).decide(restricted(self.snapshot, name, priority, min_accuracy), None)[0]

    def dashboard(self) -> Dashboard:
        """Return the live view of this recording."""
        from qod_widgets.dashboard import Dashboard

        if self._dashboard is None:
            self._dashboard = Dashboard(f"{self.path.name}, a recording", self.frames[: self.position + 1])
        return self._dashboard

    def on_move(self, callback: Callable[[int], object]) -> None:
        """Call `callback` with the position whenever it changes."""
        self._moved.append(callback)

    def __repr__(self) -> str:
        managers = {manager.id for record in self.records for manager in record.snapshot.task_managers}
        tasks = {task.id for record in self.records for task in record.snapshot.tasks}
        return (
            f"recording {self.path.name}: {len(self.records)} cycles over {self.at[-1]:.0f} s, {len(tasks)} tasks, "
            f"{len(managers)} task managers; at {self.at[self.position]:.0f} s"
        )

    def _repr_mimebundle_(self, **options: Any) -> Any:
        from qod_widgets.dashboard import replay_controls

        return mime_bundle(replay_controls(self), repr(self), **options)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _go(self, position: int) -> None:
        forward = position == self.position + 1
        self.position = position
        if self._dashboard is not None:
            if forward:
                self._dashboard.feed(self.frames[position])
            else:
                self._dashboard.rewind(self.frames[: position + 1])
        for callback in self._moved:
            callback(position)

    def _run(self) -> None:
        while self._playing.wait() and not self._ended.is_set():
            here = self.position
            if here == len(self.records) - 1:
                self._playing.clear()
                continue
            if self._ended.wait((self.at[here + 1] - self.at[here]) / self.speed):
                return
            if self._playing.is_set() and self.position == here:
                self._go(here + 1)


def replay(path: str | os.PathLike[str], speed: float = DEFAULT_SPEED) -> Replay:
    """Return a recording to watch, at `speed` recorded seconds per second. See `Replay`."""
    return Replay(path, speed)


def restricted(snapshot: Snapshot, name: str, priority: int | None, min_accuracy: float | None) -> Snapshot:
    """`snapshot` with other restrictions of one query. Raises UsageProblem when there is none of this name."""
    queries = [task.id for task in snapshot.tasks if task.min_accuracy is not None]
    if name not in queries:
        raise UsageProblem(f"there is no query {name!r}.{nearest(name, queries)}", name=name, rule="exists")
    if min_accuracy is not None and not 0 <= min_accuracy <= 1:
        raise UsageProblem(f"a minimum accuracy lies between 0 and 1, not at {min_accuracy!r}")
    tasks = tuple(
        replace(
            task,
            priority=task.priority if priority is None else priority,
            min_accuracy=task.min_accuracy if min_accuracy is None else min_accuracy,
        )
        if task.id == name
        else task
        for task in snapshot.tasks
    )
    return replace(snapshot, tasks=tasks)
