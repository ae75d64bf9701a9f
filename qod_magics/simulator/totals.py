"""What was done up to an instant, by whom. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qod_magics.simulator.wiring import Array, Wiring


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

    def copy(self, other: Totals, instances: Array, channels: Array, outlets: Array) -> None:
        """Take over what `other` says of these."""
        self.at[instances] = other.at[instances]
        self.cpu[instances] = other.cpu[instances]
        self.out[instances] = other.out[instances]
        self.came[instances] = other.came[instances]
        self.read[channels] = other.read[channels]
        self.kept[channels] = other.kept[channels]
        self.sent[outlets] = other.sent[outlets]
        self.unsent[outlets] = other.unsent[outlets]
