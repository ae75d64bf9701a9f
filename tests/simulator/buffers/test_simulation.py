"""Jobs with output buffers, run: what is exact, and what managers change."""

from __future__ import annotations

import json
from copy import deepcopy
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qod_magics.commands.simulate import run_buffers
from qod_magics.core.engines import S
from qod_magics.core.job_graph import Chain, Channel, Resize
from qod_magics.errors import QodError, ScenarioError, UsageProblem
from qod_magics.policies.of_engines import channel_policy
from qod_magics.simulator.buffers import BufferScenario, BufferSimulation, Results, unbalanced
from tests.raising import breaks
from tests.simulator.buffers.jobs import ELEMENTS, pair, video


def ran(value: dict[str, Any], policy: str = "nephele", **parameters: Any) -> Results:
    return BufferSimulation(BufferScenario.from_json(value), channel_policy(policy, parameters)).run()


def told(results: Results) -> Any:
    """All that can be seen of a run."""
    intervals = [each.to_json() for each in results.intervals]
    return intervals, [each.to_json() for each in results.actions], results.items_out, results.latency_sum


@settings(max_examples=4)
@given(
    st.integers(0, 1000),
    st.sampled_from(["nephele", "nephele-fixed-buffers", "nephele-flush"]),
    st.sampled_from(["drop", "drain"]),
    st.sampled_from(["after_buffers", "together"]),
    st.sampled_from([500, 5000, 40000]),
)
def test_the_same_seed_gives_the_same_run_and_the_books_balance(
    seed: int, policy: str, queued: str, chaining: str, size: int
) -> None:
    value = video(seed=seed, duration_s=6, interval_s=1)
    value["constraints"][0]["span_s"] = 1
    parameters = {"queued": queued, "chaining": chaining, "initial_bytes": size}
    first, second = (ran(value, policy, **parameters) for _ in range(2))
    assert told(first) == told(second)
    assert list(unbalanced(first.channels, first.tasks)) == []


def test_another_seed_gives_another_run() -> None:
    assert told(ran(video(duration_s=5))) != told(ran(video(duration_s=5, seed=4)))


def test_books_that_do_not_balance_are_named() -> None:
    results = ran(video(duration_s=5), "nephele-fixed-buffers")
    channel = next(run for run in results.channels.values() if run.arrived)
    channel.arrived += 1
    assert len(list(unbalanced(results.channels, results.tasks))) == 2
    with pytest.raises(AssertionError, match="balance"):
        results.check()
    channel.arrived -= 1
    channel.output.shipped += 1
    assert len(list(unbalanced(results.channels, results.tasks))) == 1
    channel.output.shipped -= 1
    task = next(task for task in results.tasks.values() if task.vertex.kind == "merge")
    task.entered += 1
    assert len(list(unbalanced(results.channels, results.tasks))) == 1


def test_smaller_buffers_and_then_a_chain_bring_the_latency_down() -> None:
    fixed, buffers, both = (
        ran(video(), *how) if isinstance(how, tuple) else ran(video(), "nephele", **how)
        for how in (("nephele-fixed-buffers",), {"chaining": "never"}, {"queued": "drain"})
    )
    last = [run.intervals[-1].mean for run in (fixed, buffers, both)]
    assert all(each is not None for each in last)
    assert last[0] > 4 * last[1] > 4 * last[2]
    assert fixed.actions == []
    assert buffers.counts()["Resize"] > 4
    assert "Chain" not in buffers.counts()
    chains = [action.instruction for action in both.actions if isinstance(action.instruction, Chain) and action.done]
    assert chains
    assert all([task.vertex for task in chain.tasks] == ["D", "M", "E"] for chain in chains)
    first = {type(action.instruction): action.at for action in reversed(both.actions)}
    assert first[Resize] < first[Chain]
    for chain in chains:
        for sender, receiver in pairwise(chain.tasks):
            assert both.channels[Channel(sender, receiver)].is_chained


@pytest.mark.parametrize("queued", ["drop", "drain"])
def test_what_lies_between_chained_tasks_is_dropped_or_processed_first(queued: str) -> None:
    results = ran(video(), queued=queued)
    assert results.counts()["Chain"] >= 1
    dropped = sum(run.dropped for run in results.channels.values())
    assert (dropped > 0) == (queued == "drop")


def test_what_is_on_its_way_between_chained_tasks_is_dropped_when_it_arrives() -> None:
    value = video()
    value["network"]["handover_ms"] = 200
    results = ran(value, queued="drop")
    cut = [run for run in results.channels.values() if run.is_chained and run.channel.sender.vertex == "D"]
    assert cut
    assert all(run.dropped >= 10 for run in cut)  # 80 items/s, for 200 ms


def test_an_interval_counts_the_buffers_as_part_of_a_channels_latency() -> None:
    last = ran(video(), "nephele-fixed-buffers").intervals[-1]
    for edge in ("P-D", "D-M", "M-E", "E-R"):
        assert 0 < last.buffered[edge] < last.elements[edge]
    assert last.elements["D"] == pytest.approx(2)
    assert last.elements["E"] == pytest.approx(3)
    whole = sum(last.elements[name] for name in ("P-D", "D", "D-M", "M", "M-E", "E", "E-R"))
    assert last.least <= whole <= last.most  # type: ignore[operator]


def alone(rate: float, **more: Any) -> dict[str, Any]:
    """A sender and a receiver on two workers, and one stream."""
    streams = {"count": 1, "items_per_s": rate, "item_bytes": 1000, **more.pop("streams", {})}
    return pair(20, streams, {"window_bytes": 4000, **more})


def test_a_lone_item_takes_its_cost_its_transmission_and_its_transport() -> None:
    results = ran(alone(1), "nephele-flush")
    assert results.items_out == 20
    assert results.mean_latency_ms == pytest.approx(0.1 + 1.0 + 10)


def test_a_sender_is_held_back_by_the_link_and_waits_no_longer_for_it() -> None:
    results = ran(alone(1e6, streams={"items": 3000}), "nephele-fixed-buffers", initial_bytes=2000)
    assert results.items_out == 3000
    assert results.last_out / S == pytest.approx(3.01, rel=0.01)  # 1 MB/s
    assert results.mean_latency_ms == pytest.approx(10 + 6, abs=1.5)  # the window, and a buffer beyond it
    wider = ran(alone(1e6, streams={"items": 3000}, window_bytes=40000), "nephele-fixed-buffers", initial_bytes=2000)
    assert wider.mean_latency_ms == pytest.approx(10 + 42, abs=2)


def test_the_cost_of_buffers_overlaps_with_their_transmission() -> None:
    fast = {"bits_per_s": 8e9, "buffer_cost_us": 500, "streams": {"items": 3000}}
    cost = ran(alone(1e6, **deepcopy(fast)), "nephele-fixed-buffers", initial_bytes=2000)
    assert cost.last_out / S == pytest.approx(1500 * 500e-6 + 0.01, rel=0.02)
    flushed = ran(alone(1e6, **deepcopy(fast)), "nephele-flush")
    assert flushed.last_out / S == pytest.approx(3000 * 500e-6 + 0.01, rel=0.02)
    assert flushed.mean_latency_ms == pytest.approx(10.5, abs=0.1)  # it waits for its own buffer only


def test_a_summary_and_a_record(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    text = run_buffers(video(duration_s=20), record=path)
    assert text.startswith("20 s of 12 tasks on 2 workers in ")
    assert "under nephele;" in text
    assert "limit 60" in text
    assert "buffer" in text
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    assert sum("interval" in line for line in lines) == 9
    assert any("resize" in line.get("action", {}) for line in lines)
    assert "under nephele-flush;" in run_buffers(video(duration_s=5), "nephele-flush")
    with pytest.raises(UsageProblem, check=breaks("new file")):
        run_buffers(video(duration_s=5), record=path)


@pytest.mark.parametrize(
    ("path", "wrong", "name", "rule"),
    [
        (("engine",), "messages", "scenario.engine", "type"),
        (("colour",), 1, "colour", "known"),
        (("vertices",), [], "scenario.vertices", "type"),
        (("vertices", 1, "name"), "P", "P", "unique"),
        (("vertices", 1, "first_worker"), 0, "vertices[1].first_worker", "type"),
        (("vertices", 1, "kind"), "filter", "vertices[1].kind", "type"),
        (("vertices", 1, "parallelism"), 0, "vertices[1].parallelism", "type"),
        (("vertices", 1, "work_us"), "much", "vertices[1].work_us", "type"),
        (("vertices", 2, "inputs"), 3, "M", "as many as a group"),
        (("edges", 0), ["P", "D"], "edges[0]", "type"),
        (("edges", 0, 2), "some", "edges[0][2]", "type"),
        (("edges",), [*video()["edges"], ["D", "E", "pointwise"]], "D", "one output"),
        (("vertices", 3, "kind"), "sink", "E", "edges of its kind"),
        (("vertices", 1, "kind"), "source", "D", "edges of its kind"),
        (("edges",), video()["edges"][:-1], "E", "edges of its kind"),
        (("constraints", 0, "limit_ms"), -1, "constraints[0].limit_ms", "type"),
        (("constraints", 0, "sequence"), [*ELEMENTS, "R"], "R", "has a latency"),
        (("streams", "kbit_per_s"), 0, "streams", "size"),
        (("streams", "items_per_s"), 0, "streams.items_per_s", "type"),
        (("streams", "slow_kbit_per_s"), 3, "streams.slow_kbit_per_s", "type"),
        (("network", "bits_per_s"), 0, "network.bits_per_s", "type"),
        (("network", "speed"), 1, "scenario.network.speed", "known"),
        (("duration_s",), None, "scenario.duration_s", "type"),
        (("workers",), 0, "scenario.workers", "type"),
        (("workers",), 2.5, "scenario.workers", "type"),
        (("streams", "slow_kbit_per_s"), [0, 17], "streams.slow_kbit_per_s[0]", "type"),
        (("parameters",), 5, "scenario.parameters", "type"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(path: tuple[Any, ...], wrong: Any, name: str | None, rule: str) -> None:
    value: Any = video()
    place = value
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = wrong
    with pytest.raises(QodError, check=breaks(rule, name=name)):
        BufferScenario.from_json(value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    with pytest.raises(ScenarioError, check=breaks("readable")):
        BufferScenario.read(path)
    path.write_text(json.dumps(video()), "utf-8")
    assert BufferScenario.read(path) == BufferScenario.from_json(video())
