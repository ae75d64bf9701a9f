"""The report of a run: one self-contained HTML file, without network access or scripts."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import altair as alt
import pandas as pd

from qod_magics.controller.record import Records, instant
from qod_magics.controller.status import duration
from qod_magics.core.runtime import MISFITS, REPEATED
from qod_magics.recordings.reading import seconds
from qod_magics.recordings.verdict import Aligned, accuracies, aligned, lags, loads
from qod_magics.reports import charts, tables

if TYPE_CHECKING:
    from qod_magics.recordings.criteria import Criterion
    from qod_magics.recordings.verdict import Comparison

STYLE = Path(__file__).with_name("page.css")
#: From a chart to its SVG.
Draw: TypeAlias = Callable[[alt.TopLevelMixin], str]


@dataclass(frozen=True, slots=True)
class _Figure:
    title: str
    text: str  #: how to read it
    draw: Callable[[Records], alt.TopLevelMixin]
    of: Callable[[Records], pd.DataFrame] | None = None  #: without rows of these, it is left out


FIGURES = (
    _Figure(
        "CPU of the task managers",
        "CPU used on each task manager's cores, stacked by task; grey is everything else that ran on them. "
        "The controller plans with the capacity (dashed) minus the grey.",
        charts.cpu_chart,
    ),
    _Figure(
        "Accuracy of the queries",
        "The share of the application's input that reached each query: as measured from row counts over each cycle, "
        "as planned, and the minimum that the user asked for.",
        charts.accuracy_chart,
    ),
    _Figure(
        "Latency of the queries",
        "The time from a row's arrival at the broker until it is in the query's result, which 95 % of the rows in the "
        "last results did not exceed, and the target that the user set (dashed).",
        charts.latency_chart,
        tables.latency,
    ),
    _Figure(
        "Throughput of the sources",
        "Rows that arrive at the broker, rows that the source read, and rows that it processed. The difference between "
        "read and processed was dropped right after the read; read below arriving means a growing lag.",
        charts.throughput_chart,
    ),
    _Figure(
        "Lag of the sources and streams",
        "Rows at the broker that are not yet read. Once a change has settled, the lag should stay below two controller "
        "periods of input (dashed).",
        charts.lag_chart,
    ),
    _Figure(
        "Rows dropped",
        "Every row that a load shedder dropped since the start, by the source or stream where it was dropped.",
        charts.dropped_chart,
    ),
)


def write_report(
    path: str | os.PathLike[str],
    run: Records,
    off: Records | None,
    verdict: Iterable[Criterion],
    title: str = "Run report",
) -> None:
    """Write the report of the recording `run` to `path`; `off` is the same load with the controller off, if recorded.

    `verdict` is the result of `qod_magics.recordings.verdict.verdict`. Raises OSError when the file can't be written,
    ValueError for a recording without lines.
    """
    Path(path).write_text(report(run, off, verdict, title), encoding="utf-8")


def report(
    run: Records,
    off: Records | None,
    verdict: Iterable[Criterion],
    title: str = "Run report",
    svg: Draw = charts.svg,
) -> str:
    """Return the HTML text of the report, whose charts `svg` draws."""
    if not run:
        raise ValueError("the recording has no lines: nothing to report")
    drawn = [figure for figure in FIGURES if figure.of is None or len(figure.of(run))]
    figures = [
        _figure(number, figure.title, figure.text, figure.draw(run), svg) for number, figure in enumerate(drawn, 1)
    ]
    if off is not None:
        figures.append(_comparison(len(figures) + 1, run, off, svg))
    body = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="lead">{_summary(run)}</p>',
        _verdict(tuple(verdict)),
        *figures,
        _latencies(run),
        _moves(run),
        _books(run),
    ]
    return _page(title, "\n".join(body))


def comparison_report(live: Records, simulated: Records, found: Comparison, title: str) -> str:
    """Return the HTML text of the comparison of a live run with a simulated one, which
    `qod_magics.recordings.verdict.compared` made."""
    one, other = aligned(live), aligned(simulated)
    start = one.at[0]

    def both(series: Callable[[Aligned, str], Sequence[tuple[float, float]]], name: str) -> dict[str, charts.Series]:
        runs = {"live": one, "simulated": other}
        return {kind: [(t - start, value) for t, value in series(run, name)] for kind, run in runs.items()}

    drawn = (
        ("Accuracy of the queries", "accuracy", accuracies, tuple(found.accuracy), 1.05),
        ("CPU of the task managers", "% of one core", loads, tuple(found.cpu), None),
        ("Lag of the sources and streams", "rows", lags, tables.edges(one.records), None),
    )
    figures = [
        _figure(
            number,
            name,
            "The live run as it was recorded, and the simulated one, from the start of the first phase. "
            "Events are those of the live run.",
            charts.overlay_chart(one.records, {each: both(series, each) for each in names}, unit, top),
        )
        for number, (name, unit, series, names, top) in enumerate(drawn, 1)
        if names
    ]
    moved = pd.DataFrame(
        [(kind, move) for kind, moves in zip(("live", "simulated"), found.moves, strict=True) for move in moves],
        columns=["run", "phase and move"],
    )
    table = _table_section("Moves", "Each run's moves, by the phase in which they began.", moved, "")
    return _page(title, "\n".join([f"<h1>{escape(title)}</h1>", _verdict(found.criteria), *figures, table]))


def _page(title: str, body: str) -> str:
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{STYLE.read_text(encoding='utf-8')}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def _summary(run: Records) -> str:
    length, bands = seconds(run)[-1], tables.phase_bands(run)
    managers = dict.fromkeys(manager.id for record in run for manager in record.snapshot.task_managers)
    text = f"{len(run):,} cycles in {length:,.0f} s from {instant(run[0].at)}, on {', '.join(map(str, managers))}"
    if len(bands):
        text += f"; phases: {', '.join(bands['phase'])}"
    return escape(text + ".")


def _verdict(criteria: Sequence[Criterion]) -> str:
    passed = sum(criterion.passed for criterion in criteria)
    rows = "".join(
        f'<tr class="{"pass" if criterion.passed else "fail"}"><td>{"PASS" if criterion.passed else "FAIL"}</td>'
        f"<th scope=row>{escape(criterion.name)}</th><td>{escape(criterion.detail)}</td></tr>\n"
        for criterion in criteria
    )
    return (
        f"<section>\n<h2>Verdict: {passed} of {len(criteria)} criteria pass</h2>\n"
        f'<table class="verdict">\n<thead><tr><th></th><th>criterion</th><th>found</th></tr></thead>\n'
        f"<tbody>\n{rows}</tbody>\n</table>\n</section>"
    )


def _figure(number: int, title: str, text: str, chart: alt.TopLevelMixin, svg: Draw = charts.svg) -> str:
    return (
        f"<section>\n<h2>{escape(title)}</h2>\n<p>{escape(text)}</p>\n"
        f'<figure role="img" aria-label="{escape(title)}">{_inline(svg(chart), number)}</figure>\n</section>'
    )


def _comparison(number: int, run: Records, off: Records, svg: Draw) -> str:
    title = "With and without the controller"
    if tables.comparison(run, off)["controller"].nunique() < 2:
        text = "Nothing to compare: one of the recordings has no phase “overload”."
        return f"<section>\n<h2>{title}</h2>\n<p>{text}</p>\n</section>"
    text = (
        "The lag of all sources and streams together under the same overload, with the controller on and off. "
        "Spark alone drops nothing and falls behind."
    )
    return _figure(number, title, text, charts.comparison_chart(run, off), svg)


def _moves(run: Records) -> str:
    moves = tables.moves(run)
    if moves.empty:
        return "<section>\n<h2>Moves</h2>\n<p>No task instance was moved.</p>\n</section>"
    shown = pd.DataFrame(
        {
            "at (s)": [f"{t:,.0f}" for t in moves["t"]],
            "instance": moves["instance"],
            "from": moves["from"],
            "to": moves["to"],
            "took (s)": ["" if pd.isna(took) else f"{took:.1f}" for took in moves["took_s"]],
            "why": moves["why"],
        }
    )
    return _table_section(
        "Moves", "Task instances stopped on one task manager and started on another.", shown, "at took"
    )


def _latencies(run: Records) -> str:
    found = tables.latencies(run)
    if found.empty:
        return ""
    shown = found.rename(columns={"missed": "target missed", "oldest": "oldest row"})
    for column in ("p50", "p95", "target", "oldest row"):
        shown[column] = [duration(None if pd.isna(value) else value) for value in shown[column]]
    shown["target missed"] = [
        "" if pd.isna(value) else f"{value:.0%} of the cycles" for value in shown["target missed"]
    ]
    text = (
        "From a row's arrival to its result: medians over the cycles of the 50th and the 95th percentile, the last "
        "target of the latter, and the highest age of a row that was not in a result yet."
    )
    return _table_section("Latencies", text, shown, "p50 p95 target oldest")


def _books(run: Records) -> str:
    books = tables.books(run)
    if books.empty:
        return ""
    text = (
        "Row counts since the start, by source and stream: arrived = processed + dropped + waiting + unreported. "
        "Unreported are rows whose counts were lost with a killed task manager, and rows deleted before they were "
        "read. Among those processed are values that are not of their schema (malformed), records without a value "
        "(tombstones), and rows with a time outside of the years 1 to 9999 (implausible). Rows that were read twice "
        "(read again), and rows that are in a stream twice (sent again), are of batches that did not end."
    )
    late = next((record.measured.late for record in reversed(run) if record.measured.late), {})
    if late:
        told = ", ".join(f"{rows:,} of {task}" for task, rows in late.items())
        text += f" Behind a watermark came at least {told}: these rows are in no result."
    numbers = ["arrived", "processed", "dropped", "waiting", "unreported"]
    shown = books.assign(balance=books["arrived"] - books[numbers[1:]].sum(axis=1))
    kinds = (*MISFITS, *REPEATED)
    others = [kind for kind in kinds if kind == "malformed" or shown[kind].any()]
    shown = shown.drop(columns=[kind for kind in kinds if kind not in others])
    for column in (*numbers, "balance", *others):
        shown[column] = [f"{value:,.0f}" for value in shown[column]]
    shown["edge"] = [charts.arrow(str(edge)) for edge in shown["edge"]]
    shown = shown.rename(columns={"edge": "source or stream", **{kind: kind.replace("_", " ") for kind in REPEATED}})
    return _table_section("Rows in, rows out", text, shown, " ".join((*numbers, "balance", *MISFITS, "read sent")))


def _table_section(title: str, text: str, table: pd.DataFrame, numeric: str) -> str:
    """Return a titled table; columns whose first word is in `numeric` are aligned as numbers."""
    kinds = ["number" if column.split(" ")[0] in numeric.split(" ") else "text" for column in table.columns]
    head = "".join(
        f'<th scope="col" class="{kind}">{escape(column)}</th>'
        for kind, column in zip(kinds, table.columns, strict=True)
    )
    rows = "".join(
        "<tr>"
        + "".join(f'<td class="{kind}">{_cell(value)}</td>' for kind, value in zip(kinds, row, strict=True))
        + "</tr>\n"
        for row in table.itertuples(index=False)
    )
    return (
        f"<section>\n<h2>{escape(title)}</h2>\n<p>{escape(text)}</p>\n<table>\n<thead><tr>{head}</tr></thead>\n"
        f"<tbody>\n{rows}</tbody>\n</table>\n</section>"
    )


def _cell(value: Any) -> str:
    return "" if value is None else escape(str(value))


def _inline(svg: str, number: int) -> str:
    """Return the SVG for embedding in a page with others: its ids are made unique."""
    start = svg.index("<svg")
    svg = re.sub(r'\bid="([^"]+)"', rf'id="figure{number}-\1"', svg[start:])
    svg = re.sub(r'url\((["\']?)#', rf"url(\1#figure{number}-", svg)
    return re.sub(r'((?:xlink:)?href)="#', rf'\1="#figure{number}-', svg)
