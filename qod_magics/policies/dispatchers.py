"""The dispatchers of messages, by name. Each implements `core.dispatch.Dispatcher`."""

from __future__ import annotations

from qod_magics.core.dispatch import Dispatcher
from qod_magics.policies.lookup import factory_of

#: name -> "module:factory", imported on demand
_DISPATCHERS = {
    "cameo": "qod_magics.policies.cameo:cameo",
    "cameo-edf": "qod_magics.policies.cameo:earliest_deadline",
    "cameo-sjf": "qod_magics.policies.cameo:shortest_job",
    "cameo-tokens": "qod_magics.policies.cameo:with_tokens",
    "cameo-topology-only": "qod_magics.policies.cameo:topology_only",
    "central-random": "qod_magics.policies.dirigo:CentralRandom",
    "dirigo-2rtt-parallel": "qod_magics.policies.dirigo:Parallel",
    "dirigo-2rtt-pipelined": "qod_magics.policies.dirigo:Pipelined",
    "dirigo-2rtt-sequential": "qod_magics.policies.dirigo:Sequential",
    "dirigo-accept-and-check": "qod_magics.policies.dirigo:AcceptAndCheck",
    "dirigo-laxity": "qod_magics.policies.dirigo:LaxityBasedDirect",
    "dirigo-queue": "qod_magics.policies.dirigo:QueueBasedDirect",
    "dirigo-reject-send": "qod_magics.policies.dirigo:RejectSend",
    "dirigo-static": "qod_magics.policies.dirigo:PriorityBased",
    "fifo": "qod_magics.policies.cameo:fifo",
    "orleans": "qod_magics.policies.cameo:orleans",
}


def dispatcher(name: str) -> Dispatcher:
    """A new dispatcher called `name`. Raises UsageProblem if there is none."""
    made: Dispatcher = factory_of(_DISPATCHERS, name, "dispatcher")()
    return made


def dispatcher_names() -> tuple[str, ...]:
    """The names that `dispatcher` knows, sorted."""
    return tuple(sorted(_DISPATCHERS))
