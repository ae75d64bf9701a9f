"""Going on from the checkpoints of an earlier kernel: which tasks do, and what their first start finds.

The tasks of a named session's manifest wait in `Resuming` until streams of their names are declared again. A task goes
on from its checkpoints if its recipes are the same, or if its state has the same meaning. Another one reads on where
the earlier one was, with new state.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from qod_magics.application import fingerprints
from qod_magics.application.tasks import TaskSpec, head_of
from qod_magics.errors import counted
from qod_magics.named.manifest import KeptFeed, KeptRun, KeptTask, Manifest
from qod_magics.sources.source import is_topic, matching
from qod_magics.spark.cluster.books import Account, lost_text
from qod_magics.spark.cluster.cluster import Cluster
from qod_magics.spark.cluster.deployment import Deployment
from qod_magics.spark.cluster.repeats import Repeats, Stretch
from qod_magics.spark.plans.checking import Checked
from qod_magics.spark.plans.job import feeds_of
from qod_magics.spark.queries.checkpoints import Reached, committed_ms, reached
from qod_magics.spark.queries.instance import Instance

#: The counts of an account that a manifest keeps.
COUNTS = (
    *("processed", "dropped", "dropped_before", "unreported", "deleted", "again"),
    *("malformed", "tombstones", "columnless", "implausible"),
)


def columns_of(checked: Checked, task: str) -> str:
    """Return the hash of a task's result columns; "": they are not known."""
    schema = checked.schemas.get(task)
    if schema is None:
        return ""
    return fingerprints.of_columns((field.name, field.dataType.simpleString()) for field in schema.fields)


def state_of(checked: Checked, task: str) -> str | None:
    """Return the hash of what a task's state means; None: it keeps none, or its plan does not tell."""
    meaning = checked.signatures.get(task)
    return None if meaning is None else fingerprints.digest(meaning)


@dataclass(frozen=True, slots=True)
class Returning:
    """Tasks of a deployment that an earlier kernel ran, by name."""

    known: Mapping[str, KeptTask] = field(default_factory=dict)
    going_on: frozenset[str] = frozenset()  #: from their checkpoints
    edited: frozenset[str] = frozenset()  #: of these, those with another recipe, whose state means the same
    lost: frozenset[str] = frozenset()  #: those that kept state, and start with new state
    begins: frozenset[str] = frozenset()  #: those whose sources have no positions that outlive a kernel
    other_columns: frozenset[str] = frozenset()  #: those whose rows had other columns


def matched(
    kept: Mapping[str, KeptTask], specs: Sequence[TaskSpec], checked: Checked, same_kafka: bool = True
) -> Returning:
    """Return which kept tasks of these names go on, and which do not. `same_kafka`: whether topics are those of before.
    Pure."""
    known = {spec.id: kept[spec.id] for spec in specs if spec.id in kept}
    begins = {
        name
        for name, task in known.items()
        if task.feeds and not (same_kafka and all(is_topic(feed.topic) for feed in task.feeds.values()))
    }
    going_on: set[str] = set()
    edited: set[str] = set()
    for spec in specs:
        before = known.get(spec.id)
        if before is None or spec.id in begins:
            continue
        inputs = all(name in kept and columns_of(checked, name) == kept[name].columns for name in spec.upstream)
        same = before.chained == (spec.id in checked.chained) and set(before.feeds) == set(feeds_of(spec))
        if not (inputs and same):
            continue
        as_before = declared_as_before(spec, before)
        fits = before.settings == fingerprints.of_settings(as_before)
        if before.recipes == fingerprints.of_work(as_before):
            going_on.add(spec.id)
        elif fits and before.state is not None and before.state == state_of(checked, spec.id):
            going_on.add(spec.id)
            edited.add(spec.id)
    lost = {name for name, task in known.items() if name not in going_on and task.keeps_state and task.has_begun}
    other = {name for name, task in known.items() if _differ(task.columns, columns_of(checked, name))}
    return Returning(
        known, frozenset(going_on), frozenset(edited), frozenset(lost), frozenset(begins), frozenset(other)
    )


def declared_as_before(spec: TaskSpec, before: KeptTask) -> TaskSpec:
    """Return the task with the parallelism that it was declared with, if it is declared now with the number of
    instances that it was scaled to: its state belongs to these."""
    if not before.parallelism or spec.parallelism != len(before.runs):
        return spec
    mine = spec.parallelism
    return replace(
        spec,
        streams=tuple(
            replace(each, parallelism=before.parallelism) if each.parallelism == mine else each for each in spec.streams
        ),
    )


def _differ(before: str, after: str) -> bool:
    """Return whether two hashes of columns are known to differ."""
    return bool(before and after) and before != after


def parts(kept: Mapping[str, KeptTask]) -> list[frozenset[str]]:
    """Return the kept tasks in groups that exchange rows, or that are shed by a key which follows from all of them.
    Those of a group start together: rows that one sends would never reach another, or the key would differ. Pure."""
    groups: list[set[str]] = []
    for name, task in kept.items():
        mine = {name, *(each for each in task.upstream if each in kept)}
        mine |= {other for other, each in kept.items() if set(each.chosen) & set(task.chosen)}
        touching = [group for group in groups if group & mine]
        groups = [group for group in groups if not group & mine] + [mine.union(*touching)]
    return [frozenset(group) for group in groups]


def waiting_streams(kept: Mapping[str, KeptTask], declared: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Return the declared streams that wait for others of their group, with the names that are not declared. Pure."""
    found: dict[str, tuple[str, ...]] = {}
    for group in parts(kept):
        streams = {stream for name in group for stream in kept[name].streams}
        missing = tuple(sorted(streams.difference(declared)))
        if missing and len(group) > 1:
            found |= dict.fromkeys(streams & set(declared), missing)
    return found


class Resuming:
    """The tasks of an earlier kernel that have not started again, and what became of the others. Changed while
    deployments are, one at a time.

    Args:
        cluster: the state to change.
        manifest: what the earlier kernel left; None: nothing, or the session has no name.

    """

    def __init__(self, cluster: Cluster, manifest: Manifest | None = None, root: str = "") -> None:
        self.cluster = cluster
        self.left: dict[str, KeptTask] = {} if manifest is None else dict(manifest.tasks)
        self.root = root
        self.same_kafka = True  #: whether topics are those of the earlier kernel
        self._counts: dict[str, list[int]] = {}  #: by task: rows read without a report, and rows read twice
        self.chosen: frozenset[str] = frozenset()  #: streams whose shed key is chosen, set by who chooses
        self._hashes: dict[int, tuple[TaskSpec, str, str]] = {}
        self.notes: dict[str, str] = {}  #: by task that has started again: what became of it
        if manifest is not None:
            cluster.deployment.number_topics_after(manifest.topics_made)
            cluster.want(manifest.keep_probabilities)

    def __repr__(self) -> str:
        return f"tasks of an earlier kernel: {', '.join(self.left) or 'none'}"

    @property
    def generations(self) -> dict[str, int]:
        """Return the numbers of the tasks' last checkpoints."""
        return {name: task.generation for name, task in self.left.items()}

    @property
    def streams(self) -> tuple[str, ...]:
        """Return the streams of tasks that have not started again, each once."""
        return tuple(dict.fromkeys(stream for task in self.left.values() for stream in task.streams))

    @property
    def topics(self) -> set[str]:
        """Return the session's own topics that are still needed."""
        return {topic for task in self.left.values() for topic in task.topics}

    @property
    def edges(self) -> set[tuple[str, str]]:
        """Return the streams between tasks, each with the stream that reads it."""
        return {(source, head) for task in self.left.values() for source, head in task.edges}

    def topics_read(self, stream: str, pattern: str) -> tuple[str, ...]:
        """Return the topics that an earlier kernel's task read for a stream by this pattern, in their order."""
        return tuple(
            kept.topic
            for task in self.left.values()
            if stream in task.streams and task.pattern == pattern
            for feed, kept in task.feeds.items()
            if head_of(feed.rpartition(">")[0]) == stream and matching(pattern, [kept.topic]) and kept.gone is None
        )

    def returning(self, names: Collection[str], specs: Sequence[TaskSpec], checked: Checked) -> Returning:
        """Return which of these tasks, which start, an earlier kernel ran."""
        if not self.left:
            return Returning()
        known = {name for name in names if name in self.left}
        return matched(self.left, [spec for spec in specs if spec.id in known], checked, self.same_kafka)

    def seed(self, returning: Returning, deployment: Deployment) -> None:
        """Put positions, counts, topics and partition assignments of these tasks into the deployment that is about to
        be prepared. `Deployer` puts back the deployment before if it fails."""
        with self.cluster.lock:
            self._seed(returning, deployment)

    def _seed(self, returning: Returning, deployment: Deployment) -> None:
        for name, task in returning.known.items():
            if name in returning.begins:
                continue
            at = [found for run in task.runs.values() if (found := reached(self._place(run))) is not None]
            goes_on = name in returning.going_on
            counts = self._counts[name] = [0, 0]
            for feed, kept in task.feeds.items():
                account = account_of(kept)
                again = sum(each.again(kept.topic, account.position) for each in at) if goes_on else 0
                counts[0] += account.go_on(_ended(at, kept.topic), again)
                counts[1] += again
                source = feed.rpartition(">")[0]
                stream = head_of(source) or task.streams[0]  # a feed without a name of its own is of the only head
                assigned = None
                if kept.assignment is not None and goes_on:
                    assigned = tuple(tuple(each) for each in kept.assignment)
                upstream = source if source in task.upstream else None
                deployment.seed(feed, account, kept.partitions, stream, upstream, assigned)
            if goes_on:
                deployment.seed_task(name, task.declared, task.results, task.sink_first)
            else:
                deployment.seed_task(name, task.declared)
        now = round(time.time() * 1000)
        for feed, pipe in deployment.pipes.items():
            sending = returning.known.get(pipe.source)
            for id, run in sending.runs.items() if sending is not None else ():
                sender = int(id.rpartition(".")[2]) - 1
                deployment.accounts[feed].repeats.run_ended(sender, committed_ms(self._place(run)), now)

    def _place(self, run: KeptRun) -> str:
        return placed(self.root, run.checkpoint)

    def take_over(self, instance: Instance) -> None:
        """Give a new instance the checkpoint of its predecessor."""
        task = self.left.get(instance.job.task)
        run = None if task is None else task.runs.get(instance.id)
        if run is not None:
            at = reached(self._place(run))
            begun = run.begun or (at is not None and bool(at.ended))
            instance.take_over(self._place(run), run.run, begun, run.no_realtime)

    def done(self, returning: Returning) -> set[str]:
        """Note that these tasks have started again, and what became of each. Returns their topics that are not needed
        any more."""
        with self.cluster.lock:
            return self._done(returning)

    def _done(self, returning: Returning) -> set[str]:
        now, needed = time.time(), set(self.topics)
        for name, task in returning.known.items():
            self.left.pop(name, None)
            if name in returning.going_on and task.own_rows is not None:
                self.cluster.count_own_rows(name, *task.own_rows)
            if name in returning.going_on and task.late:
                self.cluster.went_behind(name, task.late)
            if name in returning.going_on and task.state_since is not None:
                self.cluster.incomplete.lose_state(name, task.state_since)
            if name in returning.lost:
                self.cluster.incomplete.lose_state(name, now)
            self.notes[name] = self._note(name, task, returning)
            _, again = self._counts.get(name, (0, 0))
            self.cluster.event("resumed", task=name, again=again or None, why=self.notes[name])
        return needed - self.topics - self.cluster.deployment.own_topics()

    def _note(self, name: str, task: KeptTask, returning: Returning) -> str:
        if name in returning.begins:
            why = "its source has no offsets that a later kernel can use" if self.same_kafka else "its Kafka is new"
            lost = f"; {lost_text(self.cluster.incomplete.lost_at[name])}" if name in returning.lost else ""
            return f"it begins as declared, as {why}{lost}"
        if name in returning.going_on:
            how = "another recipe, whose state means the same" if name in returning.edited else "the same recipe"
            state = "state, " if task.keeps_state else ""
            untold, again = self._counts.get(name, (0, 0))
            told = [f"it goes on from its checkpoint ({how}): {state}offsets and row accounting"]
            told += [f"{counted(again, 'row')} of a batch that was under way are read twice"] if again else []
            told += [f"{counted(untold, 'row')} were read, but not reported"] if untold else []
            return "; ".join(told)
        if name in returning.lost:
            return f"it changed: {lost_text(self.cluster.incomplete.lost_at[name])}; it reads on where it was"
        return "it changed, and keeps no state: it reads on where it was"

    def hashes(self, spec: TaskSpec) -> tuple[str, str]:
        """Return the hashes of a task's work and settings, found once."""
        known = self._hashes.get(id(spec))
        if known is None or known[0] is not spec:
            known = self._hashes[id(spec)] = (spec, fingerprints.of_work(spec), fingerprints.of_settings(spec))
        return known[1], known[2]

    def forget(self, stream: str) -> None:
        """Drop the tasks that ran a stream, which is not to be declared again."""
        with self.cluster.lock:
            self.left = {name: task for name, task in self.left.items() if stream not in task.streams}

    def restore(self, left: Mapping[str, KeptTask]) -> None:
        """Take back what `forget` dropped: the change that asked for it failed."""
        with self.cluster.lock:
            self.left = dict(left)

    def running(self, generations: Mapping[str, int]) -> dict[str, KeptTask]:
        """Return what a later kernel needs of the tasks that run. The cluster's lock is held."""
        cluster, root, deployment = self.cluster, self.root, self.cluster.deployment
        alive = {id(spec) for spec in deployment.specs.values()}
        self._hashes = {key: each for key, each in self._hashes.items() if key in alive}
        found = {}
        for spec in deployment.specs.values():
            instances = cluster.instances_of(spec.id)
            accounts = deployment.accounts_of(spec.id)
            late, since = cluster.incomplete.late.get(spec.id, 0), cluster.incomplete.lost_at.get(spec.id)
            work, settings = self.hashes(spec)
            own = cluster.own_source.get(spec.id)
            found[spec.id] = KeptTask(
                streams=list(spec.members),
                recipes=work,
                settings=settings,
                columns=columns_of(deployment.checked, spec.id),
                state=state_of(deployment.checked, spec.id),
                keeps_state=any(i.facts is not None and i.facts.keeps_state for i in instances),
                chained=spec.id in deployment.checked.chained,
                parallelism=spec.parallelism,
                pattern=spec.pattern,
                upstream=list(spec.upstream),
                chosen=[stream for stream in spec.members if stream in self.chosen],
                edges=[(source, head.name) for head in spec.heads for source in head.upstream],
                generation=generations.get(spec.id, 1),
                declared=deployment.declarations.get(spec.id, 0),
                feeds={name: _feed(deployment, name, account) for name, account in accounts.items()},
                runs={
                    i.id: KeptRun(i.checkpoint.removeprefix(f"{root}/"), i.job.run, i.begun, i.no_realtime)
                    for i in instances
                },
                results=deployment.results.get(spec.id),
                sink_first=deployment.sinks.get(spec.id),
                own_rows=None if own is None else (own[0], own[1]),
                late=late,
                state_since=since,
            )
        return found


def account_of(kept: KeptFeed) -> Account:
    """Return the row accounting of a feed as it was kept."""
    repeats = Repeats(kept.sent_again, dict(kept.sent_known), [Stretch(*each) for each in kept.sent_open])
    counts = {name: getattr(kept, name) for name in COUNTS}
    last, at = dict(kept.last_read), (dict(kept.first), dict(kept.position))
    return Account(kept.topic, *at, **counts, repeats=repeats, last_read=last, gone=kept.gone)


def placed(root: str, checkpoint: str) -> str:
    """Return the location of a checkpoint, which a manifest names below the session's directory."""
    return checkpoint if "://" in checkpoint or checkpoint.startswith("/") else f"{root}/{checkpoint}"


def _ended(at: Sequence[Reached], topic: str) -> dict[int, int]:
    """Return where the instances of a task are in a topic, together."""
    return {partition: offset for each in at for partition, offset in each.ended.get(topic, {}).items()}


def _feed(deployment: Deployment, name: str, account: Account) -> KeptFeed:
    assignment, repeats = deployment.assignments.get(name), account.repeats
    return KeptFeed(
        account.topic,
        len(account.first) if account.gone is not None else deployment.partitions(name),
        dict(account.first),
        dict(account.position),
        None if assignment is None else [list(each) for each in assignment],
        **{count: getattr(account, count) for count in COUNTS},
        sent_again=repeats.rows,
        sent_known=dict(repeats.known_until),
        sent_open=[(each.sender, each.after, each.until) for each in repeats.open],
        last_read=dict(account.last_read),
        gone=account.gone,
    )
