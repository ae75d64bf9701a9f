"""A cluster at work, of which the tests break a part."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from qod_magics.session.session import Session
from tests.live.conftest import brief_batches, eventually, new_topic, pause
from tests.live.faults.breaking import PERIOD_S, Counting
from tests.live.steady import Steady
from tests.live.watching import counted, declare_counts, running, settled


@pytest.fixture(scope="module")
def counting(cluster: Session) -> Iterator[Counting]:
    """`src` and `counts` on the shared cluster, and their input, for all tests here that leave both task managers."""
    topic, slow = new_topic(cluster), cluster.runtime.period_s
    pause(cluster)
    cluster.runtime.period_s = cluster.thread.period_s = PERIOD_S
    with Steady(cluster, topic) as steady, brief_batches(cluster):
        declare_counts(cluster, topic)
        eventually(lambda: counted(cluster) > 0, every_s=0.5, what=cluster.status)
        steady.rest()
        yield Counting(cluster, topic, steady)
    cluster.stop_all()
    cluster.runtime.period_s = cluster.thread.period_s = slow
    cluster.resume()


@pytest.fixture
def flowing(counting: Counting, whole: None) -> Iterator[Counting]:
    """The same with rows coming in, and both queries at work."""
    pause(counting.session)
    eventually(lambda: running(counting.session), what=counting.session.status)
    counting.steady.go()
    yield counting
    counting.steady.rest()


@pytest.fixture
def resting(counting: Counting, whole: None) -> Iterator[Session]:
    """The same without rows, none of them under way any more, so that dials may be turned and nothing is shed."""
    pause(counting.session)
    eventually(lambda: running(counting.session), what=counting.session.status)
    settled(counting.session, "src", counting.steady.rest(), "src>counts")
    yield counting.session
    pause(counting.session)
