"""The first table of EVALUATION.md: one line for each measure that has a goal. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from benchmarks.evaluation.row import Row


def summary(sections: Iterable[tuple[str, Sequence[Row]]]) -> str:
    """A table of the rows with a goal, by section (title, rows).

    A measure of several subjects (recipes, policies, engines) takes one line: the range of their medians, and how many
    hold.
    """
    lines = [
        "## Summary",
        "",
        "Measures with a goal; the sections have the details, charts and runs.",
        "",
        "| scenario | measure | reference | ours | goal | verdict |",
        "|---|---|---|---|---|---|",
    ]
    for title, rows in sections:
        alike: dict[tuple[str, str, str], list[Row]] = {}
        for row in rows:
            if row.limit:
                alike.setdefault((row.what, row.source, row.limit), []).append(row)
        for (what, source, limit), group in alike.items():
            lines.append(f"| {title} | {what} | {source} | {_shown(group)} | {limit} | {_verdict(group)} |")
    return "\n".join(lines)


def _shown(rows: Sequence[Row]) -> str:
    """The median of one subject with its range, or the range of several medians."""
    if len(rows) == 1:
        return rows[0].shown()
    known = sorted(row.middle for row in rows if row.middle is not None)
    never = "; for some never" if len(known) < len(rows) else ""
    ends = dict.fromkeys(f"{end:.3g}" for end in (known[0], known[-1])) if known else ["never"]
    return f"{' to '.join(ends)}{rows[0].unit if known else ''}{never if known else ''}"


def _verdict(rows: Sequence[Row]) -> str:
    short = [row for row in rows if row.short]
    if not short:
        return "holds"
    if len(rows) == 1:
        return "short"
    if len(short) == len(rows):
        return f"short in all {len(rows)}"
    return f"{len(rows) - len(short)} of {len(rows)} hold; short: {', '.join(row.of for row in short)}"
