"""`%qod show`: a query's newest results, or those in a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from qod_magics.errors import UsageProblem
from qod_magics.notebook.arguments import MagicWords
from qod_magics.results.layout import FORMS, Wish
from qod_magics.session.displaying import in_kernel
from qod_magics.session.show import show_sample

if TYPE_CHECKING:
    from qod_magics.session.session import Session


def show(words: list[str], session: Callable[[], Session]) -> None:
    """Show what the words after `%qod show` name; `session` is asked for only if need be. Raises QodError."""
    parser = MagicWords(
        "show",
        "Show a query's newest results, estimates with their intervals: live in a notebook, else as a table.",
    )
    parser.add_argument("query", nargs="?")
    parser.add_argument("--kind", choices=FORMS, help="default: what suits the columns")
    parser.add_argument("--rows", type=int, metavar="N", help="windows of a line, bars, or rows of a table")
    parser.add_argument("--x", metavar="COLUMN", help="windows, times or numbers of a line; what names the bars")
    parser.add_argument("--y", metavar="COLUMN", help="default: the first estimate, or else the first number")
    parser.add_argument("--save", metavar="FILE", help="keep there, as JSON lines, what is on show, and the accuracy")
    parser.add_argument("--from", dest="sample", metavar="FILE", help="show what was saved; needs no session")
    given = parser.read(words)
    wish = Wish(given.kind, given.x, given.y, given.rows)
    if (given.query is None) == (given.sample is None) or (given.sample and given.save):
        raise UsageProblem("%qod show QUERY [--save FILE], or %qod show --from FILE")
    if given.sample is not None:
        shown = show_sample(Path(given.sample).expanduser().absolute(), wish)
    else:
        shown = session().views.show(given.query, wish, given.save)
        shown.read()  # what is wrong is one line
    if in_kernel():
        shown.display()
    else:
        print(shown)
