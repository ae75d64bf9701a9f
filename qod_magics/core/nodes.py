"""Task managers that join, stand by, leave or could be started. Pure.

In the JSON of a snapshot, `node_states` and `spare_nodes`:

    {"node_states": {"tm2": "standby", "tm3": "starting"},
     "spare_nodes": [{"kind": "large", "count": 2, "cores": 4, "memory_mb": 12288, "price": 0.1168, "start_s": 12}]}
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct


class NodeState(StrEnum):
    """The state of a task manager that is not simply up."""

    STARTING = "starting"  #: joins once it is warm
    PREPARING = "preparing"  #: stands by once it is warm
    STANDBY = "standby"  #: up and warm; hosts nothing
    LEAVING = "leaving"  #: its instances move to the others


class Spare(Struct, frozen=True, omit_defaults=True):
    """Task managers of one kind that an `AddNode` can start."""

    kind: str  #: as in `AddNode.kind`
    count: Annotated[int, Meta(ge=0)]  #: how many more of it
    cores: Annotated[float, Meta(ge=0)] = 1.0  #: of each, as plans would see it
    memory_mb: Annotated[float, Meta(ge=0)] | None = None  #: of each; None: unknown
    price: Annotated[float, Meta(ge=0)] | None = None  #: of each, per hour; None: unknown
    start_s: Annotated[float, Meta(ge=0)] = 0.0  #: until one is up, seconds; about 0 for one that stands by
