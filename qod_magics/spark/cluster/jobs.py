"""The jobs of a task, one for each instance: what it reads, builds and writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from qod_magics.application.streams.sink import KafkaTopic
from qod_magics.application.streams.topic_input import RECORD_KEY
from qod_magics.application.tasks import TaskSpec
from qod_magics.application.weights import Origins, origins, weighed_since
from qod_magics.spark.cluster.deployment import Deployment
from qod_magics.spark.plans.checking import built
from qod_magics.spark.plans.job import Feed, Job, feed_of, schema_of_stream, source_feed
from qod_magics.spark.plans.records import record_form


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
