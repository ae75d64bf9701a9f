"""The levers of a controller, and which action pulls which."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from qod_magics.core.actions import Action, AddNode, Fuse, Move, ReleaseNode, Scale, SetBatch, Stop, Unfuse


class Lever(Enum):
    """What a stage may change. Each has one owner in a stack."""

    SHEDDING = "shedding"
    BATCHES = "batches"
    PLACEMENT = "placement"
    FUSION = "fusion"
    PARALLELISM = "parallelism"
    NODES = "nodes"


LEVER_OF: Mapping[type[Action], Lever] = {
    Move: Lever.PLACEMENT,
    Stop: Lever.PLACEMENT,
    SetBatch: Lever.BATCHES,
    Fuse: Lever.FUSION,
    Unfuse: Lever.FUSION,
    Scale: Lever.PARALLELISM,
    AddNode: Lever.NODES,
    ReleaseNode: Lever.NODES,
}
