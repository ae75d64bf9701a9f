"""EVALUATION.md, written from the figures alone: tables of the paper's figures beside ours, and what falls short."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from pathlib import Path

from benchmarks.evaluation import causes
from benchmarks.evaluation.against_plain_section import against_plain_section
from benchmarks.evaluation.costs_section import costs_section
from benchmarks.evaluation.coverage_section import coverage_section
from benchmarks.evaluation.engines_section import engines_section
from benchmarks.evaluation.goodput import NOBODY, QUERIES
from benchmarks.evaluation.goodput_live import goodput_live_section
from benchmarks.evaluation.growth_section import growth_section
from benchmarks.evaluation.kept import Figures, told
from benchmarks.evaluation.live_systems_section import d_storm_section, henge_section, stela_section
from benchmarks.evaluation.messages_section import messages_section
from benchmarks.evaluation.row import PAPERS, Row
from benchmarks.evaluation.shortfalls import shortfalls
from benchmarks.evaluation.summary import summary
from benchmarks.evaluation.systems_section import systems_section

COMMAND = "python -m benchmarks.evaluation"
SYSTEMS = "systems"
#: The parts with live figures of Henge, Stela and D-Storm, which stand in the tables of `SYSTEMS`, too.
LIVE_SYSTEMS = ("henge-live", "stela-live", "d-storm-live")


def write(results: Path, path: Path) -> None:
    """Write the document from the JSON files in `results`; its charts lie beside them."""
    found = {file.stem: json.loads(file.read_text("utf-8")) for file in sorted(results.glob("*.json"))}
    parts = [_HEAD]
    sections: list[tuple[str, list[Row]]] = []
    live = {part: found[part]["runs"] for part in LIVE_SYSTEMS if part in found}
    for part, section in _SECTIONS.items():
        if part in found:
            runs = found[part]["runs"]
            text, rows = systems_section(runs, live) if part == SYSTEMS else section(runs)
            title, _, rest = text.partition("\n")
            sections.append((title.partition(":")[0], rows))
            longer = tuple(f"{other}-" for other in _SECTIONS if other.startswith(f"{part}-"))
            charts = [
                chart.relative_to(path.parent) if chart.is_relative_to(path.parent) else chart
                for chart in sorted(results.glob(f"{part}-*.svg"))
                if not chart.name.startswith(longer)
            ]
            parts.append(_section(part, found[part], f"## {title}\n\n{rest.strip()}", rows, charts))
    parts.insert(1, summary(sections))
    parts.append(shortfalls(sections, [part for part in _SECTIONS if part not in found]))
    path.write_text("\n\n".join(parts) + "\n", "utf-8")


_HEAD = f"""# Evaluation

The scenarios of *Stream Economics*; the machine is named under each. `{COMMAND}` repeats them
and writes this file from the figures in `benchmarks/results/`. The paper used four machines of one core each; here, one
machine runs everything, with one core for each of two task managers, and broker and injector on the second core. Loads
are therefore not the paper's rows/s but multiples of the first task manager's capacity, which each run calibrates
first. Figures from several runs are medians, with their range."""


def _section(part: str, kept: Figures, text: str, rows: Sequence[Row], charts: Sequence[Path]) -> str:
    lines = [text, ""]
    if rows:
        lines += ["| figure | reference | ours | ratio | goal | |", "|---|---|---|---|---|---|"]
        lines += [row.line() for row in rows] + [""]
    for chart in charts:
        lines += [f"![{part}: {chart.stem.partition('-')[2].replace('-', ' ')}]({chart})", ""]
    lines.append(told(part, kept["scale"], kept["runs"]))
    return "\n".join(lines)


# -- the sections ------------------------------------------------------------------------------------------------------


def _criteria(runs: Sequence[Figures]) -> str:
    """The checks that hold and those that failed, in words."""
    names = list(dict.fromkeys(each["name"] for run in runs for each in run["criteria"]))
    failed: dict[str, list[str]] = {}
    for number, run in enumerate(runs, 1):
        for each in run["criteria"]:
            if not each["passed"]:
                failed.setdefault(each["name"], []).append(f"run {number}: {each['detail']}")
    said = [f"{len(names) - len(failed)} of {len(names)} checks of the recording hold{_in_all(runs)}."]
    said += [f"Failed in {len(why)} of {len(runs)} runs: *{name}* ({why[0]})." for name, why in failed.items()]
    return " ".join(said)


def _in_all(runs: Sequence[Figures]) -> str:
    return "" if len(runs) == 1 else " in all runs"


def _counted(said: Sequence[str]) -> str:
    """The statements about the runs, equal ones once."""
    counts = Counter(said).most_common()
    if len(counts) == 1:
        return counts[0][0]
    return "; ".join(f"in {count} of {len(said)} runs {each}" for each, count in counts)


def _worst(runs: Sequence[Figures]) -> Row:
    worst = [min(run["worst_margin"].values(), default=None) for run in runs]
    return Row("worst measured accuracy minus minimum", "0", worst, at_least=-0.05, why=causes.under_a_minimum(runs))


def _scenario1(runs: Sequence[Figures]) -> tuple[str, list[Row]]:
    ends = [sum(home != "tm1" for id, home in run["homes_heavier"].items() if id.startswith("TDSnk1.")) for run in runs]
    errors = [100 * max(run["accuracy_error"].values()) for run in runs]
    text = (
        "Scenario 1: same priority\n"
        "The load rises beyond the capacity of one task manager: both queries shed, TDSnk1 not below 0.4 and TDSnk2 "
        "not below 0.6. A second task manager joins, and instances move there as the load rises further. "
        f"Moves: {_counted([_moves(run) for run in runs])}. {_criteria(runs)}"
    )
    return text, [
        _worst(runs),
        Row(
            "mean abs(curAc - ac) of the sources",
            "2.4 % [P], 0.6 % [T]",
            errors,
            " %",
            at_most=2.4,
            source_value=2.4,
            why=causes.few_cycles(runs),
        ),
        Row(
            "instances of TDSnk1 on the second task manager",
            "2",
            ends,
            at_least=2,
            source_value=2,
            why=causes.moved_no_further(runs),
        ),
        Row("reaction to the rising load", "fast", [run["reaction_up_s"] for run in runs], " s", at_most=60),
        Row("reaction to the end of the load", "fast", [run["reaction_down_s"] for run in runs], " s", at_most=60),
        Row("longest move", "warm-up < 60 s", [_longest(run) for run in runs], " s", at_most=60, source_value=60),
    ]


def _scenario2(runs: Sequence[Figures]) -> tuple[str, list[Row]]:
    last = [run["accuracy"].get("rising-3", {}) for run in runs]
    reached = [
        f"{query} {Row('', '', [each.get(query) for each in last]).shown()}"
        for query in dict.fromkeys(query for each in last for query in each)
    ]
    text = (
        "Scenario 2: priorities\n"
        "KNN (priority 1), TDSnk1 (2) and TDSnk2 (3) share two task managers while the load rises in three steps. "
        f"Order of shedding: {_counted([', then '.join(run['gives_way']) or 'none' for run in runs])}. Accuracy at the "
        f"last step: {', '.join(reached) or 'unknown'}. {_criteria(runs)}"
    )
    first = [float((run["gives_way"] or [""])[0] == "KNN") for run in runs]
    return text, [
        _worst(runs),
        Row("KNN sheds first (1: yes)", "yes", first, at_least=1),
        Row("moves", "", [len(run["moves"]) for run in runs]),
        Row("longest move", "warm-up < 60 s", [_longest(run) for run in runs], " s", at_most=60, source_value=60),
    ]


def _scenario3(runs: Sequence[Figures]) -> tuple[str, list[Row]]:
    text = (
        "Scenario 3: a rate that changes\n"
        "KNN on two instances while its rate goes up and down in steps and ramps, between 0.75 and 2.5 times the "
        "capacity of the task manager. The input rate is estimated in two ways: from the broker's end offsets (ours), "
        "and, as in the thesis, from consumed rows and the change of the lag; the ground truth is the rows that the "
        "injector had acknowledged. " + _criteria(runs)
    )

    def estimate(whose: str, what: str) -> list[float | None]:
        return [run["rate"][whose][what] for run in runs]

    return text, [
        Row("input rate, mean error", "0.4 %", [abs(v or 0) for v in estimate("ours", "mean")], " %", 0.2, None, 0.4),
        Row("input rate, spread", "6.2 %", estimate("ours", "spread"), " %", 2.0, None, 6.2),
        Row("input rate, P90", "2.8 %", estimate("ours", "p90"), " %", 1.0, None, 2.8),
        Row("the thesis' method here, mean error", "0.4 %", [abs(v or 0) for v in estimate("thesis", "mean")], " %"),
        Row("the thesis' method here, spread", "6.2 %", estimate("thesis", "spread"), " %"),
        Row("the thesis' method here, P90", "2.8 %", estimate("thesis", "p90"), " %"),
        Row(
            "Pearson(accuracy, 1 / rate)",
            "0.95",
            [run["correlation_inverse"] for run in runs],
            at_least=0.9,
            source_value=0.95,
            why=causes.follows_later(runs),
        ),
        Row(
            "longest lag of a source, in periods of input", "near 0, with spikes", [r["most_lag_periods"] for r in runs]
        ),
        _worst(runs),
    ]


def _goodput(runs: Sequence[Figures]) -> tuple[str, list[Row]]:
    run = runs[-1]
    loads = list(run["rows_per_s"])
    lines = [
        "Goodput against offered load (simulated)",
        "Three equal queries behind one source on one core, of priority 3, 2 and 1 with a minimum accuracy of 0.001, "
        "in virtual time. Rows/s processed by each (top / middle / least); in brackets, the top query's relative to "
        "running alone on the same machine and load. 1x is the planned capacity, nine tenths of the core; without a "
        "policy (`none`), all of it is used.",
        "",
        f"| policy | {' | '.join(f'{float(load):g}x' for load in loads)} |",
        "|---|" + "---|" * len(loads),
    ]
    rows = []
    for policy, by_load in run["policies"].items():
        cells = []
        for load in loads:
            got = by_load[load]
            share = got["top"] / max(got["alone"], 1e-9)
            cells.append(f"{got['top']:,.0f} / {got['middle']:,.0f} / {got['least']:,.0f} ({share:.0%})")
        lines.append(f"| {policy} | {' | '.join(cells)} |")
        if policy != NOBODY:
            rows += _goodput_rows(policy, by_load, run["rows_per_s"])
    return "\n".join(lines), rows


def _goodput_rows(policy: str, by_load: Figures, loads: Mapping[str, float]) -> list[Row]:
    once, most = by_load["1"], by_load[(load := list(loads)[-1])]
    alone = most["top"] / max(most["alone"], 1e-9)
    work = sum(most[q] for q in QUERIES) / sum(once[q] for q in QUERIES)
    less = causes.leaves_unused(by_load, loads, load) if policy == PAPERS else causes.reads_more(float(load))
    why = causes.others_run_too(float(load))
    return [
        Row(f"goodput of the top query at {load}x / alone", "", [alone], at_least=0.95, of=policy, why=why),
        Row(f"total goodput at {load}x / at 1x", "", [work], at_least=0.9, of=policy, why=less),
    ]


def _moves(run: Figures) -> str:
    """The moves in order, grouped by target."""
    going = [(list(group), to) for to, group in groupby(run["moves"], key=lambda move: move["to"])]
    return ", ".join(f"{', '.join(move['instance'] for move in moves)} to {to}" for moves, to in going) or "none"


def _longest(run: Figures) -> float | None:
    return max((float(m["took_s"]) for m in run["moves"]), default=None)


_SECTIONS: Mapping[str, Callable[[Sequence[Figures]], tuple[str, list[Row]]]] = {
    "scenario1": _scenario1,
    "scenario2": _scenario2,
    "scenario3": _scenario3,
    "engines": engines_section,
    "against-plain": against_plain_section,
    "scenario5": growth_section,
    "goodput": _goodput,
    "goodput-live": goodput_live_section,
    "costs": costs_section,
    "coverage-live": coverage_section,
    SYSTEMS: systems_section,
    "henge-live": henge_section,
    "stela-live": stela_section,
    "d-storm-live": d_storm_section,
    "messages": messages_section,
}
