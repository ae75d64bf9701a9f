"""How a result is shown: as a table, as lines over time or as bars, of which columns. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from qod_magics.errors import UsageProblem, nearest
from qod_magics.results.columns import Column, Kind

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
    for option, name in (("--x", wish.x), ("--y", wish.y)):
        if name is not None and name not in named:
            raise UsageProblem(f"{option} {name}: the result has no such column.{nearest(name, named)}")
    if wish.kind is not None and wish.kind not in FORMS:
        raise UsageProblem(f"there is no kind {wish.kind!r} of chart.{nearest(wish.kind, FORMS)}")
    if wish.rows is not None and not 1 <= wish.rows <= MOST_ROWS:
        raise UsageProblem(f"--rows {wish.rows}: take a number from 1 to {MOST_ROWS}")
    form = wish.kind or _form(named, keys, wish)
    rows = wish.rows or DEFAULT_ROWS[form]
    if form == "table":
        if wish.x or wish.y:
            raise UsageProblem("a table has all columns: leave out --x and --y, or take --kind line or bar")
        return Layout("table", rows=rows)
    y = _y(columns, keys, wish)
    if y is None:
        raise UsageProblem(f"the result has no column of numbers for --kind {form}: it has {', '.join(named)}")
    times = [key for key in keys or () if named[key].is_time]
    if form == "line":
        x = wish.x or next(iter(times), None) or next((c.name for c in columns if c.is_time), None)
        if x is None:
            raise UsageProblem("the result has no column of windows or times for a line: take --kind bar, or name --x")
        if not named[x].is_time and named[x].kind is not Kind.NUMBER:
            raise UsageProblem(f"--x {x}: a line needs windows, times or numbers there; take --kind bar")
    else:
        x = wish.x
    if x == y:
        raise UsageProblem(f"--x and --y are both {x!r}: take two columns")
    latest = next((time for time in times if time != x), None)
    groups = tuple(key for key in keys or () if key not in (x, latest, y))
    if form == "bar" and x is None and not groups:  # all that tells them apart is the time
        x, latest = latest, None
        if x is None:
            raise UsageProblem(f"nothing names the bars of {y!r}: name a column by --x")
    return Layout(form, x, y, groups, latest, rows)


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
    """Return the first estimate, or else the first number that is no key."""
    if wish.y is not None:
        column = next(column for column in columns if column.name == wish.y)
        if not column.is_measure:
            raise UsageProblem(f"--y {wish.y}: its values are no numbers")
        return wish.y
    measures = [column for column in columns if column.is_measure and column.name not in (*(keys or ()), wish.x)]
    return next((column.name for column in sorted(measures, key=lambda column: column.kind != Kind.ESTIMATE)), None)
