"""Prepare a deployment: create the topics that tasks need, fetch the offsets where they begin to read, and make the
jobs of their instances.

The calls to the broker are here, so that `Deployment.adopt` can be called under a lock. The tasks that run stay as they
are until then.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from qod_magics.application.streams.sink import KafkaTopic, Memory
from qod_magics.application.streams.topic_input import RECORD_KEY
from qod_magics.application.tasks import TaskSpec
from qod_magics.application.weights import Origins, origins, weighed_since
from qod_magics.errors import KafkaError
from qod_magics.kafka.reading import end_offsets
from qod_magics.kafka.topics import check_writable, create_topics, grow_topics, topic_partitions
from qod_magics.spark.cluster.books import Account
from qod_magics.spark.cluster.deployment import Deployment, Prepared
from qod_magics.spark.cluster.feeds import Pipe
from qod_magics.spark.plans.checking import Checked, built
from qod_magics.spark.plans.job import Feed, Job, feed_of, feeds_of, same_columns, schema_of_stream, source_feed
from qod_magics.spark.plans.records import record_form


def prepare(
    deployment: Deployment, specs: Sequence[TaskSpec], checked: Checked, other_columns: Collection[str] = frozenset()
) -> Prepared:
    """Create the topics that these tasks need, and fetch the first offsets of new accounts. Streams of the tasks in
    `other_columns` get new topics, as rows with their columns can't be read by those of others. Raises KafkaError."""
    wanted = {
        f"{upstream}>{spec.id}": _pipe(deployment, upstream, spec, new=upstream in other_columns)
        for spec in specs
        for upstream in spec.upstream
    }
    left = _left(deployment, wanted)
    results = {spec.id: _results_topic(deployment, spec, checked) for spec in specs if isinstance(spec.sink, Memory)}
    topics = {pipe.topic: pipe.partitions for pipe in wanted.values()}
    for spec in specs:  # instance i writes partition i; who resumes or is rebuilt keeps its instances
        if spec.id in results:
            topics[results[spec.id]] = max(spec.parallelism, deployment.instances(spec))
    _make_topics(deployment, specs, topics)
    sinks, opened = _sinks(deployment, specs, checked), _opened(deployment, specs)
    return Prepared(tuple(specs), checked, wanted, results, sinks, opened, left)


def refit(
    deployment: Deployment,
    gone: Sequence[TaskSpec],
    made: Sequence[TaskSpec],
    specs: Sequence[TaskSpec],
    checked: Checked,
) -> Deployment:
    """Return a copy in which neighbouring tasks have been fused, or one has been unfused. `Deployment.restore` takes it
    once none of them runs. Creates the topic of a stream that was within a task.

    Args:
        deployment: the current one, which stays as it is.
        gone: the tasks that end, inputs first.
        made: those that replace them, with the same streams.
        specs: all tasks as they will be.
        checked: facts about them.

    Raises:
        KafkaError: the broker refuses or does not answer.

    """
    found = deployment.copy()
    for before, after in zip(feeds_of(gone[0]), feeds_of(made[0]), strict=True):
        found.rename(before, after)
    for name in found.deleted_feeds(gone[0].id):
        found.rename(name, f"{name.rpartition('>')[0]}>{made[0].id}")
    inner = [name for spec in gone[1:] for name in feeds_of(spec)]
    within = {deployment.stream_of(deployment.pipes[name]): deployment.accounts[name] for name in inner}
    prepared = prepare(found, specs, checked)
    deployment.number_topics_after(found.topics_made)
    found.adopt(prepared)
    found.follow(deployment, within)
    return found


def _pipe(deployment: Deployment, upstream: str, spec: TaskSpec, *, new: bool) -> Pipe:
    """Return the stream between two tasks, on the topic that it has unless a `new` one is asked for.

    A stream that is sent by a key keeps its partitions, unless the task needs more at once. Only a rescaling adds
    some: it reads the stream to its end first, and assigns the state of the keys that change their partition.
    """
    name = f"{upstream}>{spec.id}"
    known = deployment.pipes.get(name)
    topic = known.topic if known and not new else deployment.new_topic(f"{upstream}.{spec.id}")
    partitions = spec.partitions
    if known is not None:
        least = spec.parallelism if spec.key is not None and not new else spec.partitions
        partitions = max(least, known.partitions)
    return Pipe(name, upstream, spec.id, topic, partitions, spec.key)


def _left(deployment: Deployment, wanted: Mapping[str, Pipe]) -> dict[str, int]:
    """Return how many rows wait in the topics that these streams had, where they get others. Their senders have
    stopped."""
    old = {name: deployment.accounts[name] for name, pipe in wanted.items() if deployment.had_another_topic(pipe)}
    ends = ends_of(deployment, {account.topic for account in old.values()})
    found = {name: sum(account.waiting(ends[account.topic]).values()) for name, account in old.items()}
    return {name: rows for name, rows in found.items() if rows}


def ends_of(deployment: Deployment, topics: Collection[str]) -> dict[str, dict[int, int]]:
    """Return the end offsets of these topics, whichever cluster has them. Raises KafkaError: a cluster does not answer,
    or lacks a topic."""
    clusters = {id(kafka): kafka for kafka in map(deployment.kafka_of, topics)}.values()
    found: dict[str, dict[int, int]] = {}
    for kafka in clusters:
        there = [topic for topic in topics if deployment.kafka_of(topic) is kafka]
        found |= {topic: dict(ends) for topic, ends in end_offsets(kafka, there, timeout_s=10.0).items()}
    return found


def _make_topics(deployment: Deployment, specs: Sequence[TaskSpec], topics: dict[str, int]) -> None:
    """Create or grow these topics, whose partitions are given, and see to those of Kafka sinks and of rejects."""
    there = topic_partitions(deployment.kafka)
    topics.update({topic: max(count, there.get(topic, 0)) for topic, count in topics.items()})
    grow_topics(deployment.kafka, {topic: n for topic, n in topics.items() if there.get(topic, n) < n})
    written = {spec.sink.topic: spec.sink.partitions for spec in specs if isinstance(spec.sink, KafkaTopic)}
    rejects = {source.rejects for spec in specs for source in spec.topics.values() if source.rejects is not None}
    elsewhere = {topic: n for topic, n in written.items() if deployment.kafka_of(topic) is not deployment.kafka}
    mine = {topic: n for topic, n in written.items() if topic not in elsewhere}
    before = {spec.sink.topic for spec in deployment.specs.values() if isinstance(spec.sink, KafkaTopic)}
    _see_to_sinks(deployment, {topic: n for topic, n in elsewhere.items() if topic not in before})
    check_writable(deployment.kafka, [topic for topic in mine if topic in there and topic not in before])
    mine = {**dict.fromkeys(rejects), **mine}
    create_topics(deployment.kafka, topics, retention=deployment.kafka.own_retention)
    create_topics(deployment.kafka, {topic: n or 1 for topic, n in mine.items() if n is not None or topic not in there})
    deployment.note_created({topic: n or 1 for topic, n in mine.items() if topic not in there})


def _see_to_sinks(deployment: Deployment, written: Mapping[str, int | None]) -> None:
    """Have the topics of new Kafka sinks on the user's cluster, where the session's own topics are on another: one is
    created only where its cell says how many partitions it has. Raises KafkaError."""
    users = deployment.sources.context.users
    if users is None or not written:
        return
    there = topic_partitions(users)
    lacking = [topic for topic, count in written.items() if topic not in there and count is None]
    if lacking:
        raise KafkaError(
            f"topic {lacking[0]!r} of --sink kafka:{lacking[0]} must be on your Kafka at {users.bootstrap}, got "
            "none that this login sees; create it there, or here by --sink-option partitions=N",
            name=lacking[0],
            rule="exists",
        )
    check_writable(users, [topic for topic in written if topic in there])
    create_topics(users, {topic: count for topic, count in written.items() if count is not None})
    deployment.note_created({topic: n for topic, n in written.items() if topic not in there and n is not None})


def _opened(deployment: Deployment, specs: Sequence[TaskSpec]) -> dict[str, Account]:
    """Return new accounts, by feed, of topics that no task has read so far."""
    return {
        feed_of(spec, head): Account(source.topic, dict(deployment.sources.begin(source.topic, source.starting)))
        for spec in specs
        for head, source in spec.topics.items()
        if deployment.known_account(specs, spec, head) is None
    }


def _results_topic(deployment: Deployment, spec: TaskSpec, checked: Checked) -> str:
    """Return the present topic while recipe, or state, and columns are the same, else a new one, without the old
    recipe's rows."""
    topic = deployment.results.get(spec.id)
    if topic is not None and _goes_on(deployment, spec, checked):
        return topic
    return deployment.new_topic(f"{spec.id}.out")


def _sinks(deployment: Deployment, specs: Sequence[TaskSpec], checked: Checked) -> dict[str, dict[int, int]]:
    """First offsets in the topics of Kafka sinks: the present ones while recipe, columns and what tells rows apart
    are the same, else the ends."""
    found: dict[str, dict[int, int]] = {}
    anew: dict[str, str] = {}
    for spec in specs:
        if not isinstance(spec.sink, KafkaTopic):
            continue
        known = deployment.specs.get(spec.id)
        same = known is None or _spread(known) == _spread(spec)  # None: an earlier kernel's, if it goes on
        same = same or spec.id in checked.resumed  # as declared, it now has the instances that it was scaled to
        if spec.id in deployment.sinks and same and _goes_on(deployment, spec, checked):
            found[spec.id] = deployment.sinks[spec.id]
        else:
            anew[spec.id] = spec.sink.topic
    ends = ends_of(deployment, set(anew.values()))
    return found | {task: ends[topic] for task, topic in anew.items()}


def _goes_on(deployment: Deployment, spec: TaskSpec, checked: Checked) -> bool:
    """Return whether recipe and columns of a query are those that it has now, or columns and state are."""
    known = deployment.specs.get(spec.id)
    if known is None:
        return spec.id in checked.kept
    same = known.tail.recipe == spec.tail.recipe or spec.id in checked.resumed
    same = same and (spec.lends, spec.lends and spec.parallelism) == (
        known.lends,
        known.lends and known.parallelism,
    )
    return same and same_columns(deployment.checked.schemas.get(spec.id), checked.schemas[spec.id], ordered=False)


def _spread(spec: TaskSpec) -> object:
    """Return where a query's rows go, and how its input is spread over its instances."""
    return spec.sink, spec.parallelism, spec.key if spec.parallelism > 1 else None


# --- Jobs -------------------------------------------------------------------------------------------------------------


def instance_jobs(deployment: Deployment, spec: TaskSpec, generation: int) -> list[Job]:
    """Return one job per instance of a task; `generation` counts its new checkpoints."""
    specs = list(deployment.specs.values())
    found, since = origins(specs), weighed_since(specs, deployment.checked.weights)
    made = [_job(deployment, spec, index, found, since) for index in range(deployment.instances(spec))]
    return [replace(job, run=f"{deployment.session}-{generation}-{job.index + 1}") for job in made]


def _job(deployment: Deployment, spec: TaskSpec, index: int, found: Origins, since: Mapping[str, str]) -> Job:
    """Return the job of one instance. `since`: see `weighed_since`."""
    feeds = []
    for head, source in spec.topics.items():
        name = feed_of(spec, head)
        own = deployment.assignment(name, spec)[index]
        if not own:  # a topic of a pattern may have fewer partitions than the task has instances
            continue
        feeds.append(source_feed(name, head, source, own, deployment.accounts[name].position))
    schemas, keys = deployment.checked.schemas, deployment.checked.weights.keys
    for upstream in spec.upstream:
        name = f"{upstream}>{spec.id}"
        pipe = deployment.pipes[name]
        own = deployment.assignment(name, spec)[index]
        starting, schema = dict(deployment.accounts[name].position), schema_of_stream(schemas[upstream])
        by_key = keys.get(upstream, ()) and (RECORD_KEY,)
        feeds.append(
            Feed(
                name,
                (upstream,),
                pipe.topic,
                own,
                starting,
                schema,
                stream=True,
                shed_by=by_key,
                weighed_since=since.get(upstream),
                watermarks=deployment.checked.watermarks.get(spec.id, {}).get(upstream, ()),
            )
        )
    groups: tuple[str, ...] | None = None
    record: tuple[str, ...] = ()
    if isinstance(spec.sink, KafkaTopic):
        record = record_form(schemas[spec.id], spec.sink).columns
        groups = None if record else deployment.checked.keys.get(spec.id)
    outgoing = [pipe for pipe in deployment.pipes.values() if pipe.source == spec.id]
    return Job(
        task=spec.id,
        instance=f"{spec.id}.{index + 1}",
        index=index,
        feeds=tuple(feeds),
        build=built(spec, found, deployment.checked.weights),
        outlets=tuple(pipe.name for pipe in outgoing),
        topics=tuple((pipe.topic, pipe.partitions, pipe.key) for pipe in outgoing),
        shed_by=keys.get(spec.id, ()),
        weighed_since=since.get(spec.id),
        sink=spec.sink,
        results=deployment.results.get(spec.id),
        trigger_s=spec.trigger_s,
        max_latency_s=spec.max_latency_s,
        aggregates=spec.aggregates,
        chained=spec.id in deployment.checked.chained,
        groups=groups,
        apart=deployment.apart(spec, groups),
        record=record,
        whole=deployment.checked.whole.get(spec.id, ""),
        lends=frozenset(pipe.name for pipe in outgoing if deployment.lends(pipe.target)),
        table=deployment.checked.tables.get(spec.id),
        refreshes=spec.refresh_s is not None,
    )
