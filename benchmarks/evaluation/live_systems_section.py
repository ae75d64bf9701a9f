"""The sections of EVALUATION.md on live runs of Henge, Stela and D-Storm, and their figures for the tables of claims,
from the figures alone. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from benchmarks.evaluation import d_storm_live, henge_live, stela_live
from benchmarks.evaluation.kept import Figures
from benchmarks.evaluation.row import Row

Runs = Sequence[Figures]
Values = list[float | None]

GOOD_END = 89.0  #: the source of Henge: of the greatest utility, %
OVER_STORM = 1.45  #: the source of Stela, linear: its gain / Storm's
LESS_TRAFFIC = -40.0  #: against round-robin at the default configuration, %: `benchmarks/d_storm.py`


def of(runs: Runs, policy: str, *path: str | int) -> Values:
    """A figure of a policy in each run; None where the policy was left out of one."""
    found: Values = []
    for run in runs:
        value: Any = run["policies"].get(policy)
        for key in path:
            value = None if value is None else value[key]
        found.append(value)
    return found


def shown(values: Sequence[float | None], unit: str = "") -> str:
    """The median of the runs with its range."""
    return Row("", "", values, unit).shown()


def whole(values: Sequence[float | None]) -> str:
    """The same, in whole numbers."""
    known = [value for value in values if value is not None]
    if not known:
        return "never"
    ends = dict.fromkeys(f"{end:,.0f}" for end in (min(known), max(known)))
    return f"{median(known):,.0f}" + (f" ({' to '.join(ends)})" if len(ends) > 1 else "")


def _each(function: Callable[..., float], *columns: Values) -> Values:
    """By run, of the values of all columns; None where one of them is unknown."""
    return [
        None if any(value is None for value in values) else function(*values) for values in zip(*columns, strict=True)
    ]


def _ratio(a: float, b: float) -> float:
    if not a:
        return 0.0
    return a / b if b else float("inf")


# -- Henge -------------------------------------------------------------------------------------------------------------


def henge_section(runs: Runs) -> tuple[str, list[Row]]:
    """Text, tables and rows."""
    last = runs[-1]
    options = ", ".join(f"{name} {value:g}" for name, value in last["henge"].items())
    lines = [
        "Henge (live)",
        f"Three queries with a target latency of {last['target_s']:g} s and a utility of {henge_live.UTILITY:g} each, "
        f"on two task managers of a core each; every one gets {henge_live.CALM:g} of what a core takes, and then the "
        f"first one {henge_live.STEP:g}. *Satisfaction* is the sum of utilities over its maximum, after the step, "
        "%: *by latency*, as Henge judges such queries, in each cycle; and *by latency and juice*, means of "
        f"{henge_live.SMOOTH} cycles, where rows that were shed count as missed. Under every policy the first and the "
        "third query start on one task manager; static placement leaves them there. Two of the three jobs can meet "
        "their targets under any policy, so that Henge can have 1.5 times the satisfaction of that at most, not the "
        f"source's 19 times. Henge's times are shortened to fit the run: {options}. If a step were judged much sooner, "
        "its backlog would not have drained, and it would be taken back.",
        "",
        "| policy | calm | by latency: mean | 15th | 50th | 90th percentile | by latency and juice: mean | 15th | 50th "
        "| 90th percentile | rows kept | all met after, s | time in actions | actions |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|",
    ]
    for name in _policies(runs):
        spreads = [
            shown(of(runs, name, what, key))
            for what in ("by_latency", "with_juice")
            for key in ("mean", "p15", "p50", "p90")
        ]
        lines.append(
            f"| {name} | {shown(of(runs, name, 'calm'))} | {' | '.join(spreads)} | {shown(of(runs, name, 'kept'))} "
            f"| {shown(of(runs, name, 'met_after_s'))} | {shown(_percent(of(runs, name, 'in_actions')), ' %')} "
            f"| {_actions(last, name)} |"
        )
    lines += ["", *_course(last), *_left_out(runs)]
    henge, static = (of(runs, each, "by_latency", "mean") for each in (henge_live.HENGE, henge_live.STATIC))
    end = of(runs, henge_live.HENGE, "slices", -1, "by_latency")
    gained = _each(lambda a, b: a - b, henge, static)
    why = "The runs end soon after the step, and a step of Henge is judged only when it has settled."
    return "\n".join(lines), [
        Row(
            "satisfaction at the end of the step", f"{GOOD_END:g} %", end, " %", at_least=GOOD_END, of="henge", why=why
        ),
        Row("satisfaction, henge minus static placement", "", gained, " points", at_least=0.0, why=why),
        *_checks(runs),
    ]


def _course(last: Figures) -> Iterator[str]:
    """Satisfaction over time in the last run."""
    known = {name: figures["slices"] for name, figures in last["policies"].items()}
    begins = max(([each["from_s"] for each in slices] for slices in known.values()), key=len)
    yield f"Over time, by latency / by latency and juice; {henge_live.SLICE_S:g} s from each second after the step on:"
    yield ""
    yield f"| policy | {' | '.join(f'{begin:g} s' for begin in begins)} |"
    yield f"|---|{'---:|' * len(begins)}"
    for name, slices in known.items():
        by_begin = {each["from_s"]: f"{each['by_latency']:.0f} / {each['with_juice']:.0f}" for each in slices}
        yield f"| {name} | {' | '.join(by_begin.get(begin, '') for begin in begins)} |"
    yield ""


def _henge_cells(runs: Runs) -> dict[str, str]:
    found = {}
    for claimed, name in (("henge", henge_live.HENGE), ("storm", henge_live.STATIC)):
        keys = {"mean": "mean", "15th percentile": "p15", "50th percentile": "p50", "90th percentile": "p90"}
        for words, key in keys.items():
            found[f"satisfaction, {claimed}, {words}"] = shown(of(runs, name, "by_latency", key), " %")
    ratio = _each(_ratio, *(of(runs, n, "by_latency", "mean") for n in (henge_live.HENGE, henge_live.STATIC)))
    found["Henge / Storm's default"] = f"{shown(ratio)} (1.5 at most)"
    found["longest search"] = f"all targets met after {shown(of(runs, henge_live.HENGE, 'met_after_s'), ' s')}"
    found["less than 1 % of the time in actions"] = shown(
        _percent(of(runs, henge_live.HENGE, "in_actions")), " % of a short run"
    )
    return found


# -- Stela -------------------------------------------------------------------------------------------------------------


def stela_section(runs: Runs) -> tuple[str, list[Row]]:
    """Text, table and rows."""
    last = runs[-1]
    lines = [
        "Stela (live)",
        f"A chain of three tasks without state gets {last['offered']:g} times what one core takes; a second task "
        "manager joins, and the policy uses it; several rescalings of one plan take turns. *Of 2x*: the "
        "gain over what perfect scaling on two whole cores gives. "
        "The second task manager has a core of this machine that broker and injector need, too: *by CPU* is the gain "
        "if throughput followed the CPU that the task managers had. *Down*: seconds after the join without a row at "
        "the end of the chain, in pauses of one second or more; *convergence*: by the source's rule, on windows of "
        f"{last['window_s']:g} s. On two cores neither more than one added task manager nor a chain whose tasks have a "
        "core each could be shown, nor a scale-in.",
        "",
        "| policy | rows/s before | after | gain | of 2x | by CPU | down, s | longest pause, s | convergence, s "
        "| CPU of tm1, tm2, broker, injector, % of a core | actions |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---|---|",
    ]
    for name in _policies(runs):
        cpu = ", ".join(
            shown(of(runs, name, "cpu", each)) for each in ("first", "second", stela_live.BROKER, stela_live.INJECTOR)
        )
        cells = [
            whole(of(runs, name, "before")),
            whole(of(runs, name, "after")),
            shown(_gain(runs, name)),
            shown(_percent(_gain(runs, name), 50.0), " %"),
            shown(_possible(runs, name)),
            *(shown(of(runs, name, key)) for key in ("down_s", "longest_pause_s", "convergence_s")),
            cpu,
        ]
        lines.append(f"| {name} | {' | '.join(cells)} | {_actions(last, name)} |")
    lines += ["", *_left_out(runs)]
    gain, storms = _gain(runs, stela_live.STELA), _gain(runs, stela_live.RE_DEAL)
    reached = _each(_ratio, gain, _possible(runs, stela_live.STELA))
    down, storms_down = (of(runs, name, "down_s") for name in (stela_live.STELA, stela_live.RE_DEAL))
    return "\n".join(lines), [
        Row(
            "gain of stela / of storm-re-deal",
            f"{OVER_STORM:g}",
            _each(_ratio, gain, storms),
            at_least=OVER_STORM,
            source_value=OVER_STORM,
            why="The second core is not whole, and a move uses it, too.",
        ),
        Row("gain of stela, share of 2x", "", _percent(gain, 50.0), " %"),
        Row("gain of stela / by CPU", "", reached),
        Row("down time, stela minus storm-re-deal", "", _each(lambda a, b: a - b, down, storms_down), " s"),
        *_checks(runs),
    ]


def _gain(runs: Runs, policy: str) -> Values:
    return _each(_ratio, of(runs, policy, "after"), of(runs, policy, "before"))


def _possible(runs: Runs, policy: str) -> Values:
    return [stela_live.possible(run["policies"][policy]) if policy in run["policies"] else None for run in runs]


def _stela_cells(runs: Runs) -> dict[str, str]:
    names = _policies(runs)
    settled = ", ".join(f"{name} {shown(of(runs, name, 'convergence_s'), ' s')}" for name in names)
    return {
        "throughput after / before a scale-out, linear": ", ".join(
            f"{name} {shown(_gain(runs, name))}" for name in names
        ),
        "convergence time against Storm's, linear": settled,
    }


# -- D-Storm -----------------------------------------------------------------------------------------------------------


def d_storm_section(runs: Runs) -> tuple[str, list[Row]]:
    """Text, table and rows."""
    last = runs[-1]
    lines = [
        "D-Storm (live)",
        f"A chain of four equal tasks on two task managers of a core each, at {d_storm_live.FULL:g} of what one core "
        f"takes and then at a quarter of that. *Between*: rows/s on streams whose ends are on different task managers, "
        "of those on all streams; every stream goes through the broker, wherever its ends are. *CPU per row*: of the "
        "task managers' processes for each row at the end of the chain, with what they use without rows. d-storm also "
        "runs tasks that it has placed side by side as one query; *unfused*: it does not. Windows of "
        f"{last['d_storm']['window_s']:g} s and {last['d_storm']['interval_s']:g} s between two rounds, instead of the "
        "source's 60 and 600 s. Nothing that two cores of one machine share can show the cost of a network, nor more "
        "than one task manager saved.",
        "",
        "| policy | load | rows/s | task managers up | used | between, rows/s | of streams' | CPU per row, us "
        "| broker's, us | down, s | actions |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---|",
    ]
    for name in _policies(runs):
        for stage in d_storm_live.STAGES:
            at = ("stages", stage)
            share = _each(_ratio, *(of(runs, name, *at, key) for key in ("between_rows_s", "streams_rows_s")))
            keys = ("rows_s", "up", "used", "between_rows_s")
            cells = [
                *(whole(of(runs, name, *at, key)) for key in keys),
                shown(_percent(share), " %"),
                *(whole(of(runs, name, *at, key)) for key in ("cpu_us", "broker_us")),
                shown(of(runs, name, *at, "down_s")),
            ]
            done = _actions(last, name) if stage == d_storm_live.STAGES[-1] else ""
            lines.append(f"| {name} | {stage} | {' | '.join(cells)} | {done} |")
    lines += ["", *_left_out(runs)]
    used, up = (of(runs, d_storm_live.D_STORM, "stages", "quarter", key) for key in ("used", "up"))
    return "\n".join(lines), [
        Row("task managers used at a quarter of the load", "", used, at_most=1, of="d-storm"),
        Row("task managers up at a quarter of the load", "", up, at_most=1, of="d-storm"),
        Row(
            "rows/s between task managers against round-robin, full load",
            "-63.9 %",
            _traffic(runs, "full"),
            " %",
            at_most=LESS_TRAFFIC,
        ),
        Row(
            "rows/s between task managers against round-robin, a quarter of the load",
            "",
            _traffic(runs, "quarter"),
            " %",
            at_most=LESS_TRAFFIC,
        ),
        *(
            Row(f"CPU per row against {words}, {load}", "", _against(runs, stage, "cpu_us", other), " %", at_most=most)
            for other, words, most in (
                (d_storm_live.ROUND_ROBIN, "round-robin", None),
                (d_storm_live.UNFUSED, "d-storm without fusing", 0.0),
            )
            for stage, load in (("full", "full load"), ("quarter", "a quarter of the load"))
        ),
        *_checks(runs),
    ]


def _traffic(runs: Runs, stage: str) -> Values:
    return _against(runs, stage, "between_rows_s")


def _against(runs: Runs, stage: str, key: str, other: str = d_storm_live.ROUND_ROBIN) -> Values:
    """A figure of D-Storm against another policy's, relative, %."""
    pair = (of(runs, name, "stages", stage, key) for name in (d_storm_live.D_STORM, other))
    return _each(lambda mine, others: 100 * (_ratio(mine, others) - 1), *pair)


def _d_storm_cells(runs: Runs) -> dict[str, str]:
    name = d_storm_live.D_STORM
    left = _each(_ratio, *(of(runs, name, "stages", stage, "used") for stage in ("quarter", "full")))
    return {
        "cost left when the load falls to a quarter, linear": f"{shown(_percent(left), ' %')} of the task managers",
        "traffic between nodes against round-robin, linear": f"{shown(_traffic(runs, 'full'), ' %')} at one load",
        "time of a scheduling round": f"{shown(of(runs, name, 'policy_ms'), ' ms')} for four tasks",
    }


# -- all of them -------------------------------------------------------------------------------------------------------

#: Of each live part: the table of claims that it is for, and its figures by the beginning of a claim.
_CELLS: Mapping[str, tuple[str, Callable[[Runs], dict[str, str]]]] = {
    "henge-live": ("Henge", _henge_cells),
    "stela-live": ("Stela", _stela_cells),
    "d-storm-live": ("D-Storm", _d_storm_cells),
}


def live_cells(parts: Mapping[str, Runs]) -> dict[str, dict[str, str]]:
    """By system, the live figures for its table of claims, by the beginning of the claim; none of policies that were
    left out. `parts`: runs by part."""
    found = {name: cells(parts[part]) for part, (name, cells) in _CELLS.items() if part in parts}
    return {name: {k: v for k, v in each.items() if not v.startswith("never")} for name, each in found.items()}


def _policies(runs: Runs) -> list[str]:
    return [*dict.fromkeys(name for run in runs for name in run["policies"])]


def _percent(values: Values, times: float = 100.0) -> Values:
    return [None if value is None else times * value for value in values]


def _actions(run: Figures, policy: str) -> str:
    """What a policy did, in words."""
    said = []
    for each in run["policies"].get(policy, {}).get("actions", ()):
        match each["kind"]:
            case "scale":
                said.append(f"{each['task']} {each['from']} to {each['to']}")
            case "move":
                said.append(f"{each['instance']} to {each['to']}")
            case "task-manager-removed":
                said.append(f"{each['task_manager']} leaves")
            case "fuse" | "unfuse" as kind:
                said.append(f"{each['from']} and {each['to']} {'are one' if kind == 'fuse' else 'part'}")
    return ", ".join(said) or "none"


def _left_out(runs: Runs) -> Iterator[str]:
    for number, run in enumerate(runs, 1):
        for name, why in run["left_out"].items():
            yield f"Left out of run {number}: {name} ({why})."
            yield ""
        for name, figures in run["policies"].items():
            for check in figures["checks"]:
                if not check["passed"]:
                    yield f"Failed in run {number} under {name}: *{check['name']}* ({check['detail']})."
                    yield ""


def _checks(runs: Runs) -> Iterator[Row]:
    """By policy, the checks that hold; all must."""
    for name in _policies(runs):
        known = [run["policies"][name]["checks"] for run in runs if name in run["policies"]]
        held: Values = [float(sum(check["passed"] for check in checks)) for checks in known]
        yield Row("checks of books and leftovers that hold", "", held, at_least=len(known[0]), of=name)
