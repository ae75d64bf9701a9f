"""When an instance's metrics were measured, and which are stale or missing. Pure.

A runtime writes these keys into an instance's row: `window` ([begin, end], seconds since the epoch), `stale` (true: of
an earlier time, or of earlier input), `missing` (names of metrics never measured), `state` ("running", "moving" ...).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from qod_magics.core.snapshot import Instance
from qod_magics.core.wording import show
from qod_magics.errors import SnapshotError

BACKING_OFF, GIVEN_UP = "backing off", "given up"  #: states of an instance whose query has failed

Window = tuple[float, float]  #: (begin, end), seconds since the epoch


@dataclass(frozen=True, slots=True)
class Freshness:
    """How far the metrics of an instance can be relied on."""

    window: Window | None = None  #: None: the runtime does not say
    stale: bool = False
    missing: tuple[str, ...] = ()

    @classmethod
    def of(cls, instance: Instance) -> Freshness:
        """As the instance's row says. Raises a one-line SnapshotError for an invalid window."""
        extra = instance.extra
        return cls(window_of(instance), bool(extra.get("stale")), tuple(extra.get("missing") or ()))

    @property
    def is_fresh(self) -> bool:
        """Whether all metrics are current."""
        return not self.stale and not self.missing


def is_moving(instance: Instance) -> bool:
    """Whether it is moving; until it arrives, it is listed on its old task manager."""
    return instance.extra.get("state") == "moving"


def has_failed(instance: Instance) -> bool:
    """Whether its query has failed and does not run now: it starts again after a back-off, or was given up."""
    return instance.extra.get("state") in (BACKING_OFF, GIVEN_UP)


def is_given_up(instance: Instance) -> bool:
    """Whether its query has failed too often and starts again only when asked to."""
    return instance.extra.get("state") == GIVEN_UP


def is_running(instance: Instance) -> bool:
    """Whether it runs, as far as the runtime says: one that starts, moves or has failed is not moved or fused."""
    return instance.extra.get("state") in (None, "running")


def window_of(instance: Instance) -> Window | None:
    """The time window of an instance's metrics. Raises a one-line SnapshotError for an invalid one."""
    window: Any = instance.extra.get("window")
    if window is None:
        return None
    try:
        begin, end = window
        return float(begin), float(end)
    except (TypeError, ValueError):
        raise SnapshotError(
            f"instances.window: {show(window)} is no window; give [begin, end] in seconds since the epoch"
        ) from None
