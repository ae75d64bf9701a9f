"""A scenario of output buffers from a file of JSON to a summary in text, and a record in lines of JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from time import process_time
from typing import Any

from qod_magics.core.wording import counted
from qod_magics.errors import UsageProblem
from qod_magics.event_engine.buffers.results import Results
from qod_magics.event_engine.buffers.scenario import BufferScenario
from qod_magics.event_engine.buffers.simulation import BufferSimulation
from qod_magics.policies.channel_policies import channel_policy

KINDS = {"Resize": "new buffer size", "Chain": "chain", "CannotBeMet": "report that a limit cannot be met"}


def run_buffers(value: Mapping[str, Any], policy: str | None = None, record: Path | None = None) -> str:
    """Run a scenario of output buffers; its summary.

    Args:
        value: the JSON, as `scenario` describes it.
        policy: in place of the scenario's.
        record: a new file, to which each interval and each action goes as one line of JSON.

    Raises:
        ScenarioError, UsageProblem: the scenario cannot be read, there is no such policy, or the file is there already.

    """
    scenario = BufferScenario.from_json(value)
    if record is not None and record.exists():
        raise UsageProblem(f"{record} is there already: name another file, or remove it")
    chosen = channel_policy(scenario.policy if policy is None else policy, scenario.parameters)
    begun = process_time()
    results = BufferSimulation(scenario, chosen).run()
    took_s = process_time() - begun
    if record is not None:
        write(results, record)
    return summary(results, took_s)


def write(results: Results, path: Path) -> None:
    """Intervals and actions, as lines of JSON in the order of time."""
    lines = [(each.end_s, {"interval": each.to_json()}) for each in results.intervals]
    lines += [(action["at_s"], {"action": action}) for action in (each.to_json() for each in results.actions)]
    lines.sort(key=lambda line: line[0])
    path.write_text("".join(f"{json.dumps(line)}\n" for _, line in lines), encoding="utf-8")


def summary(results: Results, took_s: float) -> str:
    """The result of a run in a few lines."""
    scenario = results.scenario
    workers = {worker for each in scenario.graph.workers.values() for worker in each}
    lines = [
        f"{scenario.duration_s:g} s of {counted(len(results.tasks), 'task')} on {counted(len(workers), 'worker')} in "
        f"{took_s:.1f} s under {results.policy}; {counted(f'{results.items_in:,}', 'item')} in, "
        f"{results.items_out:,} out",
    ]
    if results.mean_latency_ms is not None:
        lines.append(f"mean latency of all items: {results.mean_latency_ms:,.0f} ms")
    known = [each for each in results.intervals if each.mean is not None]
    for constraint in scenario.constraints[:1]:
        for words, each in zip(("first", "last"), (known[:1], known[-1:]), strict=True):
            lines += [
                f"{words} interval: sequences take {at.mean:,.0f} ms on average, {at.least:,.0f} to {at.most:,.0f}, "
                f"limit {constraint.limit_ms:g}"
                for at in each
            ]
    actions = results.counts()
    done = [counted(actions[name], words) for name, words in KINDS.items() if name in actions]
    lines.append(f"actions: {', '.join(done) or 'none'}")
    return "\n".join(lines)
