"""D-Storm: instances packed by measured demand and traffic, again when targets are missed or nodes are idle.

After Liu, Lin and Buyya, "Dynamic Resource-Efficient Scheduling in Data Stream Management Systems Deployed on Computing
Clouds". The loop is `policy.DStorm.decide`; `packing.pack` is its Algorithm 1; each other module holds one concept.
`static` has the schedulers that it is compared with; `consolidation` answers questions of policies that compose it.
"""

from __future__ import annotations

from qod_magics.policies.d_storm.consolidation import Consolidation, Known, consolidation
from qod_magics.policies.d_storm.packing import Packing, pack
from qod_magics.policies.d_storm.parameters import Parameters
from qod_magics.policies.d_storm.policy import DStorm
from qod_magics.policies.d_storm.problem import Channel, Demand, Node, Problem
from qod_magics.policies.d_storm.static import StormRas, StormRoundRobin

__all__ = [
    "Channel",
    "Consolidation",
    "DStorm",
    "Demand",
    "Known",
    "Node",
    "Packing",
    "Parameters",
    "Problem",
    "StormRas",
    "StormRoundRobin",
    "consolidation",
    "pack",
]
