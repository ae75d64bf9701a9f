"""The section of EVALUATION.md on how a cycle grows with the number of tasks, from the figures alone. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from benchmarks.evaluation.growth import SOURCE_MANAGERS, SOURCE_TASKS
from benchmarks.evaluation.kept import Figures
from benchmarks.evaluation.row import Row
from benchmarks.simulator import TASKS_PER_MANAGER, exponent

LARGE = 500  #: tasks from which on fixed costs are negligible
PERIOD_S = 5.0
CYCLE, POLICY, OBSERVING = "cycle_ms", "policy_ms", "observing_ms"


def growth_section(runs: Sequence[Figures]) -> tuple[str, list[Row]]:
    """Text and table."""
    sizes = [int(size) for size in runs[0]["by_tasks"]]

    def middles(what: str) -> list[float]:
        return [median(value for run in runs for value in run["by_tasks"][str(size)][what]) for size in sizes]

    policy, cycle, observing = middles(POLICY), middles(CYCLE), middles(OBSERVING)
    like_source = [median(run["as_source"][CYCLE]) for run in runs]
    largest = sizes[-1]
    at_most = [median(run["by_tasks"][str(largest)][CYCLE]) for run in runs]
    lines = [
        "Scenario 5: how the controller grows (simulated)",
        "Applications of two sources that feed two queries (one in ten is a chain), some of them in overload; "
        f"{TASKS_PER_MANAGER} tasks per task manager of four cores. CPU time in ms: *cycle* is the controller's work "
        "between observing and applying, policy included; *observing* is the simulator's (live, it is under Costs). "
        "Breakdown of a cycle, and an hour with 20,000 tasks: "
        "[benchmarks](benchmarks/README.md#how-a-cycle-grows).",
        "",
        "| tasks | task managers | policy | cycle | observing |",
        "|---:|---:|---:|---:|---:|",
        *(
            f"| {size:,} | {max(size // TASKS_PER_MANAGER, 2):,} | {a:.2f} | {b:.2f} | {c:.2f} |"
            for size, a, b, c in zip(sizes, policy, cycle, observing, strict=True)
        ),
    ]
    large = [(size, a, b) for size, a, b in zip(sizes, policy, cycle, strict=True) if size >= LARGE]
    counts, of_policy, of_cycle = zip(*large, strict=True)
    return "\n".join(lines), [
        Row(
            f"a cycle at {SOURCE_TASKS:,} tasks on {SOURCE_MANAGERS} task managers",
            "115 ms",
            like_source,
            " ms",
            at_most=115,
            source_value=115,
        ),
        Row(
            "the controller's CPU there, observing left out",
            "< 15 %",
            [100 * ms / (1000 * PERIOD_S) for ms in like_source],
            " %",
            at_most=15,
            source_value=15,
        ),
        Row(f"a cycle at {largest:,} tasks", "", at_most, " ms", at_most=1000 * PERIOD_S),
        Row(f"policy: k of time ~ tasks ** k, from {LARGE} tasks on", "", [exponent(counts, of_policy)]),
        Row(f"cycle: k of time ~ tasks ** k, from {LARGE} tasks on", "", [exponent(counts, of_cycle)]),
    ]
