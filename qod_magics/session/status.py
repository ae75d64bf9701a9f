"""A session's state as text: a table for people, the same in a notebook and in a terminal."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from qod_magics.application.streams.rules import broken_text
from qod_magics.controller.status import TaskStatus, busy, duration, share, table, task_status
from qod_magics.core.load import FULL_ACCURACY
from qod_magics.core.plan import edge_name
from qod_magics.errors import UsageProblem
from qod_magics.lifecycle.events import State, told
from qod_magics.sources.registry import described
from qod_magics.sources.source import is_topic
from qod_magics.spark.cluster.books import gone_text, misfits
from qod_magics.spark.cluster.repeats import again_text, repeats_text
from qod_magics.spark.plans.job import feed_of, reader

if TYPE_CHECKING:
    from collections.abc import Sequence

    from qod_magics.application.tasks import TaskSpec
    from qod_magics.controller.log import Cycle
    from qod_magics.session.interface import SessionInterface
    from qod_magics.spark.queries.instance import Instance


#: Latest steps of an instance's story that `%qod why` prints.
STEPS_SHOWN = 8
#: State of a stream that no query reads yet.
DECLARED = (
    "is declared; it starts when a query reads it (--priority, --min-accuracy or --sink would make it a query itself)"
)
#: When a shedder that is set while plans are only recommended is turned.
LATER = "once plans are applied again (%qod resume)"


def session_text(session: SessionInterface) -> str:
    """A session's broker, task managers, streams and controller: one line."""
    if not session.alive:
        return f"qod session {session.id}: {ended_text(session)}"
    controller, cycle = session.controller, session.controller.last
    own = session.runtime.kafka
    second = "" if own is session.kafka else f", its own topics at {own.bootstrap}"
    return (
        f"qod session {session.id}: Kafka at {session.kafka.bootstrap}{second}; "
        f"{_counted(list(session.runtime.task_managers), 'task manager')}; "
        f"{_counted(session.application.names, 'stream')}; "
        f"{'recommends' if controller.paused else 'decides'} every {controller.period_s:g} s, "
        f"{f'last in cycle {cycle.number}' if cycle is not None else 'not yet'}; recording {session.recording_path}"
    )


def ended_text(session: SessionInterface) -> str:
    """Return that a session has ended, and who has taken it over."""
    return f"it has ended, as {session.taken_by} has taken it over" if session.taken_by else "it has ended"


def why_text(session: SessionInterface, name: str) -> str:
    """Return the last decision about a stream, an instance or a task manager; for a stream fused into tasks of other
    names, the decisions about those tasks. Raises UsageProblem: there is none of this name."""
    if name in session.application.waiting:
        return f"{name} {DECLARED}"
    if name in session.waiting_streams:
        return f"{name}: {hold_text(session.waiting_streams[name])}"
    deployment = session.runtime.deployment
    within = deployment.specs_with(name) if name not in deployment.specs else []
    parts = [f"{name} runs within {spec.path}: {_why(session, spec.id)}" for spec in within]
    labels = deployment.checked.labels.get(name)
    dropped = [] if labels is None or labels.are_exact else [f"when rows are dropped: {labels}"]
    lines = [*(parts or [_why(session, name)]), *dropped, *session.runtime.incomplete.texts(name)]
    tasks = {name, *(spec.id for spec in within)}
    return "\n".join([*lines, *_bottlenecks(session, tasks), *_stories(session, tasks)])


def _bottlenecks(session: SessionInterface, names: set[str]) -> list[str]:
    """Return what takes most of the time of these instances' batches, or of those of these tasks, a line each."""
    runtime = session.runtime
    told = {i.id: runtime.bottleneck(i) for i in runtime.instances.values() if names & {i.id, i.job.task}}
    return [f"{name}: its {text}" for name, text in told.items() if text]


def _stories(session: SessionInterface, names: set[str]) -> list[str]:
    """Return what happened to these instances, or to those of these tasks, a line each, and why."""
    since_epoch = time.time() - time.monotonic()
    lines: list[str] = []
    for instance in session.runtime.instances.values():
        if names & {instance.id, instance.job.task}:
            steps = told(list(instance.life.steps)[-STEPS_SHOWN:])
            lines += [
                f"{instance.id} at {datetime.fromtimestamp(at + since_epoch):%H:%M:%S}: {text}" for at, text in steps
            ]
    return lines


def _why(session: SessionInterface, name: str) -> str:
    """Return the last decision about a task, an instance or a task manager, or when there will be one."""
    try:
        return session.controller.why(name)
    except UsageProblem:
        runtime, cycle = session.runtime, session.last
        if not (name in runtime.deployment.specs or name in runtime.instances or name in runtime.task_managers):
            raise
        skipped = cycle.skipped if cycle is not None else None
        next_one = skipped or f"the next cycle is within {session.controller.period_s:g} s"
        return f"nothing was decided about {name} yet: {next_one}"


def labels_in_short(session: SessionInterface) -> dict[str, str]:
    """Return what shedding does to the columns and rows of each query, by query; exact ones are left out."""
    deployment = session.runtime.deployment
    told = {
        spec.id: deployment.checked.labels.get(spec.id)
        for spec in list(deployment.specs.values())
        if _may_be_shed(spec)
    }
    return {name: labels.short for name, labels in told.items() if labels is not None and not labels.are_exact}


def _may_be_shed(spec: TaskSpec) -> bool:
    return spec.is_query and (spec.min_accuracy or 0.0) < 1.0


def status_text(session: SessionInterface) -> str:
    """Task managers, tasks with their accuracies, lag and rows dropped, and the last decision."""
    lines: list[str] = []
    cycle = session.last
    snapshot = cycle.snapshot if cycle is not None else None
    for manager in list(session.runtime.task_managers.values()):
        seen = next((m for m in snapshot.task_managers if m.id == manager.id), None) if snapshot else None
        lines.append(f"{manager.describe}{busy(seen)}")
    if not lines:
        lines.append("no task manager is up: declared streams wait for one (%qod add-tm)")
    if session.runtime.nodes is not None:
        lines.append(session.runtime.nodes.text())
    lines += table([_task_status(session, cycle, spec) for spec in session.runtime.deployment.specs.values()])
    for instance in session.runtime.instances.values():
        if instance.mode_why:
            lines.append(f"{instance.id} runs in {instance.mode} mode: {instance.mode_why}")
        if instance.failure and instance.state.value in ("backing off", "given up"):
            lines.append(f"{instance.id} is {instance.state.value}: {instance.failure}")
        elif instance.state is State.SUSPENDED:
            lines.append(suspended_text(instance))
    lines += [f"{why} Queries that read or write there wait for it" for why in session.runtime.silent_kafka.values()]
    for name, why in session.runtime.missing_topics.items():
        lines.append(f"{described(name)}: {why}{'; its readers wait' if is_topic(name) else ''}")
    lines += _refreshed(session)
    lines += _deleted(session)
    lines += _malformed(session)
    lines += _incomplete(session)
    lines += _repeated(session)
    counts = session.runtime.rule_counts
    lines += [f"{each.stream}: {broken_text(each.rule, each.rows)}" for each in counts if each.rows]
    lines += _inexact(session, cycle)
    lines += _of_earlier_kernel(session)
    lines += session.slices.text()
    waiting = session.application.waiting
    if waiting:
        lines.append(f"waiting until a query reads them: {', '.join(waiting)}")
    lines += _by_hand(session)
    if "=" in session.controller.policy.name:  # it has parameters that are not its defaults
        lines.append(f"policy {session.controller.policy.name}")
    if session.controller.paused:
        lines.append("paused: plans are recommended, not applied")
    entries = session.controller.log.entries()
    if entries:
        lines.append(f"last decision: {entries[-1]}")
    return "\n".join(lines)


def suspended_text(instance: Instance) -> str:
    """Return why a plan has stopped an instance, and what starts it again."""
    return (
        f"{instance.id} is suspended: {instance.life.suspended}; its rows wait, and it goes on where it stopped once "
        f"it has a place: %qod move {instance.id} TASK_MANAGER, or %qod add-tm"
    )


def _of_earlier_kernel(session: SessionInterface) -> list[str]:
    """Lines about the streams of an earlier kernel: what became of them, and which are not declared."""
    resuming = session.runtime.resuming
    lines = [f"{task}: {note}" for task, note in resuming.notes.items() if task in session.runtime.deployment.specs]
    lines += [f"{name}: {hold_text(missing)}" for name, missing in session.waiting_streams.items()]
    missing = [name for name in resuming.streams if name not in session.application]
    if missing:
        lines.append(
            f"declared before this kernel, and not since: {', '.join(missing)}; their state is kept until their cells "
            "run, or %qod stop NAME drops it"
        )
    return lines


def hold_text(missing: Sequence[str]) -> str:
    """Such as: it waits for b, c, with which it exchanged rows before this kernel."""
    return (
        f"it waits for {', '.join(missing)}, with which it exchanged rows before this kernel: run the cells of these, "
        f"or %qod stop {missing[0]} goes on without"
    )


def _by_hand(session: SessionInterface) -> list[str]:
    """A line for each shedder that is held by hand."""
    lines, there, controller = [], session.runtime.deployment.shedders, session.controller
    in_force = controller.dials.keep if controller.dials is not None else {}
    for edge, d in controller.overrides.items():
        name = edge_name(edge)
        waits = controller.paused and in_force.get(edge) != d
        when = " once it is there again" if name not in there else f" {LATER}" if waits else ""
        lines.append(f"{name} keeps {d:g} of its rows{when}, by hand (%qod override {name} auto gives it back)")
    return lines


def _malformed(session: SessionInterface) -> list[str]:
    """Lines for each topic with values that are no rows of its schema."""
    deployment, lines = session.runtime.deployment, []
    for spec in list(deployment.specs.values()):
        for head, source in spec.topics.items():
            account = deployment.accounts.get(feed_of(spec, head))
            if account is not None:
                told = misfits(account, source.effective_malformed, source.values.label)
                lines += [f"{described(source.topic)}: {each} ({spec.id})" for each in told]
    return lines


def _refreshed(session: SessionInterface) -> list[str]:
    """A line for each instance that restarts to read its tables again: when it began to run last."""
    since_epoch, lines = time.time() - time.monotonic(), []
    for instance in session.runtime.instances.values():
        spec = session.runtime.deployment.specs.get(instance.job.task)
        if spec is not None and spec.refresh_s is not None and instance.state is State.RUNNING:
            at = datetime.fromtimestamp(instance.started_at + since_epoch)
            lines.append(
                f"{instance.id} runs since {at:%H:%M:%S}; it restarts for its tables every {spec.refresh_s:g} s"
            )
    return lines


def _deleted(session: SessionInterface) -> list[str]:
    """A line for each topic of a pattern that was deleted."""
    accounts = list(session.runtime.deployment.accounts.items())
    gone = [(reader(feed), account) for feed, account in accounts if account.gone is not None]
    return [f"{task}: {gone_text(account.topic, account.lost)}" for task, account in gone]


def _incomplete(session: SessionInterface) -> list[str]:
    """A line for each reason for which the results of a task lack rows that no shedder dropped."""
    return [
        f"{id}: {told}"
        for id in list(session.runtime.deployment.specs)
        for told in session.runtime.incomplete.texts(id)
    ]


def _repeated(session: SessionInterface) -> list[str]:
    """A line for each input of a task of which rows were read, or sent, twice."""
    lines = []
    for feed, account in list(session.runtime.deployment.accounts.items()):
        if account.again:
            lines.append(f"{feed}: {again_text(account.again)}")
        if account.repeats.rows:
            lines.append(f"{feed}: {repeats_text(account.repeats.rows, feed.rpartition('>')[0])}")
    return lines


def _inexact(session: SessionInterface, cycle: Cycle | None) -> list[str]:
    """A line for each query that has lost rows by the last cycle: what that does to its columns."""
    accuracy = cycle.measured.accuracy if cycle is not None and cycle.measured is not None else {}
    deployment = session.runtime.deployment
    queries = [spec.id for spec in list(deployment.specs.values()) if spec.is_query]
    shed = [name for name in queries if (found := accuracy.get(name)) is not None and found < FULL_ACCURACY]
    told = {name: deployment.checked.labels[name] for name in shed if name in deployment.checked.labels}
    return [f"{name} drops rows: {labels}" for name, labels in told.items() if not labels.are_exact]


def _task_status(session: SessionInterface, cycle: Cycle | None, spec: TaskSpec) -> TaskStatus:
    """Return the last cycle's measurements, with the current placement, modes and restrictions, which may be newer."""
    instances = [i for i in session.runtime.instances.values() if i.job.task == spec.id]
    return replace(
        task_status(cycle, spec.id, spec.upstream),
        name="+".join(spec.members),
        where=" ".join(i.task_manager.id if i.task_manager else i.state.value for i in instances),
        modes=" ".join(sorted({i.mode or i.state.value for i in instances})),
        minimum=share(spec.min_accuracy),
        priority="" if spec.priority is None else str(spec.priority),
        target=duration(spec.max_latency_s) if spec.is_query else "",
    )


def stream_text(session: SessionInterface, name: str) -> str:
    """Return where a deployed stream runs, and what the last cycle measured of its task: one line."""
    specs = session.runtime.deployment.specs_with(name)
    parts = [f"{name} {_whereabouts(instances_with(session, name))}{fused_text(specs)}"]
    if len(specs) > 1:  # each has its own figures
        return parts[0]
    (spec,) = specs
    cycle = session.last
    seen = [i for i in cycle.snapshot.instances if i.task == spec.id] if cycle and cycle.snapshot else []
    if seen:
        parts.append(f"{sum(i.in_rate for i in seen):,.0f} rows/s in, {sum(i.cpu for i in seen):.1f} % of a core")
    accuracy = cycle.measured.accuracy.get(spec.id) if cycle and cycle.measured else None
    if accuracy is not None:
        least = "" if spec.min_accuracy is None else f" (minimum {spec.min_accuracy:g})"
        parts.append(f"accuracy {accuracy:.3f}{least}")
    latency = cycle.measured.latency_s.get(spec.id) if cycle and cycle.measured else None
    if latency is not None:
        target = "" if spec.max_latency_s is None else f" (target {duration(spec.max_latency_s)})"
        parts.append(f"95 % of its rows within {duration(latency)}{target}")
    return "; ".join(parts)


def instances_with(session: SessionInterface, name: str) -> list[Instance]:
    """Return the instances of the tasks that run a stream."""
    tasks = {spec.id for spec in session.runtime.deployment.specs_with(name)}
    return [instance for instance in session.runtime.instances.values() if instance.job.task in tasks]


def printed_text(session: SessionInterface, name: str) -> str:
    """Return where the rows of a query with a console sink are printed."""
    managers = {id(each.task_manager): each.task_manager for each in instances_with(session, name) if each.task_manager}
    where = " and ".join(f"{manager.output} ({manager.id})" for manager in managers.values())
    return f"its rows are printed to {where}" if where else "its rows are printed by the task manager that will run it"


def fused_text(specs: Sequence[TaskSpec]) -> str:
    """Return the fused paths that contain a stream, as the end of a sentence; empty where it is a task by itself."""
    paths = [spec.path for spec in specs if len(spec.members) > 1]
    return f", fused into {' and '.join(paths)}" if paths else ""


def where_text(instances: Sequence[Instance]) -> str:
    """Return the task managers and modes of instances."""
    where = ", ".join(sorted({i.task_manager.id for i in instances if i.task_manager is not None}))
    modes = ", ".join(sorted({i.mode for i in instances if i.mode}))
    return f"on {where} in {modes} mode"


def idle_text(instances: Sequence[Instance]) -> str:
    """Return the state of the first instance that does not run, and why; empty if all run."""
    for instance in instances:
        if instance.state.value != "running":
            told = instance.life.suspended or instance.failure
            why = f" ({told})" if told else ""
            return f"{instance.state.value}{why}"
    return ""


def _whereabouts(instances: Sequence[Instance]) -> str:
    """Return the task managers and modes of instances, or the state of the first that does not run, and why."""
    idle = idle_text(instances)
    return f"is {idle}" if idle else f"runs {where_text(instances)}"


def _counted(names: Sequence[str], noun: str) -> str:
    """Count and names: "2 task managers (tm1, tm2)"."""
    return f"{len(names) or 'no'} {noun}{'' if len(names) == 1 else 's'}" + (f" ({', '.join(names)})" if names else "")
