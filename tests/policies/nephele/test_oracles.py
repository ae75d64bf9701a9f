"""Nephele Streaming against cases worked out exactly."""

from __future__ import annotations

from itertools import pairwise, product
from typing import Any

import pytest

from qod_magics.core.engines import S
from qod_magics.core.job_graph import (
    BufferSize,
    CannotBeMet,
    Chain,
    Channel,
    ChannelSample,
    Instruction,
    JobConstraint,
    JobSequence,
    Report,
    Resize,
    Task,
)
from qod_magics.policies.nephele import Parameters, fixed_buffers, nephele
from qod_magics.policies.nephele.latency import (
    Weighed,
    Window,
    anchor,
    channel_count,
    estimate,
    expand,
    setup,
)
from qod_magics.policies.nephele.manager import TaskFacts, longest_chain, step
from qod_magics.simulator.buffers import BufferScenario, BufferSimulation
from tests.policies.nephele.exact import (
    Crossing,
    Emission,
    element_latencies,
    exact_mean,
    is_violated,
    overlap,
    owner,
    sequence_latencies,
)
from tests.policies.nephele.oracles import DATA, ELEMENTS, PIPELINE, channel, even, graph_of, oracle, task

CLOSE = 1e-6


def test_there_is_a_test_for_each_of_the_twelve() -> None:
    assert len(list(DATA.glob("*.json"))) == 12
    tested = {name.split("_")[1] for name in globals() if name.startswith("test_") and name.split("_")[1].isdigit()}
    assert tested == {f"{number:02}" for number in range(1, 13)}


def test_01_sequence_latency_of_items_and_the_estimate() -> None:
    case = oracle(1)["input"]
    expected = oracle(1)["expected"]
    e1 = [Crossing(i["item"], i["exits_sender"], i["enters_v1"]) for i in case["e1_items"]]
    v1 = [Emission(i["item"], i["exits_v1"]) for i in case["v1_emits_on_e2"]]
    e2 = [Crossing(i["item"], i["exits_v1"], i["enters_receiver"]) for i in case["e2_items"]]
    log = [e1, v1, e2]
    assert sequence_latencies(log) == {each["item"]: each["sequence"] for each in expected["per_item"]}
    with_value = []
    for entry, each in zip(e1, expected["per_item"], strict=True):
        found = element_latencies(log, entry)
        if each["sequence"] is None:
            assert found == [each["e1"], float("inf")]
        else:
            assert found == [each["e1"], each["v1"], each["e2"]]
            with_value.append(found)
    exact = exact_mean(log)
    assert exact == pytest.approx(expected["exact_mean_over_items_with_a_value"], rel=CLOSE)
    assert is_violated(exact, case["limit"]) is expected["exact_violates"]
    means = []
    for values in ([f[0] for f in with_value], [f[1] for f in with_value], [crossing.latency for crossing in e2]):
        window = Window(15 * S)
        for value in values:
            window.add(0, value)
        means.append(window.mean(0))
    found_estimate = estimate(means)
    assert found_estimate == pytest.approx(expected["manager_estimate_from_all_samples_of_those_items"], rel=CLOSE)
    assert is_violated(found_estimate, case["limit"]) is expected["estimate_violates"]


@pytest.mark.parametrize("number", range(4))
def test_02_window_freshness_and_verdict(number: int) -> None:
    given, expected = oracle(2)["input"], oracle(2)["expected"][number]
    case = given["cases"][number]
    means = []
    for element in given["sequence"]:
        window = Window(round(given["t_s"] * S))
        for arrived_s, value in case["measurements"][element]:
            window.add(round(arrived_s * S), value)
        means.append(window.mean(round(given["now_s"] * S)))
    found = estimate(means)
    assert found == expected["estimate_ms"]
    verdict = "unknown" if found is None else "violated" if is_violated(found, case["limit_ms"]) else "met"
    assert verdict == expected["verdict"]


def test_03_one_step_of_buffer_sizing() -> None:
    given, expected = oracle(3)["input"], oracle(3)["expected"]
    names = ("epsilon", "omega", "r", "s", "min_obl_ms", "zero_obl_ms")
    parameters = Parameters(**{name: given[name] for name in names})
    assert parameters == Parameters()
    assert len(given["rows"]) == len(expected) == 14
    for row, wanted in zip(given["rows"], expected, strict=True):
        found = step(row["size"], row["oblt_ms"], row["source_task_latency_ms"], parameters)
        assert (found.bytes, found.verdict) == (wanted["new_size"], wanted["action"]), row


def test_04_repeated_steps_at_a_constant_rate() -> None:
    case, expected = oracle(4)["input"], oracle(4)["expected"]
    for rate, wanted in zip(case["rates_KiB_per_s"], expected, strict=True):
        sizes = [case["initial_size"]]
        while True:
            life_ms = sizes[-1] / (rate * 1024) * 1000
            found = step(sizes[-1], life_ms, 0.0)
            if found.bytes == sizes[-1]:
                break
            sizes.append(found.bytes)
        assert sizes == wanted["sizes"]
        assert found.verdict == wanted["stops_because"]
        assert life_ms / 2 == pytest.approx(wanted["final_obl_ms"], rel=1e-4)  # printed with four decimals


def test_05_placement_of_managers_in_a_small_job() -> None:
    case, expected = oracle(5)["input"], oracle(5)["expected"]
    by_task = {name: worker for worker, names in case["tasks_on_workers"].items() for name in names}
    graph = graph_of(case["job_edges"], by_task)
    path = JobSequence.parse(case["constraint_sequence"]).path
    assert list(path) == expected["path"]
    assert {v: len(set(graph.workers[v])) for v in path} == expected["workers_per_type"]
    assert {v: channel_count(graph, path, i) for i, v in enumerate(path)} == expected["cntChan"]
    assert anchor(graph, path) == expected["anchor"]
    found = setup(graph, [path])
    assert found.keys() == expected["managers"].keys()
    for worker, wanted in expected["managers"].items():
        assert sorted(map(str, found[worker].vertices)) == wanted["vertices"]
        assert len(found[worker].channels) == found[worker].roles[0].subgraph.channel_count == wanted["channels"]
        assert found[worker].constraints == wanted["constraints"]
    assert sum(each.constraints for each in found.values()) == expected["runtime_sequences"]
    assert overlap(found.values()) == expected["overlap_sum"]
    largest = max(len(each.vertices) for each in found.values())
    assert largest < expected["vertices_reached_if_the_expansion_may_turn_round"] == len(by_task)


def test_06_placement_of_managers_in_the_job_of_the_evaluation() -> None:
    case, expected = oracle(6)["input"], oracle(6)["expected"]
    graph = even(case["job_edges"], case["parallelism"], case["workers"])
    path = tuple(case["types"])
    assert {v: channel_count(graph, path, i) for i, v in enumerate(path)} == expected["cntChan"]
    assert anchor(graph, path) == expected["anchor"]
    found = setup(graph, [path])
    assert len(found) == expected["managers"]
    assert {len(each.vertices) for each in found.values()} == {expected["vertices_per_manager"]}
    assert {each.roles[0].subgraph.channel_count for each in found.values()} == {expected["channels_per_manager"]}
    assert {each.constraints for each in found.values()} == {expected["constraints_per_manager"]}
    assert sum(each.constraints for each in found.values()) == expected["runtime_sequences"]
    assert overlap(found.values()) == expected["overlap_sum"]
    tasks = [each for each in graph.tasks("P") if graph.worker(each) == "w0"]
    assert expand(graph, path, tasks).channel_count == expected["channels_per_manager_if_anchored_at_P"]


def test_07_nested_constraints_have_one_owner_each() -> None:
    case, expected = oracle(7)["input"], oracle(7)["expected"]
    graph = graph_of(case["job_edges"], case["tasks_on_workers"])
    paths = [tuple(path) for path in case["constrained_paths"]]
    assert {"-".join(path): anchor(graph, path) for path in paths} == expected["anchors"]
    found = setup(graph, paths)
    inner = {str(c): c for c in (Channel(b, c) for b, c in product(graph.tasks("B"), graph.tasks("C")))}
    within = {name: sorted(w for w in found if c in found[w].channels) for name, c in inner.items()}
    assert within == expected["managers_whose_merged_graph_contains_the_sequence"]
    assert {name: owner(graph, paths[0], c) for name, c in inner.items()} == expected["owner_by_anchor_task"]
    assert {worker: each.constraints for worker, each in found.items()} == expected["sequences_owned"]


@pytest.mark.parametrize("number", range(9))
def test_08_chainable_runs(number: int) -> None:
    given, expected = oracle(8)["input"], oracle(8)["expected"][number]
    case = given["cases"][number]
    assert case["case"] == expected["case"]

    def facts(name: str) -> TaskFacts:
        return TaskFacts(
            case["process"][name],
            case["cpu_cores"][name],
            case["incoming_channels"][name],
            case["outgoing_channels"][name],
            name in case["already_chained"],
            name not in case["never_chain"],
        )

    assert list(longest_chain(given["sequence_tasks"], facts, given["cap_cores"])) == expected["chain"]


def test_09_the_first_update_of_an_epoch_is_applied() -> None:
    case, expected = oracle(9)["input"], oracle(9)["expected"]
    size = BufferSize(case["initial"]["size"], case["initial"]["epoch"])
    for update, wanted in zip(case["updates_in_arrival_order"], expected, strict=True):
        after = size.updated(update["size"], update["based_on_epoch"])
        assert (after != size, after.bytes, after.epoch) == (wanted["applied"], wanted["size"], wanted["epoch"])
        size = after


def manager_loop(variant: dict[str, Any]) -> list[dict[str, Any]]:
    """What a manager does on the fluid model of case 10, in the words of its expectation."""
    case = oracle(10)["input"]
    edges = [[*edge[:2], "pointwise"] for edge in PIPELINE]
    graph = even(edges, 1, 1)
    constraint = JobConstraint(JobSequence.parse(ELEMENTS), case["limit_ms"], case["t_s"])
    parameters = Parameters(
        initial_bytes=case["initial_size"],
        never_chain=frozenset(variant["never_chain"]),
    )
    (manager,) = nephele(parameters).managers(graph, [constraint])
    channels = list(graph.all_channels())
    sizes = {each: BufferSize(case["initial_size"]) for each in channels}
    chained: tuple[Task, ...] = ()
    found: list[dict[str, Any]] = []
    at_s = case["first_check_at_s"]
    while True:
        latencies, lives = [], []
        inside = {Channel(a, b) for a, b in pairwise(chained)}
        for each, rate, transport in zip(channels, case["rates_bytes_per_s"], case["transport_ms"], strict=True):
            if each not in inside:
                life_ms = sizes[each].bytes / rate * 1000
                lives.append(ChannelSample(each, life_ms, sizes[each].epoch))
                latencies.append(ChannelSample(each, life_ms / 2 + transport, sizes[each].epoch))
        report = Report(
            latencies,
            lives,
            [(Task(vertex, 0), ms) for vertex, ms in case["task_latency_ms"].items()],
            [(Task(vertex, 0), cores) for vertex, cores in variant["cpu_cores"].items()],
            dict(sizes),
            [chained] if chained else [],
        )
        manager.receive(report, at_s * S)
        total = sum(sample.ms for sample in latencies) + sum(case["task_latency_ms"].values())
        at = {"t_s": float(at_s), "estimate_ms": pytest.approx(total, rel=CLOSE)}
        instructions: list[Instruction] = list(manager.check(at_s * S))
        if not instructions:
            return [*found, {**at, "action": "none"}]
        if all(isinstance(each, Resize) for each in instructions):
            for each in instructions:
                assert isinstance(each, Resize)
                sizes[each.channel] = sizes[each.channel].updated(each.bytes, each.epoch)
            found.append({**at, "action": "resize", "sizes": [sizes[each].bytes for each in channels]})
        elif isinstance(instructions[0], Chain):
            chained = instructions[0].tasks
            found.append({**at, "action": "chain", "chain": [each.vertex for each in chained]})
        else:
            assert isinstance(instructions[0], CannotBeMet)
            return [*found, {**at, "action": "report_failure"}]
        assert len(instructions) == 1 or isinstance(instructions[0], Resize)
        at_s += case["check_every_s"]


@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_10_resize_then_chain_then_report(name: str) -> None:
    (variant,) = (each for each in oracle(10)["input"]["variants"] if each["name"] == name)
    assert manager_loop(variant) == oracle(10)["expected"][name]


def test_11_wait_in_a_fixed_buffer() -> None:
    case = oracle(11)
    assert len(case["expected"]) == 20
    for row in case["expected"]:
        items = row["items_per_buffer"]
        assert items * case["input"]["item_bytes"] == row["buffer_bytes"]
        scenario = BufferScenario.from_json(
            {
                "engine": "output-buffers",
                "duration_s": 2 * items / row["items_per_s"],
                "interval_s": 1000,
                "vertices": [
                    {"name": "A", "kind": "source", "parallelism": 1},
                    {"name": "B", "kind": "sink", "parallelism": 1},
                ],
                "edges": [["A", "B", "pointwise"]],
                "streams": {"count": 1, "items_per_s": row["items_per_s"], "item_bytes": 128},
            }
        )
        results = BufferSimulation(scenario, fixed_buffers({"initial_bytes": row["buffer_bytes"]})).run()
        assert results.items_out == 2 * items
        assert results.mean_latency_ms == pytest.approx(1000 * row["mean_wait_s"], rel=CLOSE)


def test_12_worst_sequence_and_channels_on_violated_sequences() -> None:
    case, expected = oracle(12)["input"], oracle(12)["expected"]
    edges = [["P", "D", "all-to-all"], ["D", "E", "pointwise"], ["E", "R", "all-to-all"]]
    graph = even(edges, 2, 1)
    sequence = JobSequence.parse(["e(P,D)", "D", "e(D,E)", "E", "e(E,R)"])
    channels = {channel(name): float(ms) for name, ms in case["channels_ms"].items()}
    tasks = {task(name): float(ms) for name, ms in case["tasks_ms"].items()}
    (made,) = setup(graph, [sequence.path]).values()
    assert made.constraints == expected["sequences"]
    weighed = Weighed(sequence, made.roles[0].subgraph, tasks, channels)
    worst = weighed.worst()
    assert worst is not None
    assert worst[0] == expected["max_ms"]
    assert "-".join(map(str, worst[1])) == expected["worst"]
    found = weighed.violated(case["limit_ms"])
    assert sorted(map(str, found)) == expected["channels_on_a_violated_sequence"]
    every = {}
    for p, n, r in product(graph.tasks("P"), (0, 1), graph.tasks("R")):
        d, e = Task("D", n), Task("E", n)
        total = sum(channels[Channel(*each)] for each in ((p, d), (d, e), (e, r))) + tasks[d] + tasks[e]
        every["-".join(map(str, (p, d, e, r)))] = total
    assert min(every.values()) == expected["min_ms"]
    assert sorted(name for name, ms in every.items() if ms > case["limit_ms"]) == expected["violated_sequences"]
