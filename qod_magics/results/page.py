"""A result in full, as a page shows it and as text: rows, accuracy, and what shedding does to them. Pure."""

from __future__ import annotations

from typing import Any

from qod_magics.results.columns import Kind
from qod_magics.results.drawing import Drawing, drawing_of
from qod_magics.results.layout import DEFAULT_ROWS, Layout, Wish
from qod_magics.results.result import Result
from qod_magics.results.text import cell, table

Page = dict[str, Any]  #: what a view shows, as JSON


def page_of(result: Result, layout: Layout, drawing: Drawing) -> Page:
    """What a view shows of a result.

    `form` is "table", "line" or "bar"; `x`, `y` and `group` are titles; `scale` of x is "time", "number" or "name";
    `groups` are the names of lines or colours, `columns` those of a table, with whether their cells stand to the right;
    `items` are the marks or rows by id, and `facts` lines of text.
    """
    kinds = {column.name: column.kind for column in result.columns}
    x = layout.x or ", ".join(layout.groups)
    return {
        "form": layout.form,
        "x": f"start of {x}" if kinds.get(x) is Kind.WINDOW else x,
        "y": layout.y,
        "group": ", ".join(layout.groups) if layout.x is not None else "",
        "scale": "name" if layout.form != "line" else "number" if kinds[x] is Kind.NUMBER else "time",
        "groups": list(drawing.groups),
        "columns": [[column.name, column.is_measure] for column in result.columns] if layout.form == "table" else [],
        "items": dict(drawing.items),
        "facts": facts(result, layout, drawing),
    }


def facts(result: Result, layout: Layout, drawing: Drawing) -> list[str]:
    """Lines of text under a result: its accuracy, what shedding does to the columns on show, and what is left out."""
    columns = [layout.y] if layout.y is not None else [column.name for column in result.columns]
    told = result.told(columns)
    notes = list(drawing.notes)
    if layout.latest is not None and drawing.rows:
        notes.insert(0, f"only the newest {layout.latest}: {_newest(result, layout, drawing)}")
    if result.unread and result.keys is not None:
        notes.append(f"{result.unread:,} older rows are not read")
    if result.keys is None and any(column.kind in (Kind.WINDOW, Kind.ESTIMATE) for column in result.columns):
        notes.append(
            "each update of a group is a row of its own here: its plan does not tell by which columns it groups"
        )
    return [str(result.accuracy), *([told] if told else []), *([f"shown: {'; '.join(notes)}"] if notes else [])]


def text_of(result: Result, wish: Wish) -> str:
    """A result as text, always as a table."""
    layout = Layout("table", rows=wish.rows or DEFAULT_ROWS["table"])
    drawing = drawing_of(result, layout)
    rows = table(result.columns, drawing.rows) if drawing.rows else "no rows yet"
    return "\n".join([f"{result.query}, read at {result.at:%H:%M:%S} UTC", rows, *facts(result, layout, drawing)])


def _newest(result: Result, layout: Layout, drawing: Drawing) -> str:
    kind = next(column.kind for column in result.columns if column.name == layout.latest)
    return cell(drawing.rows[-1].get(layout.latest or ""), kind)
