"""Goals and tables of the paper's scenarios, of growth and of intervals. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from typing import Any

from benchmarks.evaluation.intervals import BANDS, KINDS, TURNS
from benchmarks.evaluation.kept import Figures
from benchmarks.evaluation.row import Row
from benchmarks.evaluation.section import Runs, Section, Table, Values, at, middle
from benchmarks.simulator import SOURCE_MANAGERS, SOURCE_TASKS, exponent

PERIOD_S = 5.0
LARGE = 500  #: tasks from which on fixed costs are negligible
NOMINAL = 95.0
#: How far from it coverage may be, points.
NEAR = {"count": 1.5, "sum": 1.5, "avg": 1.5, "ratio": 2.5, "median": 2.5, "p90": 2.5}
WIDER = 5.0  #: % more than with the true variance

EARLIER_PLAN = "Rows measured in a cycle were read under earlier plans."
FEW_ROWS = "Few rows of a far lower accuracy make up most of the variance; often none was kept."
STUDENT = "Student's t widens intervals of few rows; a ratio rests on fewer rows than were kept."


def _worst(runs: Runs) -> Row:
    worst = [min(run["worst_margin"].values(), default=None) for run in runs]
    return Row("worst measured accuracy minus minimum", "0", worst, at_least=-0.05, why=EARLIER_PLAN)


def _longest(runs: Runs) -> Row:
    took = [max((float(move["took_s"]) for move in run["moves"]), default=None) for run in runs]
    return Row("longest move", "warm-up < 60 s", took, " s", at_most=60, source_value=60)


def _checks(runs: Runs) -> Row:
    """Return how many checks of the recording hold in every run, and which failed."""
    failed = Counter(check["name"] for run in runs for check in run["criteria"] if not check["passed"])
    count = len({check["name"] for run in runs for check in run["criteria"]})
    told = "; ".join(f"{name} ({times} of {len(runs)} runs)" for name, times in failed.items())
    what = "checks of the recording that hold in every run"
    return Row(what, "", [float(count - len(failed))], at_least=count, why=f"Failed: {told}.")


def _scenario1(runs: Runs) -> list[Row]:
    errors: Values = [100 * max(run["accuracy_error"].values()) for run in runs]
    ends: Values = [
        sum(home != "tm1" for id, home in run["homes_heavier"].items() if id.startswith("TDSnk1.")) for run in runs
    ]
    no_further = "Instances move only while a task manager can't give its tasks their minimums."
    what = "mean gap of current and desired accuracy, sources"
    return [
        _worst(runs),
        Row(what, "2.4 % [P], 0.6 % [T]", errors, " %", at_most=2.4, source_value=2.4, why=EARLIER_PLAN),
        Row("instances of TDSnk1 on the second task manager", "2", ends, at_least=2, source_value=2, why=no_further),
        Row("reaction to the rising load", "fast", at(runs, "reaction_up_s"), " s", at_most=60),
        Row("reaction to the end of the load", "fast", at(runs, "reaction_down_s"), " s", at_most=60),
        _longest(runs),
        _checks(runs),
    ]


def _scenario2(runs: Runs) -> list[Row]:
    first: Values = [float((run["gives_way"] or [""])[0] == "KNN") for run in runs]
    return [_worst(runs), Row("KNN sheds first (1: yes)", "yes", first, at_least=1), _longest(runs), _checks(runs)]


def _scenario3(runs: Runs) -> list[Row]:
    def size(whose: str) -> Values:
        return [None if value is None else abs(value) for value in at(runs, "rate", whose, "mean")]

    return [
        Row("input rate, mean error", "0.4 %", size("ours"), " %", 0.2, None, 0.4),
        Row("input rate, spread", "6.2 %", at(runs, "rate", "ours", "spread"), " %", 2.0, None, 6.2),
        Row("input rate, P90", "2.8 %", at(runs, "rate", "ours", "p90"), " %", 1.0, None, 2.8),
        Row("the thesis' method here, mean error", "0.4 %", size("thesis"), " %"),
        Row("the thesis' method here, spread", "6.2 %", at(runs, "rate", "thesis", "spread"), " %"),
        Row(
            "Pearson(accuracy, 1 / rate)",
            "0.95",
            at(runs, "correlation_inverse"),
            at_least=0.9,
            source_value=0.95,
            why=EARLIER_PLAN,
        ),
        _worst(runs),
        _checks(runs),
    ]


def _cycles(runs: Runs) -> Table:
    """Return each query in each cycle of the last run, and how instances moved."""
    moves = {
        place: ", ".join(move["instance"] for move in group) + f" to {to}"
        for (to, place), group in groupby(runs[-1]["moves"], key=lambda move: (move["to"], move["phase"]))
    }
    found, told = [], set()
    for cycle in runs[-1]["series"]:
        phase = cycle["phase"]
        for query, accuracy in cycle["accuracy"].items():
            first = phase not in told
            told.add(phase)
            found.append(
                {
                    "second": cycle["t"],
                    "phase": phase,
                    "query": query,
                    "accuracy": accuracy,
                    "planned": cycle["planned"].get(query),
                    "minimum": cycle["minimum"].get(query),
                    "moves in this phase": moves.get(phase, "") if first else "",
                }
            )
    return found


def _growth(runs: Runs) -> list[Row]:
    like_source = [middle(run["as_source"]["cycle_ms"]) for run in runs]
    largest = list(runs[0]["by_tasks"])[-1]
    at_most = [middle(run["by_tasks"][largest]["cycle_ms"]) for run in runs]
    large = [line for line in _sizes(runs) if line["tasks"] >= LARGE]
    grows = exponent([line["tasks"] for line in large], [line["cycle, ms"] for line in large])
    share: Values = [None if ms is None else ms / PERIOD_S / 10 for ms in like_source]
    return [
        Row(
            f"a cycle at {SOURCE_TASKS:,} tasks on {SOURCE_MANAGERS} task managers",
            "115 ms",
            like_source,
            " ms",
            at_most=115,
            source_value=115,
        ),
        Row("CPU of a core there", "< 15 %", share, " %", at_most=15),
        Row(f"a cycle at {int(largest):,} tasks", "", at_most, " ms", at_most=1000 * PERIOD_S),
        Row(f"cycle: k of time ~ tasks ** k, from {LARGE} tasks on", "", [grows]),
    ]


def _sizes(runs: Runs) -> Table:
    def ms(size: str, what: str) -> float | None:
        return middle([value for run in runs for value in run["by_tasks"][size][what]])

    keys = {"policy, ms": "policy_ms", "cycle, ms": "cycle_ms", "observing, ms": "observing_ms"}
    return [{"tasks": int(size), **{name: ms(size, key) for name, key in keys.items()}} for size in runs[0]["by_tasks"]]


def _coverage(runs: Runs) -> list[Row]:
    rows = []
    for kind in KINDS:
        found = [run["windows"]["kinds"][kind]["all"] for run in runs]
        ends = {"at_least": NOMINAL - NEAR[kind], "at_most": NOMINAL + NEAR[kind]}
        covered: Values = [100 * one["covered"] for one in found]
        rows.append(Row("coverage", "95 %", covered, " %", **ends, of=kind, why=FEW_ROWS))
        wider: Values = [None if one["width"] is None else 100 * (one["width"] - 1) for one in found]
        what = "wider than with the true variance"
        rows.append(Row(what, "0 %", wider, " %", at_most=WIDER, of=kind, why=STUDENT))
    for way, name, least in (("by_key", "by user", NOMINAL - 6.0), ("by_row", "row by row", None)):
        rounds: Values = [100 * run["pairs"][way]["covered"] for run in runs]
        rows.append(Row(f"rounds of pairs covered, shed {name}", "95 %", rounds, " %", at_least=least))
    return rows


def _groups(runs: Runs) -> Table:
    def told(kind: str, groups: str, found: Figures) -> dict[str, Any]:
        return {
            "figure": kind,
            "groups": groups,
            "intervals": found["figures"],
            "covered, %": None if found["covered"] is None else round(100 * found["covered"], 1),
            "width / true": found["width"],
        }

    def of(kind: str, found: Figures) -> Iterator[dict[str, Any]]:
        yield told(kind, "all", found["all"])
        yield from (told(kind, f"dial {name}", found["turns"][name]) for name in TURNS)
        yield from (told(kind, f"{name} rows kept", found["kept"][name]) for name in BANDS)

    kinds = runs[-1]["windows"]["kinds"]
    pairs = [
        {
            "figure": "pairs",
            "groups": way.replace("_", " "),
            "covered, %": 100 * one["covered"],
            "width / true": one["width"],
        }
        for way, one in runs[-1]["pairs"].items()
        if isinstance(one, dict)
    ]
    return [*(line for kind in KINDS for line in of(kind, kinds[kind])), *pairs]


SECTIONS = {
    "scenario1": Section(
        "Scenario 1: same priority",
        "load rises, both queries shed, a second task manager joins, instances move",
        _scenario1,
        _cycles,
        ("worst measured", "reaction to the rising"),
    ),
    "scenario2": Section(
        "Scenario 2: priorities",
        "three queries of priority 1, 2 and 3 as the load rises in three steps",
        _scenario2,
        _cycles,
        ("worst measured", "KNN sheds"),
    ),
    "scenario3": Section(
        "Scenario 3: a rate that changes",
        "steps and ramps from 0.75 to 2.5 times the capacity",
        _scenario3,
        _cycles,
        ("input rate, mean",),
    ),
    "scenario5": Section(
        "Scenario 5: growth of the controller",
        "CPU of a cycle, in virtual time",
        _growth,
        _sizes,
        ("a cycle at",),
    ),
    "coverage-live": Section(
        "Intervals of estimates",
        "windows of a shed stream against the rows sent, while its keep probability changes",
        _coverage,
        _groups,
        ("coverage", "rounds of pairs covered, shed by user"),
    ),
}
