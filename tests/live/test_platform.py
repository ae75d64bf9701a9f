"""A session on a system that is not Linux, as far as it can be had on one that is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from qod_magics.machine import child
from qod_magics.session.session import Session
from qod_magics.spark.servers.cpu import ProcessMeter
from tests.live import elsewhere
from tests.live.conftest import eventually, new_topic, produce


@pytest.fixture
def no_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "_WATCHDOG", Path(elsewhere.__file__))
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.delattr(os, "sched_setaffinity", raising=False)


def test_without_pinning_a_task_manager_plans_with_the_cores_it_was_given(no_linux: None) -> None:
    said: list[str] = []
    with Session.up(task_managers=1, cores=1, kafka_cpus={0}, period_s=2.0, headroom=0.1, say=said.append) as session:
        assert [line.count("any core") for line in said] == [1, 1], said
        assert isinstance(session.runtime.task_managers["tm1"].cpu_meter, ProcessMeter)
        topic = new_topic(session)
        session.stream("rows", topic=topic, schema="id LONG", priority=1, sink="memory", starting="earliest")
        produce(session, topic, ({"id": i} for i in range(1000)))
        eventually(lambda: session.results("rows").count() == 1000, what="all rows")

        def planned_with() -> float | None:
            seen = session.last.snapshot.task_managers[0] if session.last is not None else None
            return seen.cores if seen is not None and seen.cpu > 0.0 else None

        assert eventually(planned_with, what="its CPU, by process") == pytest.approx(1 - 0.1)
