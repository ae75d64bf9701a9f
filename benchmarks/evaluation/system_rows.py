"""Goals and tables of the systems of the literature, live and in virtual time. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.evaluation import d_storm_live, henge_live, stela_live
from benchmarks.evaluation.auto import AUTO, GOOD, difference, is_worse
from benchmarks.evaluation.row import REACTIVE, Row
from benchmarks.evaluation.section import Runs, Section, Table, Values, at, each, middle, names, ratio
from benchmarks.findings import REPRODUCED

GOOD_END = 89.0  #: the source of Henge: of the greatest utility, %
OVER_STORM = 1.45  #: the source of Stela, linear: its gain / Storm's
LESS_TRAFFIC = -40.0  #: against round-robin at the default configuration, %
POLICY_MS = 500.0  #: at 2,000 tasks, ms per cycle: a tenth of the period
HOUR_S, GOAL_S = 3600.0, 60.0  #: what an hour of Cameo's jobs may take, CPU seconds
NOT_WHOLE = "The second core also runs the broker, and a move uses it."
SOON_OVER = "The runs end soon after the step, and Henge judges a step only when it has settled."


def of(runs: Runs, policy: str, *path: str) -> Values:
    """Return a figure of a policy in each run; None where the policy was left out of one."""
    return at(runs, "policies", policy, *path)


def _checks(runs: Runs) -> list[Row]:
    """Return the checks that hold, by policy; all must."""
    rows = []
    for name in names(runs, "policies"):
        known = [run["policies"][name]["checks"] for run in runs if name in run["policies"]]
        held: Values = [float(sum(check["passed"] for check in checks)) for checks in known]
        failed = [f"{check['name']} ({check['detail']})" for checks in known for check in checks if not check["passed"]]
        why = f"Failed: {'; '.join(failed)}."
        rows.append(Row("checks of row accounting that hold", "", held, at_least=len(known[0]), of=name, why=why))
    return rows


def flattened(value: Mapping[str, Any], *under: str) -> dict[str, Any]:
    """Return the numbers in nested mappings, by their keys with spaces between; lists are left out."""
    found: dict[str, Any] = {}
    for key, one in value.items():
        if isinstance(one, Mapping):
            found |= flattened(one, *under, key)
        elif isinstance(one, int | float | str) or one is None:
            found[" ".join((*under, key))] = one
    return found


def _by_policy(runs: Runs) -> Table:
    """Return all figures of each policy in the last run that has it."""
    last = {name: run["policies"][name] for run in runs for name in run["policies"]}
    return [{"policy": name, **flattened(figures)} for name, figures in last.items()]


# -- live --------------------------------------------------------------------------------------------------------------


def _henge(runs: Runs) -> list[Row]:
    ends: Values = [
        figures["slices"][-1]["by_latency"] if (figures := run["policies"].get(henge_live.HENGE)) else None
        for run in runs
    ]
    means = (of(runs, name, "by_latency", "mean") for name in (henge_live.HENGE, henge_live.STATIC))
    what = "satisfaction at the end of the step"
    gained = each(lambda a, b: a - b, *means)
    return [
        Row(what, f"{GOOD_END:g} %", ends, " %", at_least=GOOD_END, of="henge", why=SOON_OVER),
        Row("satisfaction minus static placement's", "", gained, " points", at_least=0.0, why=SOON_OVER),
        *_checks(runs),
    ]


def _stela(runs: Runs) -> list[Row]:
    def gain(policy: str) -> Values:
        return each(ratio, of(runs, policy, "after"), of(runs, policy, "before"))

    over = each(ratio, gain(stela_live.STELA), gain(stela_live.RE_DEAL))
    what = "gain of throughput / storm-re-deal's"
    return [Row(what, f"{OVER_STORM:g}", over, at_least=OVER_STORM, why=NOT_WHOLE), *_checks(runs)]


def _d_storm(runs: Runs) -> list[Row]:
    def against(stage: str, key: str, other: str) -> Values:
        pair = (of(runs, name, "stages", stage, key) for name in (d_storm_live.D_STORM, other))
        return each(lambda mine, others: 100 * (ratio(mine, others) - 1), *pair)

    used = of(runs, d_storm_live.D_STORM, "stages", "quarter", "used")
    rows = [Row("task managers used at a quarter of the load", "", used, at_most=1)]
    for stage in d_storm_live.STAGES:
        traffic = against(stage, "between_rows_s", d_storm_live.ROUND_ROBIN)
        cpu = against(stage, "cpu_us", d_storm_live.UNFUSED)
        source = "-63.9 %" if stage == "full" else ""
        rows.append(Row("traffic against round-robin", source, traffic, " %", at_most=LESS_TRAFFIC, of=stage))
        rows.append(Row("CPU per row against unfused", "", cpu, " %", at_most=0.0, of=stage))
    return [*rows, *_checks(runs)]


# -- in virtual time ---------------------------------------------------------------------------------------------------


def _systems(runs: Runs) -> list[Row]:
    rows = []
    for day in ("large", "small"):
        pair = (at(runs, "days", day, policy, "processed", "all") for policy in (AUTO, REACTIVE))
        gained = each(lambda mine, usual: mine - usual, *pair)
        rows.append(
            Row(f"share processed by {AUTO} minus the default's", "", gained, at_least=0.0, of=f"{day} cluster")
        )
    worse: Values = [
        float(sum(any(is_worse(pair, what) for what in GOOD) for pairs in run["auto"].values() for pair in pairs))
        for run in runs
    ]
    total = sum(len(pairs) for pairs in runs[-1]["auto"].values())
    why = "The table says where; it stays an option."
    policy, tasks = at(runs, "days", "large", AUTO, "policy_ms"), runs[-1]["days"]["large"][AUTO]["tasks"]
    return [
        *rows,
        Row(f"{AUTO} per cycle of {tasks:,} tasks", "", policy, " ms", POLICY_MS),
        Row(f"scenarios of {total} in which {AUTO} is worse", "", worse, at_most=0, why=why),
    ]


def _days(runs: Runs) -> Table:
    days = [
        {"cluster": day, "policy": policy, **flattened(figures)}
        for day, by_policy in runs[-1]["days"].items()
        for policy, figures in by_policy.items()
    ]
    auto = [
        {
            "cluster": group,
            "policy": f"{AUTO} minus default",
            **{what: middle([difference(p, what) for p in pairs]) for what in GOOD},
        }
        for group, pairs in runs[-1]["auto"].items()
    ]
    return [*days, *auto]


def reproduced(table: Sequence[Mapping[str, Any]]) -> dict[str, tuple[int, int]]:
    """Return the number of figures reproduced, and of all, by system."""
    every = Counter(line["system"] for line in table)
    held = Counter(line["system"] for line in table if line["verdict"] == REPRODUCED)
    return {system: (held[system], count) for system, count in every.items()}


def _claims(runs: Runs) -> Table:
    return [{"system": system, **line} for system, lines in runs[-1]["systems"].items() for line in lines]


def _reproduced(runs: Runs) -> list[Row]:
    return [
        Row("reproduced", "", [float(held)], f" of {count}", of=system)
        for system, (held, count) in reproduced(_claims(runs)).items()
    ]


def _messages(runs: Runs) -> list[Row]:
    hours: Values = []
    for run in runs:
        longest = max(run["speed"], key=lambda one: one["seconds"])
        hours.append(longest["cpu_s"] * HOUR_S / longest["seconds"])
    return [Row("CPU of an hour of Cameo's 24 jobs", "", hours, " s", at_most=GOAL_S), *_reproduced(runs)]


SECTIONS = {
    "systems": Section(
        "A day under every policy",
        "simulated clusters of 2,000 and of 3 tasks; 90 scenarios under `auto` and the default",
        _systems,
        _days,
        ("share processed", "auto per cycle"),
    ),
    "henge-live": Section("Henge", "a step of one of three queries' load", _henge, _by_policy, ("satisfaction",)),
    "stela-live": Section(
        "Stela", "a chain at twice what a core carries; one task manager joins", _stela, _by_policy, ("gain",)
    ),
    "d-storm-live": Section(
        "D-Storm", "a chain at full and at a quarter of the load", _d_storm, _by_policy, ("traffic", "CPU per row")
    ),
    "messages": Section(
        "Cameo, Dirigo, Nephele Streaming, Getafix",
        "figures of the sources, in virtual time",
        _messages,
        _claims,
        ("reproduced",),
    ),
}
