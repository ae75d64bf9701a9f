"""Traffic of a placement (Eq. 5.2)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from qod_magics.policies.d_storm.problem import Channel


def total_traffic(channels: Iterable[Channel]) -> float:
    """Traffic between all instances, in the unit of the channels."""
    return sum(channel.traffic for channel in channels if channel.source != channel.target)


def inter_node_traffic(channels: Iterable[Channel], placement: Mapping[str, str]) -> float:
    """kappa: traffic of the channels whose ends are on different nodes; each directed channel counts once."""
    return sum(channel.traffic for channel in channels if placement[channel.source] != placement[channel.target])
