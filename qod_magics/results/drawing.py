"""What a layout draws of a result: points of lines, bars or rows of a table, each under an id of its own. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from qod_magics.results.columns import Column, Row, measured, milliseconds, moment
from qod_magics.results.layout import Layout
from qod_magics.results.newest import key_of
from qod_magics.results.result import Result
from qod_magics.results.text import cell

#: Lines or colours that can be told apart.
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
    x: Any  #: where on the axis, which can be ordered; None: nowhere
    name: str
    group: str
    size: float


def drawing_of(result: Result, layout: Layout, before: Iterable[str] = ()) -> Drawing:
    """The drawing of a result. Lines and colours of `before`, the groups drawn last, stay as long as they have rows."""
    rows = _latest(list(result.rows.values()), layout)
    if layout.form == "table":
        return _table(rows, result, layout)
    by_name = {column.name: column for column in result.columns}
    marks = {}
    for row in rows:  # of rows with the same place and group, the one written last
        mark = _mark(row, layout, by_name)
        if mark is not None:
            marks[key_of({"x": mark.x, "group": mark.group}, ("x", "group"))] = mark
    if layout.form == "line":
        chosen, notes = _newest(marks, layout, by_name)
    else:
        chosen, notes = _largest(marks, layout.rows)
    groups = _few(chosen.values(), before)
    named = {mark.group for mark in chosen.values()}
    if len(named) > len(groups):
        notes = (*notes, f"{len(groups)} of {len(named)} groups")
    kept = {id: mark for id, mark in chosen.items() if mark.group in groups}
    items = {id: _item(mark, order, layout) for order, (id, mark) in enumerate(kept.items())}
    return Drawing(items, tuple(mark.row for mark in kept.values()), groups, notes)


def _latest(rows: list[Row], layout: Layout) -> list[Row]:
    """The rows of the newest window or time, if only these are drawn."""
    if layout.latest is None:
        return rows
    times = [moment(row.get(layout.latest)) for row in rows]
    newest = max((time for time in times if time is not None), default=None)
    return [row for row, time in zip(rows, times, strict=True) if time == newest]


def _table(rows: list[Row], result: Result, layout: Layout) -> Drawing:
    """The rows of the newest times, or where there are none those written last; rows that have keys in their order."""
    columns = result.columns
    time = next((column.name for column in columns if column.is_time), None)

    def age(row: Row) -> float:
        at = moment(row.get(time)) if time is not None else None
        return 0.0 if at is None else -milliseconds(at)

    newest = rows[::-1]
    newest.sort(key=age)
    shown = newest[: layout.rows]
    if result.keys is not None:
        keys = [column for column in columns if column.name in result.keys]
        shown.sort(key=lambda row: (age(row), [cell(row.get(key.name), key.kind) for key in keys]))
    written = len(rows) + (result.unread if result.keys is None else 0)
    notes = (f"the newest {len(shown)} of {written:,} rows",) if written > len(shown) else ()
    items: dict[str, Item] = {
        str(order): {"order": order, "cells": [cell(row.get(column.name), column.kind) for column in columns]}
        for order, row in enumerate(shown)
    }
    return Drawing(items, tuple(shown), (), notes)


def _mark(row: Row, layout: Layout, columns: Mapping[str, Column]) -> _Mark | None:
    assert layout.y is not None
    height = measured(row.get(layout.y)).value
    group = ", ".join(cell(row.get(name), columns[name].kind) for name in layout.groups)
    if layout.x is None:  # bars of one colour, named by their groups
        return _Mark(row, group, group, "", abs(height or 0.0))
    value, kind = row.get(layout.x), columns[layout.x].kind
    name = cell(value, kind)
    if layout.form == "bar":
        return _Mark(row, name, name, group, abs(height or 0.0))
    x = milliseconds(at) if (at := moment(value)) is not None else measured(value).value
    return None if x is None else _Mark(row, x, name, group, abs(height or 0.0))


def _newest(
    marks: Mapping[str, _Mark], layout: Layout, columns: Mapping[str, Column]
) -> tuple[dict[str, _Mark], tuple[str, ...]]:
    """The marks of the last places on the axis."""
    places = sorted({mark.x for mark in marks.values()})
    shown = set(places[-layout.rows :])
    assert layout.x is not None
    what = f"{columns[layout.x].kind}s" if columns[layout.x].is_time else "places"
    notes = (f"the newest {len(shown)} of {len(places):,} {what}",) if len(places) > len(shown) else ()
    ordered = sorted(marks.items(), key=lambda item: (item[1].x, item[1].group))
    return {id: mark for id, mark in ordered if mark.x in shown}, notes


def _largest(marks: Mapping[str, _Mark], most: int) -> tuple[dict[str, _Mark], tuple[str, ...]]:
    """The marks at the places with the highest bars, these first."""
    heights: dict[str, float] = {}
    for mark in marks.values():
        heights[mark.x] = max(heights.get(mark.x, 0.0), mark.size)
    places = sorted(heights, key=lambda place: (-heights[place], place))
    rank = {place: number for number, place in enumerate(places[:most])}
    notes = (f"the {len(rank)} largest of {len(places):,} bars",) if len(places) > len(rank) else ()
    ordered = sorted((item for item in marks.items() if item[1].x in rank), key=lambda item: rank[item[1].x])
    return dict(ordered), notes


def _few(marks: Iterable[_Mark], before: Iterable[str]) -> tuple[str, ...]:
    """Names of groups, at most `MOST_GROUPS`: those drawn before, then those with the largest sums."""
    sums: dict[str, float] = {}
    for mark in marks:
        sums[mark.group] = sums.get(mark.group, 0.0) + mark.size
    staying = [group for group in before if group in sums]
    others = sorted((group for group in sums if group not in staying), key=lambda group: (-sums[group], group))
    return tuple(sorted([*staying, *others][:MOST_GROUPS]))


def _item(mark: _Mark, order: int, layout: Layout) -> Item:
    assert layout.y is not None
    height = measured(mark.row.get(layout.y))
    place = {"x": mark.x, "name": mark.name, "group": mark.group, "order": order}
    return {**place, "value": height.value, "low": height.low, "high": height.high}
