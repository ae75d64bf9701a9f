"""EVALUATION.md and the tables beside the figures, written from the stored figures alone."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import Any

from benchmarks.evaluation import literature
from benchmarks.evaluation.kept import Figures
from benchmarks.evaluation.literature import COMMAND, SECTIONS
from benchmarks.evaluation.row import Row
from benchmarks.evaluation.section import alike, shown

#: Charts that the document shows, with what can be seen there.
CHARTS: Mapping[str, str] = {
    "against-plain-age": "Median age of rows in results; beyond 1x, plain Spark restarts after each load.",
    "engines-compared": "Scenario 4: rows that wait and their age, by engine.",
    "goodput-live-rows": "Rows/s processed by two equal queries, and by the higher one alone.",
    "scenario1-accuracy": "Scenario 1: accuracies, planned ones, and minimums.",
    "scenario2-accuracy": "Scenario 2: accuracy by priority.",
}


def write(results: Path, path: Path) -> None:
    """Write the document from the JSON files in `results`, and a table for each part beside them."""
    found = stored(results)
    for part, section in SECTIONS.items():
        if part in found:
            _write_table(results / f"{part}.csv", section.table(found[part]["runs"]))
    _write_table(results / "figures.csv", list(_figures(found)))
    _write_table(results / "live-systems.csv", list(literature.table(found)))
    where = results.relative_to(path.parent) if results.is_relative_to(path.parent) else results
    path.write_text(text(found, where), "utf-8")


def stored(results: Path) -> dict[str, Figures]:
    """Return the stored figures by part."""
    return {
        part: json.loads(file.read_text("utf-8")) for part in SECTIONS if (file := results / f"{part}.json").exists()
    }


def text(found: Mapping[str, Figures], where: Path) -> str:
    """Return the document. `where`: the directory of charts and tables, as links name it."""
    rows = {part: SECTIONS[part].rows(kept["runs"]) for part, kept in found.items() if part not in literature.PARTS}
    charts = [part for part in CHARTS if part.rpartition("-")[0] in found]
    return "\n".join(
        [
            _HEAD,
            *(_summary(part, found[part], each, where) for part, each in rows.items()),
            "",
            _SYSTEMS.format(where=where, minutes=_minutes(found)),
            *literature.lines(found, where),
            "",
            "## Charts",
            "",
            *(f"![{name.replace('-', ' ')}]({where}/{name}.svg)\n\n{CHARTS[name]}\n" for name in charts),
            "## What falls short",
            "",
            *_shortfalls(rows),
            *_missing(found),
            "",
            _REPEAT.format(where=where, hours=_hours(found)),
        ]
    )


_HEAD = """# Evaluation

The program that measures writes this page. Figures are medians of runs, with their range, or the range of several
subjects (recipes, loads, policies). *Goals*: how many measures reach theirs. *Scale*: share of the full length.
Two virtual cores run everything: loads are multiples of what a core carries.

## Summary

| part | what was measured | main figures | goals | runs |
|---|---|---|---|---|"""

_SYSTEMS = f"""## The systems of the literature, live

`{COMMAND} live-systems` runs them, at most {{minutes}} minutes each ([CSV]({{where}}/live-systems.csv)).
"""

_REPEAT = f"""## How to repeat it

```sh
{COMMAND}               # everything: {{hours:.1f}} hours on two idle cores
{COMMAND} costs --more --repeats 2   # two more runs of one part
{COMMAND} --only-write               # write this page from the stored figures
```

`{{where}}/PART.json` has a part's figures with machine, time and commit, `figures.csv` every measure with its goal.
[Benchmarks](benchmarks/README.md) names other scripts.
"""


def _summary(part: str, kept: Figures, rows: Sequence[Row], where: Path) -> str:
    section = SECTIONS[part]
    groups = list(alike(rows))
    main = [group for begin in section.shown for group in groups if group[0].what.startswith(begin)]
    said = "; ".join(f"{group[0].what}: {_values(group)}" for group in main)
    judged = [group for group in groups if any(row.limit for row in group)]
    held = sum(not any(row.short for row in group) for group in judged)
    goals = f"{held} of {len(judged)}" if judged else ""
    return f"| [{section.title}]({where}/{part}.csv) | {section.what} | {said} | {goals} | {_when(kept)} |"


def _values(rows: Sequence[Row]) -> str:
    """Write the range of several subjects; one by one, where their units differ."""
    if len({row.unit for row in rows}) > 1:
        return ", ".join(f"{row.of} {row.shown()}" for row in rows)
    return shown(rows)


def _hours(found: Mapping[str, Figures]) -> float:
    """Hours that one run of each part took; of parts whose runs have different recipes, all of them."""
    return sum(max(run.get("took_s", 0.0) for run in kept["runs"]) for kept in found.values()) / 3600


def _minutes(found: Mapping[str, Figures]) -> int:
    """Minutes that the longest run of a system took."""
    took = [run.get("took_s", 0.0) for part, kept in found.items() if part in literature.PARTS for run in kept["runs"]]
    return ceil(max(took, default=0.0) / 60)


def _when(kept: Figures) -> str:
    """Number and last day of the runs, and their scale unless they are of full length."""
    runs, scale = kept["runs"], "" if kept["scale"] == 1 else f"; scale {kept['scale']:g}"
    return f"{len(runs)}, {runs[-1]['at'][:10]}{scale}"


def _shortfalls(rows: Mapping[str, Sequence[Row]]) -> Iterator[str]:
    yield "| part | measure | got | goal | why |"
    yield "|---|---|---|---|---|"
    for part, each in rows.items():
        for group in alike(each):
            short = [row for row in group if row.short and not literature.shows(part, row)]
            if short:
                names = ", ".join(row.of for row in short if row.of)
                what = f"{short[0].what} ({names})" if names else short[0].what
                title = SECTIONS[part].title
                yield f"| {title} | {what} | {shown(short)} | {short[0].limit} | {short[0].why} |"


def _missing(found: Mapping[str, Figures]) -> Iterator[str]:
    """Yield what was not run, and what was left out of a run, with the reason."""
    for part in SECTIONS:
        if part not in found:
            yield f"\nNot run: {part}."
            continue
        for run in found[part]["runs"]:
            for name, why in run.get("left_out", {}).items():
                yield f"\nLeft out of {part}: {name} ({why})."


def _figures(found: Mapping[str, Figures]) -> Iterator[dict[str, Any]]:
    """Yield each measure of each part as a line of the table of all."""
    for part, kept in found.items():
        for row in SECTIONS[part].rows(kept["runs"]):
            known = [value for value in row.values if value is not None]
            yield {
                "part": part,
                "measure": row.what,
                "of": row.of,
                "reference": row.source,
                "median": None if row.middle is None else f"{row.middle:.4g}",
                "least": f"{min(known):.4g}" if known else None,
                "most": f"{max(known):.4g}" if known else None,
                "unit": row.unit.strip(),
                "goal": row.limit,
                "verdict": ("short" if row.short else "holds") if row.limit else "",
            }


def _write_table(path: Path, table: Sequence[Mapping[str, Any]]) -> None:
    columns = list(dict.fromkeys(key for line in table for key in line))
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(table)
