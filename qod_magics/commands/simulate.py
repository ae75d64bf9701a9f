"""`python -m qod_magics simulate SCENARIO.json`: run a simulation, print its result, record it."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import process_time
from typing import Any

from qod_magics.arguments.parser import Parser
from qod_magics.errors import ScenarioError, UsageProblem, counted, nearest
from qod_magics.policies import base_name, policy, policy_names
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
from qod_magics.simulator.messages.engine import summary as summary_of_messages
from qod_magics.simulator.rates.run import Progress, Run, simulate
from qod_magics.simulator.rates.simulation import Simulation
from qod_magics.simulator.rates.simulation import __doc__ as scenario_format
from qod_magics.simulator.segments import scenario as segments
from qod_magics.simulator.segments import simulated as run_segments

# --- Engines: which of them a scenario names, and how each runs -------------------------------------------------------
# The engines of virtual time that a scenario may name: how each runs one, under which policies, in which format.


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
    return summary_of_messages(engine, process_time() - begun)


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


_FORMAT = (scenario_format or "").partition("\n\n")[2]
_POLICY_HELP = f"in place of the scenario's: {', '.join(policy_names())}; " + "; ".join(
    f"engine {name}: {', '.join(engine.policies)}" for name, engine in ENGINES.items()
)


def _parser() -> Parser:
    parser = Parser(
        "simulate",
        "Run a cluster, its applications and the controller in virtual time.",
        epilog=f"SCENARIO.json, with seconds since the start and rates in rows/s:\n\n{_FORMAT}\n"
        "Other engines, which the scenario names:\n\n" + "\n".join(engine.format for engine in ENGINES.values()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("scenario", metavar="SCENARIO.json", help="what to simulate; its format is below")
    parser.add_argument("--record", type=Path, metavar="RUN.jsonl", help="write the recording here (a new file)")
    parser.add_argument("--policy", metavar="NAME", help=_POLICY_HELP)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with the arguments after `simulate`. Exit status 0; invalid arguments or input raise QodError."""
    words = _parser().parse_args(argv)
    value = _value(words.scenario)
    engine = engine_of(value)
    if engine is not None:
        print(engine.run(value, words.policy, words.record))
        return 0
    simulation = Simulation.read(words.scenario)
    chosen = None if words.policy is None else policy(words.policy)
    if words.record is not None and words.record.exists():
        raise UsageProblem(f"{words.record} is there already: name another file, or remove it")
    decides = simulation.policy if words.policy is None else words.policy
    if base_name(decides) == "dirigo":
        print(f"policy {decides} lends nothing here: simulated rows have no keys", file=sys.stderr)
    run = simulate(simulation, record=words.record, policy=chosen, progress=_progress(simulation), keep=False)
    print(summary(run))
    if words.record is not None:
        print(f"recording: {words.record}")
    return 0


def _value(path: str) -> Mapping[str, Any]:
    """Return the JSON object of a file; an empty one where it is none, so that its engine says what is wrong."""
    try:
        value = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, Mapping) else {}


def summary(run: Run) -> str:
    """Return the result of a run: one line for the run and one per query."""
    cluster, simulation = run.cluster, run.cluster.simulation
    speed = simulation.scenario.duration_s / max(run.cpu_s, 1e-9)
    rows = int(cluster.engine.came[: cluster.wiring.sources].sum())
    lines = [
        f"{simulation.scenario.duration_s:g} s of {counted(len(simulation.machines), 'task manager')} and "
        f"{counted(len(simulation.tasks), 'task')} in {run.cpu_s:.1f} s ({speed:,.0f} times as fast; the policy took "
        f"{run.policy_s:.1f} s of it); {rows:,} rows arrived"
    ]
    if any(machine.waits or machine.price is not None for machine in simulation.machines):
        cost = "" if run.cost is None else f", cost {run.cost:.4g}"
        lines.append(f"task managers were up for {run.node_hours:.3f} h in all{cost}")
    queries = [task for task in simulation.tasks if task.min_accuracy is not None]
    means = run.mean_accuracy
    for task in queries[:20]:
        mean = means.get(task.id)
        shown = "no input" if mean is None else f"mean accuracy {mean:.3f}"
        target = "" if task.max_latency_s is None else f", {_met(run.met.get(task.id))} of {task.max_latency_s:g} s"
        lines.append(f"{task.id}: priority {task.priority}, {shown}, minimum {task.min_accuracy:g}{target}")
    if len(queries) > 20:
        lines.append(f"... and {len(queries) - 20} more queries")
    return "\n".join(lines)


def _met(share: float | None) -> str:
    return "no latency for its target" if share is None else f"in {100 * share:.0f} % of the cycles within its target"


def _progress(simulation: Simulation) -> Progress | None:
    if not sys.stderr.isatty():
        return None
    from tqdm import tqdm

    bar = tqdm(total=simulation.scenario.duration_s, unit="s", desc="simulated")
    return lambda second: bar.update(second - bar.n)
