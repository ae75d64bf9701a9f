"""What clients send does not depend on the dispatcher."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from qod_magics.core.engines import Dispatcher, S
from qod_magics.policies.of_engines import dispatcher, dispatcher_names
from qod_magics.simulator.messages import Dataflow, Engine, Job, Source, Stage
from qod_magics.simulator.messages.dataflow import Arrivals, Client, Sent


class Watched(Engine):
    """Writes down what clients send: when, which of them, and what."""

    def __init__(self, dataflow: Dataflow, made: Dispatcher, *, seed: int) -> None:
        super().__init__(dataflow, made, seed=seed)
        self.entered: list[tuple[int, int, Sent]] = []

    def _enter(self, now: int, client: Client, sent: Sent) -> None:
        self.entered.append((now, client.number, sent))
        super()._enter(now, client, sent)


@settings(max_examples=5, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    poisson=st.booleans(),
    pareto=st.sampled_from([None, 2.0]),
    bursts_s=st.sampled_from([0.0, 0.2]),
    keys=st.sampled_from([0, 5]),
)
def test_messages_rows_keys_and_times_are_the_same_under_every_dispatcher(
    seed: int, poisson: bool, pareto: float | None, bursts_s: float, keys: int
) -> None:
    arrivals = Arrivals(
        20, 100, 0.02, 0.01, poisson=poisson, pareto=pareto, bursts_s=bursts_s if pareto else 0.0, keys=keys, zipf=1.0
    )
    stages = (
        Stage("read", ("rows",), 3, 100, 100.0, exchange="key" if keys else "one"),
        Stage("write", ("read",), 1, 2000),
    )
    jobs = [Job(name, stages, (Source("rows", 4, arrivals),), target_ms) for name, target_ms in (("a", 5), ("b", 500))]
    entered, results = [], set()
    for name in dispatcher_names():
        engine = Watched(Dataflow(jobs, machines=3, delay_us=300), dispatcher(name), seed=seed)
        engine.run(S, end=60 * S)
        engine.check()
        entered.append(engine.entered)
        results.add(tuple(engine.results.of("a").latency))
    assert entered == [entered[0]] * len(dispatcher_names())
    assert len(results) > 4  # in what they do they differ
    expected = [
        (sent.at, client.number, sent)
        for client in Dataflow(jobs, machines=3).clients
        for sent in arrivals.messages(f"{seed}/{client.seed}", S)
    ]
    assert sorted(entered[0]) == sorted(expected)
