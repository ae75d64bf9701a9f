"""What enters a job does not depend on who sizes its buffers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qod_magics.core.engines import S
from qod_magics.policies.of_engines import channel_policy, channel_policy_names
from qod_magics.simulator.buffers import BufferScenario, BufferSimulation
from qod_magics.simulator.buffers.scenario import Item, arrivals, streams
from qod_magics.simulator.buffers.tasks import ChannelRun
from tests.simulator.buffers.jobs import ELEMENTS, pair, video

#: Each policy and baseline, and Nephele in other ways.
POLICIES: tuple[tuple[str, dict[str, Any]], ...] = (
    *((name, {}) for name in channel_policy_names()),
    ("nephele", {"chaining": "never", "initial_bytes": 1000}),
    ("nephele", {"chaining": "together", "queued": "drain", "initial_bytes": 3000}),
    ("nephele-fixed-buffers", {"initial_bytes": 500}),
)


class Watched(BufferSimulation):
    """Writes down what sources emit: when, of which stream, and of how many bytes."""

    def __init__(self, value: dict[str, Any], policy: str, parameters: dict[str, Any]) -> None:
        self.emitted: list[tuple[int, int, int]] = []
        super().__init__(BufferScenario.from_json(value), channel_policy(policy, parameters))
        self.run()

    def _write(self, run: ChannelRun, item: Item) -> int:
        if self.tasks[run.channel.sender].vertex.kind == "source":
            self.emitted.append((self.now, item.stream, item.bytes))
        return super()._write(run, item)


def job(seed: int, **streams: Any) -> dict[str, Any]:
    """Constraints that cannot be met, one within another, so that managers act as often as they can."""
    value = video(seed=seed, duration_s=4, interval_s=0.5, streams=streams)
    value["constraints"] = [
        {"sequence": ELEMENTS, "limit_ms": 5, "span_s": 0.5},
        {"sequence": ELEMENTS[:3], "limit_ms": 5, "span_s": 0.5},
    ]
    return value


@settings(max_examples=6, deadline=None)
@given(
    st.integers(0, 10**6),
    st.sampled_from([0.0, 0.4]),
    st.sampled_from([0.0, 0.5]),
    st.sampled_from([0.0, 0.7]),
    st.sampled_from([None, 70]),
)
def test_items_sizes_and_times_at_the_sources_are_the_same_under_every_policy(
    seed: int, spread: float, slow_share: float, start_s: float, items: int | None
) -> None:
    value = job(seed, item_spread=spread, slow_share=slow_share, start_s=start_s, items=items)
    runs = [Watched(value, *each) for each in POLICIES]
    emitted = runs[0].emitted
    assert [run.emitted for run in runs[1:]] == [emitted] * (len(runs) - 1)
    assert len({tuple(run.results.counts().items()) for run in runs}) > 2  # in what they do they differ
    scenario = runs[0].scenario
    expected = []
    for stream in streams(scenario):
        for at, bytes in arrivals(scenario, stream):
            if at >= scenario.end:
                break
            expected.append((at, stream.number, max(1, round(bytes))))
    assert sorted(emitted) == sorted(expected)


def test_sizes_are_drawn_for_each_item_and_have_the_mean_of_their_stream() -> None:
    scenario = BufferScenario.from_json(video(streams={"item_spread": 0.3, "items": 4000}))
    found = [[each.bytes for each in arrivals(scenario, stream)] for stream in streams(scenario)]
    assert len({bytes for each in found for bytes in each}) == 8 * 4000
    for stream, sizes in zip(streams(scenario), found, strict=True):
        assert sum(sizes) / len(sizes) == pytest.approx(stream.mean_bytes, rel=0.03)


def held_back(seed: int, items_per_s: float) -> dict[str, Any]:
    """A sender that may have 2 kB under way."""
    streams = {"count": 2, "items_per_s": items_per_s, "kbit_per_s": 3900, "item_spread": 1.0, "items": 1500}
    return {**pair(30, streams, {"window_bytes": 2000}), "seed": seed}


@settings(max_examples=5, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([400.0, 5000.0]))
def test_a_sender_that_is_held_back_emits_the_same_items_later(seed: int, items_per_s: float) -> None:
    value = held_back(seed, items_per_s)
    scenario = BufferScenario.from_json(value)
    late = set()
    for policy in (*POLICIES[:3], POLICIES[-1]):
        emitted = Watched(value, *policy).emitted
        for stream in streams(scenario):
            arrived = list(arrivals(scenario, stream))
            of_stream = [each for each in emitted if each[1] == stream.number]
            assert [bytes for _, _, bytes in of_stream] == [max(1, round(each.bytes)) for each in arrived]
            delays = [at - each.at for (at, _, _), each in zip(of_stream, arrived, strict=True)]
            assert min(delays) == 0
            late.add(max(delays))
    assert len(late) > 2


def test_a_sender_makes_up_for_the_time_that_it_was_held_back() -> None:
    value = held_back(1, 400)
    emitted = Watched(value, "nephele-fixed-buffers", {"initial_bytes": 4000}).emitted
    (first, _) = streams(BufferScenario.from_json(value))
    due = [each.at for each in arrivals(BufferScenario.from_json(value), first)]
    delays = [at - due[i] for i, (at, _, _) in enumerate(each for each in emitted if each[1] == 0)]
    held = delays.index(max(delays))
    assert delays[held] > 0
    assert 0 in delays[held:]
    assert due[-1] < 4 * S
