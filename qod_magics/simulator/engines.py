"""The engines of virtual time that a scenario may name: how each runs one, under which policies, in which format."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import process_time
from typing import Any

from qod_magics.errors import ScenarioError, UsageProblem, nearest
from qod_magics.policies.of_engines import (
    channel_policy,
    channel_policy_names,
    dispatcher,
    dispatcher_names,
    replication_policy_names,
)
from qod_magics.simulator.buffers import results as buffer_results
from qod_magics.simulator.buffers import scenario as buffers
from qod_magics.simulator.buffers.scenario import BufferScenario
from qod_magics.simulator.buffers.simulation import BufferSimulation
from qod_magics.simulator.messages import scenario as messages
from qod_magics.simulator.messages.engine import summary
from qod_magics.simulator.segments import scenario as segments
from qod_magics.simulator.segments import simulated as run_segments


@dataclass(frozen=True, slots=True)
class EngineKind:
    """An engine: `run(scenario as JSON, policy, file for a recording)` returns the summary."""

    run: Callable[[Mapping[str, Any], str | None, Path | None], str]
    policies: tuple[str, ...]
    format: str  #: documentation of the scenario


def run_buffers(value: Mapping[str, Any], policy: str | None = None, record: Path | None = None) -> str:
    """Run a scenario of output buffers and return its summary.

    Args:
        value: the JSON, as `scenario` describes it.
        policy: in place of the scenario's.
        record: a new file, to which each interval and each action goes as one line of JSON.

    Raises:
        ScenarioError, UsageProblem: the scenario cannot be read, there is no such policy, or the file is there already.

    """
    scenario = BufferScenario.from_json(value)
    if record is not None and record.exists():
        raise UsageProblem(f"{record} is there already: name another file, or remove it", rule="new file")
    chosen = channel_policy(scenario.policy if policy is None else policy, scenario.parameters)
    begun = process_time()
    results = BufferSimulation(scenario, chosen).run()
    took_s = process_time() - begun
    if record is not None:
        buffer_results.write(results, record)
    return buffer_results.summary(results, took_s)


def _run_messages(value: Mapping[str, Any], policy: str | None, record: Path | None) -> str:
    _refuse(record, messages.ENGINE)
    scenario = messages.MessageScenario.from_json(value)
    chosen = dispatcher(scenario.policy if policy is None else policy)
    begun = process_time()
    engine = scenario.run(chosen)
    return summary(engine, process_time() - begun)


def _run_segments(value: Mapping[str, Any], policy: str | None, record: Path | None) -> str:
    _refuse(record, segments.ENGINE)
    return run_segments(value, policy)


def _refuse(record: Path | None, engine: str) -> None:
    if record is not None:
        raise UsageProblem(f"--record is not for the engine {engine!r}, which has no cycles to record: leave it out")


ENGINES: Mapping[str, EngineKind] = {
    messages.ENGINE: EngineKind(_run_messages, dispatcher_names(), messages.__doc__ or ""),
    buffers.ENGINE: EngineKind(run_buffers, channel_policy_names(), buffers.__doc__ or ""),
    segments.ENGINE: EngineKind(_run_segments, replication_policy_names(), segments.__doc__ or ""),
}


def engine_of(value: Mapping[str, Any]) -> EngineKind | None:
    """Return the engine that a scenario names; None if it names none. Raises ScenarioError for an unknown one."""
    name = value.get("engine")
    if name is None:
        return None
    if name not in ENGINES:
        raise ScenarioError(
            f"there is no engine {name!r} (leave it out for rates of rows).{nearest(str(name), ENGINES)}"
        )
    return ENGINES[name]
