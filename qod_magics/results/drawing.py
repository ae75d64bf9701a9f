"""A result as it is shown: marks of lines and bars or rows of a table, as a page and as text. Pure.

`drawing_of` chooses what is drawn, each mark or row under its own id; `page_of` and `text_of` add what shedding does to
it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from qod_magics.errors import UsageProblem, nearest
from qod_magics.results.result import (
    Column,
    Kind,
    Result,
    Row,
    cell,
    height,
    key_of,
    measured,
    milliseconds,
    moment,
    table,
)

# --- Layout -----------------------------------------------------------------------------------------------------------

Form = Literal["table", "line", "bar"]
FORMS: tuple[Form, ...] = get_args(Form)
#: Windows of a line, groups of bars, rows of a table, unless another number is asked for.
DEFAULT_ROWS: dict[Form, int] = {"line": 60, "bar": 30, "table": 20}
MOST_ROWS = 500


@dataclass(frozen=True, slots=True)
class Layout:
    """What is drawn of a result.

    At any given time `y` is None iff `form` is "table"; a line has an `x`.
    """

    form: Form
    x: str | None = None  #: of bars None if all groups together name a bar
    y: str | None = None
    groups: tuple[str, ...] = ()  #: columns whose values name a line, or a bar beside others
    latest: str | None = None  #: the column of times of which only the newest is drawn
    rows: int = DEFAULT_ROWS["table"]  #: how many windows, bars or rows


@dataclass(frozen=True, slots=True)
class Wish:
    """What a user asks of a layout; None: what suits the columns."""

    kind: Form | None = None
    x: str | None = None
    y: str | None = None
    rows: int | None = None


#: What suits the columns.
ANY = Wish()


def layout_of(columns: Sequence[Column], keys: Sequence[str] | None, wish: Wish = ANY) -> Layout:
    """Return the layout of a result: a line over windows or times among its keys, or else bars by key; a table if it
    has no keys, or nothing to measure.

    Args:
        columns: of the result.
        keys: the columns by whose values a row replaces an earlier one; None: each row stands for itself.
        wish: what the user asks for.

    Raises:
        UsageProblem: there is no such column, or it can't be drawn so; the number of rows is out of range.

    """
    named = {column.name: column for column in columns}
    _check_wish(wish, named)
    form = wish.kind or _form(named, keys, wish)
    rows = wish.rows or DEFAULT_ROWS[form]
    if form == "table":
        if wish.x or wish.y:
            raise UsageProblem(
                "a table has all columns: leave out --x and --y, or take --kind line or bar", rule="all columns"
            )
        return Layout("table", rows=rows)
    y = _y(columns, keys, wish)
    if y is None:
        raise UsageProblem(
            f"the result has no column of numbers for --kind {form}: it has {', '.join(named)}",
            rule="a column of numbers",
        )
    times = [key for key in keys or () if named[key].is_time]
    x = _x_of_line(columns, named, times, wish) if form == "line" else wish.x
    if x == y:
        raise UsageProblem(f"--x and --y are both {x!r}: take two columns", name=x, rule="two columns")
    latest = next((time for time in times if time != x), None)
    groups = tuple(key for key in keys or () if key not in (x, latest, y))
    if form == "bar" and x is None and not groups:  # all that tells them apart is the time
        x, latest = latest, None
        if x is None:
            raise UsageProblem(f"nothing names the bars of {y!r}: name a column by --x", name=y, rule="named bars")
    return Layout(form, x, y, groups, latest, rows)


def _check_wish(wish: Wish, named: Mapping[str, Column]) -> None:
    for option, name in (("--x", wish.x), ("--y", wish.y)):
        if name is not None and name not in named:
            raise UsageProblem(f"{option} {name}: the result has no such column.{nearest(name, named)}", rule="exists")
    if wish.kind is not None and wish.kind not in FORMS:
        raise UsageProblem(
            f"there is no kind {wish.kind!r} of chart.{nearest(wish.kind, FORMS)}", name=wish.kind, rule="exists"
        )
    if wish.rows is not None and not 1 <= wish.rows <= MOST_ROWS:
        raise UsageProblem(f"--rows {wish.rows}: take a number from 1 to {MOST_ROWS}", value=wish.rows, rule="in range")


def _x_of_line(columns: Sequence[Column], named: Mapping[str, Column], times: Sequence[str], wish: Wish) -> str:
    """Return the column along which a line goes: the wish, or else the first time, of the keys before others."""
    x = wish.x or next(iter(times), None) or next((c.name for c in columns if c.is_time), None)
    if x is None:
        raise UsageProblem(
            "the result has no column of windows or times for a line: take --kind bar, or name --x",
            rule="a column of times",
        )
    if not named[x].is_time and named[x].kind is not Kind.NUMBER:
        raise UsageProblem(
            f"--x {x}: a line needs windows, times or numbers there; take --kind bar", name=x, rule="times or numbers"
        )
    return x


def _form(named: dict[str, Column], keys: Sequence[str] | None, wish: Wish) -> Form:
    columns = tuple(named.values())
    if wish.x is not None:
        return "line" if named[wish.x].is_time else "bar"
    if not keys:
        return "line" if wish.y is not None and any(column.is_time for column in columns) else "table"
    if _y(columns, keys, wish) is None:
        return "table"
    return "line" if any(named[key].is_time for key in keys) else "bar"


def _y(columns: Sequence[Column], keys: Sequence[str] | None, wish: Wish) -> str | None:
    """Return the first estimate, else the first number outside of the key."""
    if wish.y is not None:
        column = next(column for column in columns if column.name == wish.y)
        if not column.is_measure:
            raise UsageProblem(f"--y {wish.y}: its values are no numbers", name=wish.y, rule="numbers")
        return wish.y
    measures = [column for column in columns if column.is_measure and column.name not in (*(keys or ()), wish.x)]
    return next((column.name for column in sorted(measures, key=lambda column: column.kind != Kind.ESTIMATE)), None)


#: Distinguishable lines or colours, at most.
MOST_GROUPS = 8

#: One mark or row, as JSON. A point or bar: x (milliseconds, a number or a name), name (of x, in words), group, value,
#: low, high, order. A row of a table: cells, order.
Item = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Drawing:
    """What is on show of a result."""

    items: Mapping[str, Item]
    rows: tuple[Row, ...]  #: from which they are made, in their order
    groups: tuple[str, ...] = ()  #: names of lines or colours
    notes: tuple[str, ...] = ()  #: what is left out, in words


@dataclass(frozen=True, slots=True)
class _Mark:
    """A row that may be drawn."""

    row: Row
    x: Any  #: where on the axis, which can be ordered
    group: str
    size: float


_Marks = Mapping[tuple[Any, str], _Mark]  #: by place and group


def drawing_of(result: Result, layout: Layout, before: Iterable[str] = ()) -> Drawing:
    """Return the drawing of a result. Lines and colours of `before`, the groups drawn last, stay as long as they have
    rows."""
    rows = _latest(list(result.rows.values()), layout)
    if layout.form == "table":
        return _table(rows, result, layout)
    kinds = {column.name: column.kind for column in result.columns}
    marks = _marks(rows, layout, kinds)
    if layout.form == "line":
        chosen, notes = _newest(marks, layout, kinds)
    else:
        chosen, notes = _largest(marks, layout.rows)
    groups = _few(chosen, before)
    named = {mark.group for mark in chosen}
    if len(named) > len(groups):
        notes = (*notes, f"{len(groups)} of {len(named)} groups")
    kept = [mark for mark in chosen if mark.group in groups]
    items = {
        key_of({"at": [mark.x, mark.group]}, ("at",)): _item(mark, n, layout, kinds) for n, mark in enumerate(kept)
    }
    return Drawing(items, tuple(mark.row for mark in kept), groups, notes)


def _latest(rows: list[Row], layout: Layout) -> list[Row]:
    """Return the rows of the newest window or time, if only these are drawn."""
    if layout.latest is None:
        return rows
    times = [moment(row.get(layout.latest)) for row in rows]
    newest = max((time for time in times if time is not None), default=None)
    return [row for row, time in zip(rows, times, strict=True) if time == newest]


def _table(rows: list[Row], result: Result, layout: Layout) -> Drawing:
    """Return the rows of the newest times, or where there are none those written last; rows that have keys in their
    order."""
    columns = result.columns
    time = next((column.name for column in columns if column.is_time), None)

    def age(row: Row) -> float:
        at = moment(row.get(time)) if time is not None else None
        return 0.0 if at is None else -milliseconds(at)

    newest = rows[::-1] if not result.whole else rows
    if not result.whole:
        newest.sort(key=age)
    shown = newest[: layout.rows]
    if result.keys is not None and not result.whole:
        keys = [column for column in columns if column.name in result.keys]
        shown.sort(key=lambda row: (age(row), [cell(row.get(key.name), key.kind) for key in keys]))
    written = len(rows) + (result.unread if result.keys is None else 0)
    which = "first" if result.whole else "newest"
    notes = (f"the {which} {len(shown)} of {written:,} rows",) if written > len(shown) else ()
    items: dict[str, Item] = {
        str(order): {"order": order, "cells": [cell(row.get(column.name), column.kind) for column in columns]}
        for order, row in enumerate(shown)
    }
    return Drawing(items, tuple(shown), (), notes)


def _marks(rows: Iterable[Row], layout: Layout, kinds: Mapping[str, Kind]) -> _Marks:
    """Return a mark for each place and group, of the row written last; rows without a place are left out."""
    assert layout.y is not None
    names: dict[str, str] = {}  #: of groups, by their values: there are far fewer than rows
    marks: dict[tuple[Any, str], _Mark] = {}
    for row in rows:
        size = abs(height(row.get(layout.y)) or 0.0)
        values = key_of(row, layout.groups) if layout.groups else ""
        if (group := names.get(values)) is None:
            group = names[values] = ", ".join(cell(row.get(name), kinds[name]) for name in layout.groups)
        x: Any = group
        if layout.x is None:  # bars of one colour, named by their groups
            group = ""
        elif layout.form == "bar":
            x = cell(row.get(layout.x), kinds[layout.x])
        else:
            value = row.get(layout.x)
            x = milliseconds(at) if (at := moment(value)) is not None else height(value)
        if x is not None:
            marks[x, group] = _Mark(row, x, group, size)
    return marks


def _newest(marks: _Marks, layout: Layout, kinds: Mapping[str, Kind]) -> tuple[list[_Mark], tuple[str, ...]]:
    """Return the marks of the last places on the axis."""
    places = sorted({mark.x for mark in marks.values()})
    shown = set(places[-layout.rows :])
    kind = kinds[layout.x or ""]
    what = f"{kind}s" if kind in (Kind.WINDOW, Kind.TIME) else "places"
    notes = (f"the newest {len(shown)} of {len(places):,} {what}",) if len(places) > len(shown) else ()
    chosen = [mark for mark in marks.values() if mark.x in shown]
    return sorted(chosen, key=lambda mark: (mark.x, mark.group)), notes


def _largest(marks: _Marks, most: int) -> tuple[list[_Mark], tuple[str, ...]]:
    """Return the marks at the places with the highest bars, these first."""
    heights: dict[str, float] = {}
    for mark in marks.values():
        heights[mark.x] = max(heights.get(mark.x, 0.0), mark.size)
    places = sorted(heights, key=lambda place: (-heights[place], place))
    rank = {place: number for number, place in enumerate(places[:most])}
    notes = (f"the {len(rank)} largest of {len(places):,} bars",) if len(places) > len(rank) else ()
    return sorted((mark for mark in marks.values() if mark.x in rank), key=lambda mark: rank[mark.x]), notes


def _few(marks: Iterable[_Mark], before: Iterable[str]) -> tuple[str, ...]:
    """Return names of groups, at most `MOST_GROUPS`: those drawn before, then those with the largest sums."""
    sums: dict[str, float] = {}
    for mark in marks:
        sums[mark.group] = sums.get(mark.group, 0.0) + mark.size
    staying = [group for group in before if group in sums]
    others = sorted((group for group in sums if group not in staying), key=lambda group: (-sums[group], group))
    return tuple(sorted([*staying, *others][:MOST_GROUPS]))


def _item(mark: _Mark, order: int, layout: Layout, kinds: Mapping[str, Kind]) -> Item:
    assert layout.y is not None
    found = measured(mark.row.get(layout.y))
    name = mark.x if layout.form == "bar" else cell(mark.row.get(layout.x or ""), kinds[layout.x or ""])
    place = {"x": mark.x, "name": name, "group": mark.group, "order": order}
    return {**place, "value": found.value, "low": found.low, "high": found.high}


Page = dict[str, Any]  #: what a view shows, as JSON


def page_of(result: Result, layout: Layout, drawing: Drawing) -> Page:
    """Return what a view shows of a result, as JSON.

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
    """Return lines of text under a result: its accuracy, what shedding does to the columns on show, and what is left
    out."""
    columns = [layout.y] if layout.y is not None else [column.name for column in result.columns]
    effects = result.effects_of_shedding(columns)
    notes = list(drawing.notes)
    if layout.latest is not None and drawing.rows:
        notes.insert(0, f"only the newest {layout.latest}: {_newest_time(result, layout, drawing)}")
    if result.unread and result.keys is not None:
        notes.append(f"{result.unread:,} older rows are not read")
    if result.keys is None and any(column.kind in (Kind.WINDOW, Kind.ESTIMATE) for column in result.columns):
        notes.append(
            "each update of a group is a row of its own here: its plan does not tell by which columns it groups"
        )
    lacks = [f"incomplete: {each}" for each in result.incomplete]
    shown = [f"shown: {'; '.join(notes)}"] if notes else []
    return [str(result.accuracy), *([effects] if effects else []), *lacks, *shown]


def text_of(result: Result, wish: Wish) -> str:
    """Return a result as text, always as a table."""
    layout = Layout("table", rows=wish.rows or DEFAULT_ROWS["table"])
    drawing = drawing_of(result, layout)
    rows = table(result.columns, drawing.rows) if drawing.rows else "no rows yet"
    return "\n".join([f"{result.query}, read at {result.at:%H:%M:%S} UTC", rows, *facts(result, layout, drawing)])


def _newest_time(result: Result, layout: Layout, drawing: Drawing) -> str:
    kind = next(column.kind for column in result.columns if column.name == layout.latest)
    return cell(drawing.rows[-1].get(layout.latest or ""), kind)
