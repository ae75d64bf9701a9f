"""`python -m qod_magics simulate SCENARIO.json`: run a simulation, print its result, record it."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from qod_magics.arguments.parser import Parser
from qod_magics.errors import UsageProblem
from qod_magics.policies import policy, policy_names
from qod_magics.simulator.engines import ENGINES, engine_of
from qod_magics.simulator.rates.run import Progress, Run, simulate
from qod_magics.simulator.rates.simulation import Simulation
from qod_magics.simulator.rates.simulation import __doc__ as scenario_format

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
    run = simulate(simulation, record=words.record, policy=chosen, progress=_progress(simulation), keep=False)
    print(summary(run))
    if words.record is not None:
        print(f"recording: {words.record}")
    return 0


def _value(path: str) -> Mapping[str, Any]:
    """The JSON object of a file; an empty one where it is none, so that its engine says what is wrong."""
    try:
        value = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, Mapping) else {}


def summary(run: Run) -> str:
    """The result of a run: one line for the run and one per query."""
    cluster, simulation = run.cluster, run.cluster.simulation
    speed = simulation.scenario.duration_s / max(run.cpu_s, 1e-9)
    rows = int(cluster.engine.came[: cluster.wiring.sources].sum())
    lines = [
        f"{simulation.scenario.duration_s:g} s of {_counted(len(simulation.machines), 'task manager')} and "
        f"{_counted(len(simulation.tasks), 'task')} in {run.cpu_s:.1f} s ({speed:,.0f} times as fast; the policy took "
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


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _progress(simulation: Simulation) -> Progress | None:
    if not sys.stderr.isatty():
        return None
    from tqdm import tqdm

    bar = tqdm(total=simulation.scenario.duration_s, unit="s", desc="simulated")
    return lambda second: bar.update(second - bar.n)
