"""D-Storm: instances packed by measured demand and traffic, again when targets are missed or nodes are idle.

After Liu, Lin and Buyya, "Dynamic Resource-Efficient Scheduling in Data Stream Management Systems Deployed on Computing
Clouds". `policy` is the loop: it averages a window (`observation`), states a packing problem and has it
solved (`solver`, by `packing.pack`, which is Algorithm 1), and explains the plan. `static` has the schedulers
that D-Storm is compared with; `solver.consolidation` is for policies that compose the packing.
"""

from __future__ import annotations

from qod_magics.policies.d_storm.packing import Channel, Demand, Node, Packing, Parameters, Problem, pack
from qod_magics.policies.d_storm.policy import DStorm
from qod_magics.policies.d_storm.solver import Consolidation, Known, consolidation
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
