"""Placing instances that have no task manager: by the demands known, equal ones where none is (section 2.7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from qod_magics.core.load import whole_cpu
from qod_magics.core.placement import Unplaced, takes_instances
from qod_magics.core.snapshot import Instance, TaskManager
from qod_magics.policies.d_storm.packing import SLACK, pack
from qod_magics.policies.d_storm.parameters import DEFAULTS, Parameters
from qod_magics.policies.d_storm.problem import Demand, Node, Problem


def placed(
    unplaced: Sequence[Unplaced],
    managers: Sequence[TaskManager],
    running: Sequence[Instance],
    parameters: Parameters = DEFAULTS,
) -> Mapping[str, str]:
    """Task manager by instance, packed into what is free; streams are not known yet.

    An instance that never ran demands as much as another of its task, or else an equal part of the CPU left, so that
    the cluster is filled evenly until it is measured. What doesn't pack, or must not go where it packs, goes where the
    largest share of the CPU is left: an instance without a task manager would wait.
    """
    open_to_all = [manager for manager in managers if takes_instances(manager)]
    nodes = {m.id: Node(m.id, max(whole_cpu(m.cores) - m.cpu, 0.0), cores=m.cores) for m in open_to_all}
    demands = {demand.id: demand for demand in _demands(unplaced, list(nodes.values()), running)}
    packing = pack(Problem(tuple(demands.values()), tuple(nodes.values()), ()), parameters)
    left = {name: node.cpu for name, node in nodes.items()}
    found = {}
    homeless = []
    for one in unplaced:
        node = packing.placement.get(one.instance)
        if node is None or node in one.forbidden:
            homeless.append(one)
        else:
            found[one.instance] = node
            left[node] -= demands[one.instance].cpu
    for one in homeless:
        allowed = [name for name in nodes if name not in one.forbidden]
        if allowed:
            need = demands[one.instance].cpu
            fitting = [name for name in allowed if need <= left[name] + SLACK]
            chosen = max(fitting or allowed, key=lambda name: left[name] / whole_cpu(nodes[name].cores or 1.0))
            found[one.instance] = chosen
            left[chosen] -= need
    return found


def _demands(unplaced: Sequence[Unplaced], nodes: Sequence[Node], running: Sequence[Instance]) -> list[Demand]:
    by_task = {instance.task: instance.cpu for instance in running if not instance.warming_up}
    known = {one.instance: by_task.get(one.task) if one.estimate is None else one.estimate for one in unplaced}
    given = sum(cpu for cpu in known.values() if cpu is not None)
    unknown = sum(cpu is None for cpu in known.values())
    equal = max(sum(node.cpu for node in nodes) - given, 0.0) / unknown if unknown else 0.0
    return [Demand(instance, equal if cpu is None else cpu) for instance, cpu in known.items()]
