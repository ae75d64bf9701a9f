"""Goals and tables of the systems that run in turns with their baselines on one cluster. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from benchmarks.evaluation.row import Row
from benchmarks.evaluation.section import Runs, Section, Table, Values, ratio

#: What the sources report; goals of ours are the least of each.
MEDIAN, TAIL, KEPT = 2.7, 3.2, 0.975  #: Cameo: one server, latency and throughput of the others
LESS_TAIL = -60.0  #: Dirigo: against scheduling by hashes, %
FASTER = 13.0  #: Nephele: buffers and chains against neither
MEMORY, ON_ONE = 1.45, 1.72  #: Getafix: Scarlett's memory / its own, in all and on the node that has most
ALIKE = 1.05  #: Getafix: time of a query / Scarlett's
#: What the project wants.
WITHIN, PERIODS, LIGHT_CPU, AS_FAST = 0.9, 2.0, 40.0, 0.9
NONE = "stream-economics-reactive"  #: keeps no copies

Turn = Mapping[str, Any]


def turns(runs: Runs, policy: str, **of: Any) -> Iterator[Turn]:
    """Yield the turns of a policy over all runs, in order; `of`: the values that a turn has, too."""
    for run in runs:
        for turn in run["turns"]:
            if turn["policy"] == policy and all(turn[name] == value for name, value in of.items()):
                yield turn


def column(found: Iterator[Turn], name: str, factor: float = 1.0) -> Values:
    """Return a figure of each turn."""
    return [None if turn[name] is None or turn[name] == "" else factor * float(turn[name]) for turn in found]


def beside(runs: Runs, name: str, one: str, other: str, **of: Any) -> Values:
    """Return a policy's figure over another one's, turn by turn of the same run and round."""
    found: Values = []
    for run in runs:
        pairs = ({turn["round"]: turn for turn in turns([run], policy, **of)} for policy in (one, other))
        ones, others = pairs
        for number in ones.keys() & others.keys():
            a, b = ones[number][name], others[number][name]
            found.append(None if a is None or b is None else ratio(a, b))
    return found


def _cameo(runs: Runs) -> list[Row]:
    ours = "cameo"
    return [
        Row("median without order / ours", f"{MEDIAN:g}", beside(runs, "p50_s", "orleans", ours), at_least=MEDIAN),
        Row("95th percentile / ours", f"{TAIL:g}", beside(runs, "p95_s", "orleans", ours), at_least=TAIL, of="orleans"),
        Row("95th percentile / ours", "", beside(runs, "p95_s", "fifo", ours), at_least=1.0, of="fifo"),
        Row("cycles within the target", "", column(turns(runs, ours), "within"), at_least=WITHIN),
        Row(
            "rows/s of heavy queries / without order",
            f"{KEPT:g}",
            beside(runs, "rows_per_s", ours, "orleans"),
            at_least=AS_FAST,
        ),
    ]


def _dirigo(runs: Runs) -> list[Row]:
    tail: Values = [
        None if each is None else 100.0 * (each - 1.0) for each in beside(runs, "p95_s", "dirigo", "orleans")
    ]
    static = column(turns(runs, "orleans"), "growth")
    exact = [float(turn["exact"] in (True, "True")) for run in runs for turn in run["turns"]]
    return [
        Row("tail against static", f"{LESS_TAIL:g} %", tail, " %", at_most=LESS_TAIL),
        Row("most backlog", "", column(turns(runs, "dirigo"), "periods"), " periods", at_most=PERIODS),
        Row("growth of static's backlog", "", static, " rows/s", at_least=1.0),
        Row("growth of ours", "", column(turns(runs, "dirigo"), "growth"), " rows/s"),
        Row("turns with exact counts", "", exact, at_least=1.0),
    ]


def _nephele(runs: Runs) -> list[Row]:
    fixed, flush, ours = "nephele-fixed-buffers", "nephele-flush", "nephele"
    light, chain = {"case": "light"}, {"case": "chain"}
    return [
        Row("latency of the chain, fixed / ours", "13", beside(runs, "p50_s", fixed, ours, **chain), at_least=FASTER),
        Row("its throughput / fixed", "1", beside(runs, "rows_per_s", ours, fixed, **chain), at_least=0.95),
        Row("CPU at light load", "", column(turns(runs, ours, **light), "cpu"), " %", at_most=LIGHT_CPU),
        Row("CPU without a target", "", column(turns(runs, flush, **light), "cpu"), " %"),
        Row("cycles within 5 s", "", column(turns(runs, ours, **light), "within"), at_least=WITHIN),
    ]


def _getafix(runs: Runs) -> list[Row]:
    everywhere, ours = "getafix-everywhere", "getafix"
    return [
        Row("memory everywhere / ours", f"{MEMORY:g}", beside(runs, "mb", everywhere, ours), at_least=MEMORY),
        Row("on one / ours", f"{ON_ONE:g}", beside(runs, "most_mb", everywhere, ours), at_least=ON_ONE),
        Row("time of a query / everywhere", "1", beside(runs, "median_s", ours, everywhere), at_most=ALIKE),
        Row("time of a query / without copies", "", beside(runs, "median_s", ours, NONE)),
    ]


def _turns(runs: Runs) -> Table:
    """Return all turns, numbered by run."""
    return [{"run": number + 1, **turn} for number, run in enumerate(runs) for turn in run["turns"]]


def _section(title: str, what: str, rows: Callable[[Runs], list[Row]]) -> Section:
    return Section(title, what, rows, _turns, ())


SECTIONS: Mapping[str, Section] = {
    "cameo-live": _section("Cameo", "two queries with a target of 2 s beside three heavy ones on a core", _cameo),
    "dirigo-live": _section("Dirigo", "a key with 60 % of the rows, on two task managers", _dirigo),
    "nephele-live": _section("Nephele Streaming", "two light queries; a chain of four", _nephele),
    "getafix-live": _section("Getafix", "queries over recent slices of results, on two task managers", _getafix),
}

__all__ = ["SECTIONS", "beside", "turns"]
