"""All that a notebook reaches from its session says something as text, and no password or token."""

from __future__ import annotations

import pytest

from qod_magics.session.session import Session
from tests.live.conftest import eventually, produce
from tests.texts import bare, reached


@pytest.mark.smoke
def test_everything_in_a_session(qod: Session, topic: str) -> None:
    qod.stream("numbers", topic=topic, schema="id LONG", priority=1, min_accuracy=0.2)
    produce(qod, topic, ({"id": i} for i in range(100)))
    eventually(lambda: qod.last and qod.last.measured and qod.last.measured.counts.get("numbers"), what="a count")
    assert qod.view.frames
    shown = qod.show("numbers", rows=3)
    shown.read()
    found = dict(reached("qod", qod)) | dict(reached("shown", shown))
    kinds = {type(value).__name__ for value in found.values()}
    assert {"Session", "Controller", "EmbeddedBroker", "Cycle", "TaskManager", "Instance", "Dashboard"} <= kinds
    assert {"Views", "ShownResults"} <= kinds
    texts = {path: repr(value) for path, value in found.items()}
    assert bare(texts) == []
    tokens = [manager.server.token for manager in qod.runtime.task_managers.values() if manager.server is not None]
    assert tokens
    assert not [path for path, text in texts.items() if any(token in text for token in tokens)]
