"""Why something runs as it does: the last decision about one name, in words, with its numbers. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

from qod_magics.controller.cycle import Cycle, Decision
from qod_magics.controller.dag import Dag, above, queries_of
from qod_magics.controller.entry import Entry
from qod_magics.controller.needs import Need, needs
from qod_magics.core.keyed import in_order
from qod_magics.core.optional import OPEN, TRUST
from qod_magics.core.snapshot import Instance, Snapshot, Task
from qod_magics.core.table import column
from qod_magics.policies.stream_economics import restrictions
from qod_magics.policies.stream_economics.measures import load_of

#: how many names a sentence lists before it says how many more there are
LISTED = 5

#: entries that say why an instance or a task manager is where it is
TOLD = ("move", "moved", "starved", "task-manager-lost", "query-failed", "query-restarted", "query-still", "move-waits")


def why(name: str, cycle: Cycle, decision: Decision, newest: Mapping[str, Entry]) -> str:
    """What `decision`, that of `cycle`, means for a task, an instance or a task manager, and why.

    `newest` holds the newest entry of each kind about `name`. Raises KeyError when the snapshot has no such name.
    """
    snapshot = decision.snapshot
    for task in snapshot.tasks:
        if task.id == name:
            parts = _task(task, cycle, decision, newest)
            break
    else:
        for instance in snapshot.instances:
            if instance.id == name:
                parts = _instance(instance, decision) + _warmed_up(newest)
                break
        else:
            parts = _manager(name, decision)
    parts += [f"{entry.kind} at {entry.at:%H:%M:%S}: {entry.words}" for k, entry in newest.items() if k in TOLD]
    if cycle.paused:
        parts.append("the controller is paused: this is recommended, not applied")
    elif not cycle.applied:
        parts.append("the plan could not be applied: the settings from before stay in force")
    return "; ".join(parts)


def shortage(name: str, need: Need) -> str:
    """Why instances have to leave a task manager: "tm1 needs 12.4 % more than it has at minimum accuracies"."""
    if need.short > 0:
        return f"{name} needs {need.short:.1f} % more than it has at minimum accuracies"
    return f"{name} needs {need.at_minimum:.1f} % of a core at minimum accuracies and has {need.available:.1f} %"


def limits(snapshot: Snapshot, found: Mapping[str, Need], tasks: Iterable[int]) -> Mapping[int, tuple[str, ...]]:
    """For each of these tasks, of those that depend on them and of all that those read from: the task managers that
    limit it. Those are short of CPU, or have an instance that warms up, and run it or something that it reads from.
    Tasks by position."""
    scarce = {name for name, need in found.items() if need.is_tight} | warming_up(snapshot).keys()
    dag = Dag.of(snapshot)
    upstream = dag.topology.upstream
    hosts: dict[int, tuple[str, ...]] = dict.fromkeys(dag.around(tasks), ())
    of = load_of(snapshot, dag.topology).task_of
    for t, host in zip(of, column(snapshot.instances, "task_manager"), strict=True):
        if t in hosts and host in scarce:
            hosts[t] += (host,)
    for t, mine in hosts.items():  # inputs come before their readers
        above = [hosts[source] for source in upstream[t]]
        if len(mine) > 1 or any(above):
            hosts[t] = tuple(dict.fromkeys(chain(mine, *above)))
    return hosts


def limiting(dag: Dag, desired: Sequence[float], t: int, limited: Mapping[int, tuple[str, ...]]) -> tuple[str, ...]:
    """The task managers that limit the accuracy asked of a task: of a query its own, of another task those of the
    query that is given the most, since that is whose accuracy it runs at. `desired`: by position, as is `t`."""
    downstream = dag.topology.downstream
    while downstream[t]:
        t = max(downstream[t], key=desired.__getitem__)
    return limited[t]


def supply(name: str, need: Need) -> str:
    """What a task manager has and needs, in words."""
    return (
        f"{name} has {need.available:.1f} % of a core for its tasks, "
        f"needs {need.at_minimum:.1f} % at minimum accuracies and {need.at_full:.1f} % at full accuracy"
    )


def warming_up(snapshot: Snapshot) -> Mapping[str, list[str]]:
    """The instances that warm up, by task manager."""
    found: dict[str, list[str]] = {}
    if True not in column(snapshot.instances, "warming_up"):
        return found
    for instance in snapshot.instances:
        if instance.warming_up:
            found.setdefault(instance.task_manager, []).append(instance.id)
    return found


def pressure(name: str, need: Need, warming: list[str]) -> str:
    """What a task manager that limits somebody has and needs, and whether it is that instances of it warm up."""
    words = supply(name, need)
    if warming:
        words += f"; warming up there: {listed(warming)}, so its queries run at their minimum until that is over"
    return words


def listed(names: list[str]) -> str:
    """Names with commas, at most `LISTED` of them."""
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return ", ".join(names[:LISTED]) + more


def _task(task: Task, cycle: Cycle, decision: Decision, newest: Mapping[str, Entry]) -> list[str]:
    snapshot, plan = decision.snapshot, decision.plan
    desired = plan.desired[task.id]
    priority, minimum = restrictions(snapshot)[task.id]
    shed = newest.get("shedding")
    was = f"was {shed.numbers['before']:.2f} until {shed.at:%H:%M:%S}; " if shed and "before" in shed.numbers else ""
    verb = "runs" if cycle.applied else "should run"
    parts = [f"{task.id} {verb} at {desired:.2f} of its input ({was}minimum {minimum:.2f}, priority {priority})"]
    measured = decision.measured.accuracy.get(task.id)
    if measured is not None:
        parts.append(f"measured in this cycle: {measured:.2f}")
    if snapshot.downstream[task.id]:
        wanted = [f"{query.id} {plan.desired[query.id]:.2f}" for query in queries_of(snapshot, task.id)]
        parts.append(f"that is the most that its queries are given ({listed(wanted)})")
    if desired < 1:
        parts += _cause(task, decision)
    parts += _drain(task, decision)
    return parts


def _cause(task: Task, decision: Decision) -> list[str]:
    snapshot, plan = decision.snapshot, decision.plan
    found = needs(snapshot)
    warming = warming_up(snapshot)
    priority = restrictions(snapshot)
    related = {name for query in queries_of(snapshot, task.id) for name in above(snapshot, query.id)}
    parts = []
    moved = [i for i in plan.leaving if _task_of(snapshot, i) in related]
    if moved:
        parts.append(
            f"to be moved: {listed(list(dict.fromkeys(moved)))}, so its queries run at their minimum meanwhile"
        )
    dag = Dag.of(snapshot)
    t = dag.topology.position[task.id]
    for host in limiting(dag, in_order(plan.desired, dag.tasks), t, limits(snapshot, found, [t])):
        words = pressure(host, found[host], warming.get(host, []))
        if host not in warming:
            here = {i.task for i in snapshot.instances if i.task_manager == host}
            first = sorted(t for t in here - above(snapshot, task.id) if priority[t][0] > priority[task.id][0])
            if first:
                names = [f"{other} (priority {priority[other][0]})" for other in first]
                words += f", and serves {listed(names)} first"
        parts.append(words)
    if not parts:
        parts.append(f"policy {decision.policy} decided so, with no task manager short of CPU")
    return parts


def _drain(task: Task, decision: Decision) -> list[str]:
    lag, dials = decision.measured.lag, decision.dials
    if not task.upstream:
        given, kept = decision.plan.non_drop.get((None, task.id), 1.0), dials.keep.get((None, task.id), 1.0)
        waiting = lag.get(task.id, 0)
    else:
        given, kept = decision.plan.desired[task.id], dials.accept.get(task.id, 1.0)
        waiting = sum(lag.get(f"{source}>{task.id}", 0) for source in task.upstream)
    if kept >= given - 0.005:
        return []
    return [f"{waiting} rows wait, so it keeps {kept:.2f} for now, until they are gone"]


def _instance(instance: Instance, decision: Decision) -> list[str]:
    parts = [
        f"{instance.id} runs on {instance.task_manager}, reads {instance.in_rate:.0f} rows/s with {instance.cpu:.1f} %"
        f" of a core"
    ]
    if instance.id in decision.plan.leaving:
        target = decision.plan.place.get(instance.id, "another task manager, once there is room")
        parts.append(f"it moves to {target}")
    if instance.warming_up:
        parts.append("it is warming up")
    parts.append(f"its task {instance.task} is to run at {decision.plan.desired[instance.task]:.2f} of its input")
    parts.append(supply(instance.task_manager, needs(decision.snapshot)[instance.task_manager]))
    return parts


def _warmed_up(newest: Mapping[str, Entry]) -> list[str]:
    begun, over = newest.get("warm-up"), newest.get("warm-up-over")
    last = over if over is not None and (begun is None or over.cycle > begun.cycle) else begun
    return [] if last is None else [f"{last.kind} at {last.at:%H:%M:%S}: {last.words.partition(': ')[2]}"]


def _manager(name: str, decision: Decision) -> list[str]:
    snapshot = decision.snapshot
    manager = {each.id: each for each in snapshot.task_managers}[name]
    here = [instance for instance in snapshot.instances if instance.task_manager == name]
    used = sum(instance.cpu for instance in here)
    parts = [
        f"{supply(name, needs(snapshot)[name])}; its {manager.cores:g} cores are {manager.cpu:.1f} % busy, "
        f"{used:.1f} % with its {len(here)} instances"
    ]
    if here:
        most = sorted(here, key=lambda instance: -instance.cpu)
        parts.append("it runs " + listed([f"{i.id} ({i.cpu:.1f} %)" for i in most]))
    if (limit_s := OPEN.of(manager)) is not None:
        parts.append(f"it runs open: nothing is shed for its CPU until more than {limit_s:g} s of its input wait")
    elif (trust := TRUST.of(manager)) is not None and round(trust, 2) != 1.0:
        fewer = "more" if trust > 1.0 else "less"
        parts.append(f"plans give its tasks {abs(trust - 1.0):.0%} {fewer} CPU than that, by the rows that wait there")
    warming = [instance.id for instance in here if instance.warming_up]
    if warming:
        parts.append(f"warming up: {listed(warming)}, so it takes no part in sharing and nothing is moved away from it")
    leaving = [instance.id for instance in here if instance.id in decision.plan.leaving]
    if leaving:
        parts.append(f"told to leave it: {listed(leaving)}")
    if name in decision.plan.starved:
        parts.append("it is starved: its minimum accuracies don't fit and there is nowhere to move a task to")
    return parts


def _task_of(snapshot: Snapshot, instance: str) -> str | None:
    return next((each.task for each in snapshot.instances if each.id == instance), None)
