"""The policies of the engines of virtual time, by name.

Dispatchers schedule single messages (`core.engines.Dispatcher`), policies of channels size output buffers and chain
tasks (`core.job_graph.ChannelPolicy`), replication policies copy segments (`core.engines.ReplicationPolicy`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from qod_magics.core.engines import Dispatcher, ReplicationPolicy
from qod_magics.core.job_graph import ChannelPolicy
from qod_magics.errors import UsageProblem, hint, show
from qod_magics.policies import factory_of
from qod_magics.policies.getafix import Getafix, Parameters, Scarlett, Uniform

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
    """Return a new dispatcher called `name`. Raises UsageProblem if there is none."""
    made: Dispatcher = factory_of(_DISPATCHERS, name, "dispatcher")()
    return made


def dispatcher_names() -> tuple[str, ...]:
    """Return the names that `dispatcher` knows, sorted."""
    return tuple(sorted(_DISPATCHERS))


#: name -> "module:factory", imported on demand
_CHANNEL_POLICIES = {
    "nephele": "qod_magics.policies.nephele.manager:nephele",
    "nephele-fixed-buffers": "qod_magics.policies.nephele.manager:fixed_buffers",
    "nephele-flush": "qod_magics.policies.nephele.manager:flush",
}


def channel_policy(name: str, parameters: Mapping[str, Any] | None = None) -> ChannelPolicy:
    """Return a new policy called `name`. Raises UsageProblem if there is none, or for a parameter that it has not."""
    made: ChannelPolicy = factory_of(_CHANNEL_POLICIES, name, "policy of channels")(parameters)
    return made


def channel_policy_names() -> tuple[str, ...]:
    """Return the names that `channel_policy` knows, sorted."""
    return tuple(sorted(_CHANNEL_POLICIES))


#: name -> (factory, its options)
_REPLICATION_POLICIES: Mapping[str, tuple[Callable[..., ReplicationPolicy], tuple[str, ...]]] = {
    "getafix": (lambda **options: Getafix(Parameters(**options)), tuple(each.name for each in fields(Parameters))),
    "scarlett": (Scarlett, ("delta",)),
    "uniform": (Uniform, ("copies",)),
}


def replication_policy(name: str, options: Mapping[str, Any] | None = None) -> ReplicationPolicy:
    """Return a new instance of the policy called `name`.

    Raises:
        UsageProblem: there is no policy of this name, it has no such option, or an option has no such value.

    """
    if name not in _REPLICATION_POLICIES:
        raise UsageProblem(
            f"{show(name)} replicates no segments; give one of {', '.join(_REPLICATION_POLICIES)}."
            f"{hint(name, _REPLICATION_POLICIES)}",
            name=name,
            rule="exists",
        )
    make, known = _REPLICATION_POLICIES[name]
    for option in options or {}:
        if option not in known:
            raise UsageProblem(
                f"policy {name} has no option {show(option)}; it has {', '.join(known)}.{hint(option, known)}",
                name=option,
                rule="exists",
            )
    return make(**(options or {}))


def replication_policy_names() -> tuple[str, ...]:
    """Return the names that `replication_policy` knows, sorted."""
    return tuple(sorted(_REPLICATION_POLICIES))
