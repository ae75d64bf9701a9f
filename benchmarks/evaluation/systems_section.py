"""The section of EVALUATION.md on Henge, Stela, D-Storm and `auto`, from the figures alone. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from types import MappingProxyType
from typing import Any

from benchmarks.evaluation.auto import AUTO, GOOD, SAME, SAME_S, difference, is_worse
from benchmarks.evaluation.kept import Figures
from benchmarks.evaluation.live_systems_section import live_cells
from benchmarks.evaluation.row import REACTIVE, Row

#: In place of a figure that was not measured on a live cluster.
NO_LIVE = "not yet shown"
#: At 2,000 tasks, ms per cycle: a tenth of the period.
POLICY_MS = 500.0
DAYS: Mapping[str, str] = {
    "large": "tasks on up to",
    "small": "tasks (a source and two queries) on up to",
}
SAID: Mapping[str, str] = {
    "processed": "rows processed / due",
    "end": "the same at the end",
    "margin": "below a minimum at the end",
    "lag_s": "largest backlog, s",
    "lag_end_s": "backlog at the end, s",
}


def systems_section(
    runs: Sequence[Figures], live: Mapping[str, Sequence[Figures]] = MappingProxyType({})
) -> tuple[str, list[Row]]:
    """Text and tables of the last run; rows of all. `live`: the runs of the parts that have live figures of these
    systems, by part."""
    last, cells = runs[-1], live_cells(live)
    measured = (
        "Live figures are of shorter runs on other applications: see the live sections of these systems; the verdicts "
        "are on the models' figures."
        if cells
        else "Nothing of this was measured on a live cluster."
    )
    lines = [
        "Henge, Stela, D-Storm and auto (simulated)",
        "The sources' figures are of real clusters; ours are of models: a packing without queues for D-Storm, fluid "
        "models with cores and queues, fitted to some of the source's figures, for Stela and Henge "
        f"([benchmarks](benchmarks/README.md)). {measured}",
        "",
    ]
    for name, claims in last["claims"].items():
        lines += _claims(name, claims, cells.get(name, {}))
    for name, by_policy in last["days"].items():
        lines += _day(name, by_policy)
    lines += _auto(last["auto"])
    return "\n".join(lines), [*_rows(runs)]


def _claims(name: str, claims: Sequence[Mapping[str, Any]], cells: Mapping[str, str]) -> Iterator[str]:
    """The table of a system's claims. `cells`: live figures by the beginning of a claim."""
    held = sum(claim["reproduced"] for claim in claims)
    yield f"### {name}"
    yield ""
    yield f"{held} of {len(claims)} reproduced."
    yield ""
    yield "| figure | source | ours, in a model | ours, live | verdict |"
    yield "|---|---|---|---|---|"
    for claim in claims:
        verdict = "reproduced" if claim["reproduced"] else "not reproduced"
        words = claim["why"].removeprefix(verdict).lstrip(":; ")
        verdict += f": {words}" if words else ""
        live = next((text for begin, text in cells.items() if claim["what"].startswith(begin)), NO_LIVE)
        yield f"| {claim['what']} | {claim['source']} | {claim['ours']} | {live} | {verdict} |"
    yield ""


def _day(name: str, by_policy: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    first = next(iter(by_policy.values()))
    priorities = [key for key in first["accuracy"] if key != "all"]
    yield f"### A day under every policy: {first['tasks']:,} {DAYS[name]} {first['task_managers']} task managers"
    yield ""
    yield (
        "A day of ten minutes: a night, a morning, a peak beyond the CPU of the task managers up at first, and "
        "a quarter of that. *Accuracy*: measured, of the rows read; *processed*: rows processed / rows due, by the "
        "queries in all and by priority; *in time*: share of the cycles in which a query met its latency target. "
        "Henge, Stela and D-Storm shed nothing: their accuracy is 1 whatever waits, and rows that waited at the peak "
        "are processed at night, late. Stela acts on request only: task managers join at the peak by themselves. "
        "D-Storm reschedules every ten minutes at most, and so not within this day: *every minute* shortens that. "
        "Henge rescales only tasks that may have several instances: one application in ten of the large cluster, none "
        "of the small one. Each policy places the instances at the start, or leaves that to the rule of fewest first. "
        "*Policy*: CPU time per cycle, learning included."
    )
    yield ""
    head = [f"priority {each}" for each in priorities]
    yield (
        f"| policy | accuracy | processed | {' | '.join(head)} | in time | node-hours | task managers | moves "
        "| other actions | policy, ms |"
    )
    yield f"|---|---:|---:|{'---:|' * len(priorities)}---:|---:|---:|---:|---|---:|"
    for policy, found in by_policy.items():
        shares = " | ".join(f"{found['processed'].get(each, 1.0):.3f}" for each in priorities)
        up = found["up"]
        actions = ", ".join(f"{count} {kind}" for kind, count in found["actions"].items()) or "none"
        yield (
            f"| {policy} | {found['accuracy']['all']:.3f} | {found['processed']['all']:.3f} | {shares} "
            f"| {found['met']:.1%} | {found['node_hours']:.2f} | {up['first']} to {up['most']} to {up['last']} "
            f"| {found['moves']:,} | {actions} | {found['policy_ms']:.1f} |"
        )
    yield ""


def _auto(groups: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[str]:
    total = sum(len(pairs) for pairs in groups.values())
    worse = sum(any(is_worse(pair, what) for what in GOOD) for pairs in groups.values() for pair in pairs)
    yield f"### {AUTO} beside {REACTIVE}"
    yield ""
    yield (
        f"The same {total} scenarios under both, with the same load and task managers: those of "
        "`benchmarks/policies.py` (first four) and of [tests/scenarios](tests/scenarios/README.md). Cells: how much "
        f"better {AUTO} is, the median and the worst; of accuracies, at the highest priority where the two differ by "
        f"more than {SAME:g}; in bold where {AUTO} is worse in any scenario by more than {SAME:g} (of backlogs: "
        f"{SAME_S:g} s), with the number of those."
    )
    yield ""
    yield f"| scenarios | | {' | '.join(SAID[what] for what in GOOD)} |"
    yield f"|---|---:|{'---|' * len(GOOD)}"
    for name, pairs in groups.items():
        yield f"| {name} | {len(pairs)} | {' | '.join(_cell(pairs, what) for what in GOOD)} |"
    yield ""
    verdict = f"worse in {worse} of {total} scenarios" if worse else "at least as good in every scenario"
    yield f"By these bounds, {AUTO} is {verdict}."


def _cell(pairs: Sequence[Mapping[str, Any]], what: str) -> str:
    each = [difference(pair, what) for pair in pairs]
    count = sum(is_worse(pair, what) for pair in pairs)
    words = f"{median(each):+.3f}" if len(each) == 1 else f"{median(each):+.3f} ({min(each):+.3f})"
    return f"**{words}: {count}**" if count else words


def _rows(runs: Sequence[Figures]) -> Iterator[Row]:
    def of(day: str, policy: str, *path: str) -> list[float | None]:
        found: list[float | None] = []
        for run in runs:
            value: Any = run["days"][day][policy]
            for key in path:
                value = value[key]
            found.append(value)
        return found

    for day, title in (("large", "the large cluster's day"), ("small", "the small cluster's day")):
        gained = [
            mine - usual
            for mine, usual in zip(
                of(day, AUTO, "processed", "all"), of(day, REACTIVE, "processed", "all"), strict=True
            )
            if mine is not None and usual is not None
        ]
        yield Row(f"{title}: share processed by {AUTO} minus {REACTIVE}'s", "", gained, at_least=0.0)
    yield Row(f"policy {AUTO} per cycle of the large cluster", "", of("large", AUTO, "policy_ms"), " ms", POLICY_MS)
    scenarios: list[float | None] = [
        sum(any(is_worse(pair, what) for what in GOOD) for pairs in run["auto"].values() for pair in pairs)
        for run in runs
    ]
    why = f"The table of {AUTO} beside {REACTIVE} says where; it stays an option."
    yield Row(f"scenarios in which {AUTO} is worse than {REACTIVE}", "", scenarios, at_most=0, why=why)
