"""The section of EVALUATION.md on the intervals of estimates, from the figures alone. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

from benchmarks.evaluation.intervals import BANDS, KINDS, TURNS
from benchmarks.evaluation.kept import Figures
from benchmarks.evaluation.row import Row

NOMINAL = 95.0
#: How far from it coverage may be, points.
NEAR: Mapping[str, float] = {"count": 1.5, "sum": 1.5, "avg": 1.5, "ratio": 2.5, "median": 2.5, "p90": 2.5}
WIDER = 5.0  #: % more than with the true variance
FURTHER = list(TURNS)[-1]
MANY = list(BANDS)[-1]

#: Picks what `intervals.told` says of some groups from the figures of a kind.
Pick = Callable[[Figures], Figures]


def coverage_section(runs: Sequence[Figures]) -> tuple[str, list[Row]]:
    """Text and table."""
    coverage, width = [], []
    for kind in KINDS:
        found = [_of(run, kind)["all"] for run in runs]
        shares: list[float | None] = [_percent(each["covered"]) for each in found]
        ends = {"at_least": NOMINAL - NEAR[kind], "at_most": NOMINAL + NEAR[kind]}
        coverage.append(Row("coverage", "95 %", shares, " %", **ends, of=kind, why=_why_not_covered(runs, kind)))
        more: list[float | None] = [None if each["width"] is None else 100 * (each["width"] - 1) for each in found]
        what = "wider than with the true variance, median"
        width.append(Row(what, "0 %", more, " %", at_most=WIDER, of=kind, why=_why_wide(runs, kind)))
    return "\n".join([*_windows(runs), "", *_pairs(runs)]), [*coverage, *width, *_rows_of_pairs(runs)]


def _windows(runs: Sequence[Figures]) -> list[str]:
    last = runs[-1]["windows"]
    exact = [_of(run, kind)["exact"] for run in runs for kind in KINDS]
    right = all(each["covered"] in (1.0, None) and not each["open"] for each in exact)
    return [
        "Intervals of estimates (live)",
        f"{last['rows']:,} trips in {last['windows']} windows of four seconds, by 48 places. Of each group a query "
        "estimates the number of trips, the sum and the average of their amounts, the ratio of tips to amounts, median "
        "and 0.9-quantile of distances, with intervals of 95 %. Meanwhile the source's dial was set by hand to between "
        f"0.05 and 1, {last['turns']} times, whenever it was in a window. The truth is computed from the rows that "
        f"were sent. Of {_sum(runs, 'without_a_row')} of {_sum(runs, 'groups')} groups no row was kept: they are "
        f"missing. Of {_of(runs[-1], 'count')['exact']['figures']} no row could be dropped: they are left out, "
        f"{'all their figures are exact' if right else 'and not all of their figures are exact'}. Coverage, and in "
        "brackets the median of width / that of an interval with the true variance (Horvitz and Thompson):",
        "",
        f"| groups | intervals | {' | '.join(KINDS)} |",
        "|---|---:|" + "---|" * len(KINDS),
        _line("all", runs, lambda kind: kind["all"]),
        *(_line(f"dial {name}", runs, lambda kind, name=name: kind["turns"][name]) for name in TURNS),
        *(_line(f"{name} rows kept", runs, lambda kind, name=name: kind["kept"][name]) for name in BANDS),
    ]


def _pairs(runs: Sequence[Figures]) -> list[str]:
    found = runs[-1]["pairs"]
    lines = [
        f"Pairs of rows of two topics with the same user, at accuracy {found['accuracy']:g}: {found['users']:,} users "
        f"with one to five rows in each topic, in {found['rounds']} rounds of different users. Coverage is by round. "
        "Pairs that share a row are not kept independently of each other, so that intervals by row, which take them to "
        "be, are too narrow.",
        "",
        "| topics are shed | pairs | estimate | interval of 95 % | rounds that it covers | width / true |",
        "|---|---:|---:|---|---:|---:|",
    ]
    for way, name in (("by_key", "by user"), ("by_row", "row by row")):
        one = found[way]
        lines.append(
            f"| {name} | {found['true']:,} | {one['value']:,.0f} | {one['low']:,.0f} to {one['high']:,.0f} "
            f"| {_shown(_percent(one['covered']))} | {one['width']:.2f} |"
        )
    return lines


def _rows_of_pairs(runs: Sequence[Figures]) -> list[Row]:
    def covers(way: str) -> list[float | None]:
        return [float(run["pairs"][way]["covers"]) for run in runs]

    def rounds(way: str) -> list[float | None]:
        return [_percent(run["pairs"][way]["covered"]) for run in runs]

    return [
        Row("all pairs, shed by user: interval covers (1: yes)", "yes", covers("by_key"), at_least=1),
        Row("rounds of pairs covered, shed by user", "95 %", rounds("by_key"), " %", at_least=NOMINAL - 6.0),
        Row("rounds of pairs covered, shed row by row", "95 %", rounds("by_row"), " %"),
    ]


def _why_not_covered(runs: Sequence[Figures], kind: str) -> str:
    """What coverage is without the groups in which the dial was turned far, and what it is from many rows on."""
    further = _together(runs, kind, [lambda found: found["turns"][FURTHER]])
    others = _together(runs, kind, [lambda found, n=name: found["turns"][n] for name in TURNS if name != FURTHER])
    many = _together(runs, kind, [lambda found: found["kept"][MANY]])
    why = (
        f"{_shown(further)} where the dial was turned by more than a factor of 3 within the window, {_shown(others)} "
        f"elsewhere; {_shown(many)} with {MANY} rows kept. A few rows of a far lower accuracy than the others make up "
        "most of the variance, and where none of them was kept, the interval can't show it."
    )
    skewed = " Of values as skewed as amounts and distances, the rare large ones are often not among a few rows."
    return why if kind == "count" else why + skewed


def _why_wide(runs: Sequence[Figures], kind: str) -> str:
    by_rows = [_of(runs[-1], kind)["kept"][name]["width"] for name in BANDS]
    shown = ", ".join(
        f"{width:.2f} with {name}" for name, width in zip(BANDS, by_rows, strict=True) if width is not None
    )
    return (
        f"Width / that with the true variance, by rows kept: {shown}. An interval whose variance is estimated from few "
        "rows is wider, by Student's t; that of a ratio rests on fewer rows than were kept: their denominators differ."
    )


def _together(runs: Sequence[Figures], kind: str, picks: Sequence[Pick]) -> float | None:
    """The coverage of the groups of all these picks, %."""
    found = [pick(_of(run, kind)) for run in runs for pick in picks]
    number = sum(each["figures"] for each in found)
    return sum(each["figures"] * (each["covered"] or 0.0) for each in found) / number * 100.0 if number else None


def _line(name: str, runs: Sequence[Figures], pick: Pick) -> str:
    number = sum(pick(_of(run, KINDS[0]))["figures"] for run in runs)
    cells = []
    for kind in KINDS:
        widths = [width for run in runs if (width := pick(_of(run, kind))["width"]) is not None]
        width = f" ({fmean(widths):.2f})" if widths else ""
        cells.append(f"{_shown(_together(runs, kind, [pick]))}{width}")
    return f"| {name} | {number:,} | {' | '.join(cells)} |"


def _of(run: Figures, kind: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = run["windows"]["kinds"][kind]
    return found


def _sum(runs: Sequence[Figures], what: str) -> str:
    return f"{sum(run['windows'][what] for run in runs):,}"


def _percent(share: float | None) -> float | None:
    return None if share is None else 100.0 * share


def _shown(percent: float | None) -> str:
    return "-" if percent is None else f"{percent:.1f} %"
