"""Cumulative counters by instance, channel and outlet. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qod_magics.simulator.engine.wiring import Array, Wiring


@dataclass(frozen=True, slots=True)
class Parts:
    """The positions of some instances, and of their channels and outlets."""

    instances: Array
    channels: Array
    outlets: Array

    @classmethod
    def of(cls, instances: Array, wiring: Wiring) -> Parts:
        """These instances with their channels and outlets."""
        if len(instances) == 1:
            outlets = np.flatnonzero(wiring.outlet_instance == instances[0])
            return cls(instances, wiring.channels_of(int(instances[0])), outlets)
        chosen = np.zeros(len(wiring.instances), bool)
        chosen[instances] = True
        channels, outlets = chosen[wiring.channel_instance], chosen[wiring.outlet_instance]
        return cls(instances, np.flatnonzero(channels), np.flatnonzero(outlets))


@dataclass(slots=True)
class Totals:
    """Counters at an instant, since the start: by instance, by channel and by outlet."""

    at: Array  #: by instance
    cpu: Array
    out: Array
    came: Array  #: rows that reached its task
    read: Array
    kept: Array
    sent: Array
    unsent: Array

    @classmethod
    def zero(cls, wiring: Wiring) -> Totals:
        """Before the first row."""
        instances, channels, outlets = len(wiring.instances), len(wiring.channel_edge), len(wiring.outlet_edge)
        whole = np.int64
        return cls(
            np.zeros(instances),
            np.zeros(instances),
            np.zeros(instances, whole),
            np.zeros(instances, whole),
            np.zeros(channels, whole),
            np.zeros(channels, whole),
            np.zeros(outlets, whole),
            np.zeros(outlets, whole),
        )

    def of(self, parts: Parts) -> Totals:
        """The totals of some parts, in their order."""
        i, c, o = parts.instances, parts.channels, parts.outlets
        return Totals(
            self.at[i],
            self.cpu[i],
            self.out[i],
            self.came[i],
            self.read[c],
            self.kept[c],
            self.sent[o],
            self.unsent[o],
        )

    def put(self, parts: Parts, found: Totals) -> None:
        """Set the totals of some parts to `found`, in their order."""
        i, c, o = parts.instances, parts.channels, parts.outlets
        self.at[i], self.cpu[i], self.out[i], self.came[i] = found.at, found.cpu, found.out, found.came
        self.read[c], self.kept[c] = found.read, found.kept
        self.sent[o], self.unsent[o] = found.sent, found.unsent
