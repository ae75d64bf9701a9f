"""How far the metrics of an instance can be relied on, and what its `state` says. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from qod_magics.core.snapshot import Instance, Window

BACKING_OFF, GIVEN_UP = "backing off", "given up"  #: states of an instance whose query has failed


@dataclass(frozen=True, slots=True)
class Freshness:
    """How far the metrics of an instance can be relied on."""

    window: Window | None = None  #: None: the runtime does not say
    stale: bool = False
    missing: tuple[str, ...] = ()

    @classmethod
    def of(cls, instance: Instance) -> Freshness:
        """Return the freshness of an instance by its row."""
        return cls(instance.window, instance.stale, instance.missing)

    @property
    def is_fresh(self) -> bool:
        """Whether all metrics are current."""
        return not self.stale and not self.missing


def is_moving(instance: Instance) -> bool:
    """Return whether it is moving; until it arrives, it is listed on its old task manager."""
    return instance.state == "moving"


def has_failed(instance: Instance) -> bool:
    """Return whether its query has failed and does not run now: it starts again after a back-off, or was given up."""
    return instance.state in (BACKING_OFF, GIVEN_UP)


def is_given_up(instance: Instance) -> bool:
    """Return whether its query has failed too often and starts again only when asked to."""
    return instance.state == GIVEN_UP


def is_running(instance: Instance) -> bool:
    """Return whether it runs, as far as the runtime says: one that starts, moves or has failed is not moved or
    fused."""
    return instance.state in (None, "running")
