"""What tests of live applications ask of a session."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from qod_magics.application.streams.options import parse_stream_line
from qod_magics.core.plan import Edge, Plan
from qod_magics.core.runtime import Count, Dials, Observation
from qod_magics.errors import KafkaError
from qod_magics.kafka.reading import end_offsets
from qod_magics.kafka.topics import topic_partitions
from qod_magics.lifecycle.events import State
from qod_magics.session.handle import StreamHandle
from qod_magics.session.session import Session
from qod_magics.spark.queries.instance import Instance
from tests.live.conftest import eventually, heard


def cell(session: Session, line: str, body: str = "", **namespace: Any) -> StreamHandle:
    """What `%%qod_stream LINE` does with this body in a notebook with these variables."""
    return session.cell(parse_stream_line(line), body, namespace)


def plain(value: Any) -> Any:
    """Rows within rows as dicts."""
    if hasattr(value, "asDict"):
        return value.asDict(recursive=True)
    return value


def rows(session: Session, name: str) -> list[dict[str, Any]]:
    """The rows of a memory sink, without the order, which nobody promises."""
    return [plain(row) for row in session.results(name).collect()]


def written(session: Session, name: str) -> int:
    """How many rows a memory sink has so far, asked of the broker."""
    topic = session.runtime.deployment.results[name]
    return sum(end_offsets(session.kafka, [topic], timeout_s=10.0)[topic].values())


def rows_in(session: Session, topic: str) -> int:
    """How many records a topic has had so far."""
    return sum(end_offsets(session.kafka, [topic], timeout_s=10.0)[topic].values())


def observed(session: Session) -> Observation:
    """What the runtime sees now. A broker that is too busy to answer soon is asked again."""
    unheard: list[KafkaError] = []

    def looked() -> Observation | None:
        try:
            return session.runtime.observe()
        except KafkaError as error:
            unheard.append(error)
            return None

    found = eventually(looked, what=lambda: f"an observation: {unheard}")
    assert found is not None
    return found


def count(session: Session, feed: str) -> Count:
    """The books of a source (its task) or a stream ("from>to") now."""
    return observed(session).measured.counts.get(feed, Count(0, 0, 0, 0))


def all_read(session: Session, feed: str, arrived: int) -> bool:
    """Whether so many rows came, and all are entered in the books as processed or dropped."""
    now = count(session, feed)
    return now.arrived == arrived and now.waiting == 0


def instances(session: Session, task: str) -> list[Instance]:
    """Those of a task that run, after any that is just being restarted has been."""
    there = [i for i in session.runtime.instances.values() if i.job.task == task]
    eventually(lambda: all(i.state is State.RUNNING for i in there), what=f"{task} runs")
    return there


def held(session: Session) -> tuple[Counter[str], set[str], set[str], tuple[str, ...]]:
    """All that a declaration makes: streaming queries on the servers by name, topics, instances, streams."""
    queries = Counter(
        str(query.name) for m in session.runtime.task_managers.values() for query in m.spark.streams.active
    )
    return (
        queries,
        set(topic_partitions(session.kafka)),
        {i.id for i in session.runtime.instances.values()},
        session.application.names,
    )


def turn(
    session: Session, keep: Mapping[Edge, float], desired: Mapping[str, float] | None = None, **accept: float
) -> None:
    """Turn these shedders by hand, also of streams that do not run yet; leaves what waits alone. `desired`: of tasks,
    where it matters."""
    heard(lambda: session.runtime.apply(Plan(dict(desired or {}), dict(keep)), Dials(dict(keep), accept)))
