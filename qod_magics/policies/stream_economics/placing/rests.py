"""Cool-down of instances that have just moved: they are not moved again for a while. Pure.

A move costs a start on code that is not compiled, and metrics of the minute after it say little: without a cool-down,
the same instances would move to and fro. A load that changes by half ends it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from qod_magics.core.copying import replace
from qod_magics.core.snapshot import Snapshot

REST_S = 60.0
#: Cool-down after the first start: costs from a reading or two are a guess.
START_S = 20.0
#: An input rate higher or lower than at the move by this factor ends the cool-down.
CHANGE = 1.5


@dataclass(frozen=True, slots=True)
class Home:
    """Where an instance runs, since when, and the application's input rate when it arrived."""

    task_manager: str
    rest_s: float
    since: float | None  #: when it was first measured there, seconds since the epoch; None: not yet
    rate: float  #: of all sources together when it arrived, rows/s


def with_rests(snapshot: Snapshot, before: Mapping[str, Home] | None) -> tuple[Snapshot, Mapping[str, Home]]:
    """`snapshot` with `rests_s` of the instances in their cool-down; and the homes of all."""
    windows = [window[1] for i in snapshot.instances if (window := i.window) is not None]
    now = max(windows, default=None)
    rate = sum(task.external_rate or 0.0 for task in snapshot.tasks if not task.upstream)
    known = before if before is not None else {}
    tasks = {task.id for task in snapshot.tasks}
    homes = {id: home for id, home in known.items() if id.rpartition(".")[0] in tasks}  # one that moves may be missing
    rests: dict[str, float] = {}
    for instance in snapshot.instances:
        home = known.get(instance.id)
        if home is None or home.task_manager != instance.task_manager:
            home = Home(instance.task_manager, START_S if home is None else REST_S, None, rate)
        if home.since is None and instance.window is not None:
            home = replace(home, since=now)
        homes[instance.id] = home
        passed_s = now - home.since if now is not None and home.since is not None else 0.0
        left_s = home.rest_s - passed_s
        if left_s > 0.0 and home.rate / CHANGE < rate < home.rate * CHANGE:
            rests[instance.id] = left_s
    if not rests:
        return snapshot, homes
    instances = tuple(replace(i, rests_s=rests[i.id]) if i.id in rests else i for i in snapshot.instances)
    return replace(snapshot, instances=instances), homes
