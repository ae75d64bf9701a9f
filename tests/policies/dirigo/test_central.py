"""The central baseline in the engine."""

from __future__ import annotations

import pytest

from qod_magics.core.engines import MS
from qod_magics.policies.dirigo import CentralRandom
from qod_magics.simulator.messages import Dataflow, Engine, Job, Source, Stage
from qod_magics.simulator.messages.sources import Listed, Sent


@pytest.mark.parametrize("decision", [0, 1])
def test_decisions_are_made_one_after_another(decision: int) -> None:
    """Ten messages at once, 1 ms each, on enough workers: what they wait for is the scheduler."""
    sent = tuple(Sent(0, 0, 1) for _ in range(10))
    job = Job("job", (Stage("run", ("client",), fixed_us=1000),), (Source("client", arrivals=Listed(sent)),))
    dispatcher = CentralRandom(decision=decision * MS)
    engine = Engine(Dataflow([job], machines=400, delay_us=100), dispatcher)
    engine.run(MS, end=10**10)
    engine.check()
    assert engine.books.left == 0
    assert dispatcher.traffic.forwards == len(engine.results.jobs[0].latency) == 10
    assert engine.busy[0] == 10 * decision * MS
    first, last = min(engine.results.jobs[0].produced), max(engine.results.jobs[0].produced)
    assert first == 1_200_000 + decision * MS
    assert last >= 1_200_000 + 10 * decision * MS
