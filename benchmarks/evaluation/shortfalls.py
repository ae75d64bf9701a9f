"""The last section of EVALUATION.md: each figure that falls short, and why. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from benchmarks.evaluation.row import Row


def shortfalls(sections: Iterable[tuple[str, Sequence[Row]]], missing: Sequence[str]) -> str:
    """One paragraph per section (title, rows) and cause, over the rows that fall short; then the parts not run."""
    lines = ["## What falls short", ""]
    for title, rows in sections:
        by_cause: dict[str, list[Row]] = {}
        for row in rows:
            if row.short:
                by_cause.setdefault(row.why, []).append(row)
        for why, group in by_cause.items():
            lines += [f"**{title}.** {_figures(group)}. {why}".rstrip(), ""]
    lines += [f"- {part} was not run." for part in missing]
    return "\n".join(lines if len(lines) > 2 else [*lines, "Nothing of what was run."]).rstrip()


def _figures(rows: Sequence[Row]) -> str:
    """Value and goal of each measure: its subjects together, equal values once."""
    same: dict[tuple[str, str], dict[str, list[str]]] = {}
    for row in rows:
        same.setdefault((row.what, row.limit), {}).setdefault(row.shown(), []).append(row.of)
    said = []
    for (what, limit), by_value in same.items():
        values = [f"{value} ({', '.join(of)})" if any(of) else value for value, of in by_value.items()]
        said.append(f"{what[0].upper()}{what[1:]}: {', '.join(values)}; goal: {limit or 'a value'}")
    return ". ".join(said)
