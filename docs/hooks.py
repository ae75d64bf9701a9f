"""Hooks of the documentation's build: write the reference from the code's parsers, and keep pages off the network."""

from __future__ import annotations

import html
import os
import re
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout, suppress
from importlib import import_module
from io import StringIO
from pathlib import Path
from pkgutil import walk_packages
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from qod_magics.arguments.option import Option
    from qod_magics.arguments.parser import Command

MARK = re.compile(r"<!-- generated: ([a-z ]+) -->")
#: What a page loads as soon as it is shown.
LOADED = re.compile(r"""<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=["']?((?:https?:)?//[^"'\s>]+)""")
CANONICAL = re.compile(r"""<link\b[^>]*rel=["']?(?:canonical|prev|next)[^>]*>""")
#: A formula, by Pandoc's rule: no space within its dollars, no digit behind them; and what holds none.
FORMULA = re.compile(r"\$\$(?P<block>[^$]+)\$\$|\$(?P<inline>[^\s$](?:[^$]*[^\s$])?)\$(?!\d)")
NOTEBOOK = re.compile(r"""(\bhref=["'])([^"':]+)\.ipynb(?=["'#])""")  #: a link to one
VERBATIM = re.compile(r"(<(pre|code|script|style|svg)\b.*?</\2>)", re.DOTALL)
HELP_WIDTH = "110"  #: columns


def stream_options() -> str:
    """Write the options of a `%%qod_stream` cell as a table."""
    from qod_magics.application.streams.options import COMMAND

    return _options(COMMAND)


def stream_keywords() -> str:
    """Write the options of `Session.stream` as a table."""
    from qod_magics.application.streams.keywords import keywords
    from qod_magics.application.streams.options import IN_PYTHON

    rows = [
        f"| `{each.name}` | {_code(str(each.annotation))} | {_code(repr(each.default))} | {_code(row.flag)} |"
        for row, each in zip(IN_PYTHON, keywords(IN_PYTHON), strict=True)
    ]
    return "\n".join(["| keyword | type | default | as |", "|---|---|---|---|", *rows])


def magics() -> str:
    """Write the options of each command of `%qod` as a table, under a heading each."""
    from qod_magics.notebook.options import COMMANDS

    return "\n\n".join(f"### {each.name}\n\n{_options(each)}" for each in COMMANDS.values())


def _options(command: Command) -> str:
    """Write the rows of a command, with those columns that are not empty."""
    usage = command.usage or " ".join(["[options]"] * (len(command.flags) > 1) + [_usage(r) for r in command.arguments])
    table = {
        "option": [_code(row.usage) for row in command.options],
        "type": [row.kind for row in command.options],
        "default": [_cell(html.escape(row.default_text, quote=False)) for row in command.options],
        "meaning": [_cell(html.escape(row.said, quote=False)) for row in command.options],
        "changes": [row.changes for row in command.options],
        "while it runs, changed by": [_cell(row.running) for row in command.options],
    }
    shown = {name: cells for name, cells in table.items() if any(cells)}
    lines = [f"| {' | '.join(cells)} |" for cells in (shown, ["---"] * len(shown), *zip(*shown.values(), strict=True))]
    head = [_code(f"{command.name} {usage}".rstrip()), "", html.escape(command.summary, quote=False), ""]
    return "\n".join([*head, *(lines if command.options else [])]).rstrip()


def _usage(row: Option) -> str:
    return row.usage if row.required else f"[{row.usage}]"


def configuration() -> str:
    """Write the traits that `%config QodMagics` sets as a table."""
    from qod_magics.notebook.magics import QodMagics

    traits = QodMagics.class_traits(config=True)
    rows = [
        f"| `{name}` | {_code(repr(trait.default_value))} | {_cell(trait.help)} |"
        for name, trait in sorted(traits.items())
    ]
    return "\n".join(["| name | default | meaning |", "|---|---|---|", *rows])


def commands() -> str:
    """Write the help of each command of `python -m qod_magics`, under a heading each."""
    from qod_magics.__main__ import COMMANDS, main

    os.environ["COLUMNS"] = HELP_WIDTH  # argparse breaks lines there
    found = []
    for name in COMMANDS:
        shown = StringIO()
        with redirect_stdout(shown), suppress(SystemExit):  # argparse ends a program that has shown its help
            main([name, "--help"])
        found.append(f"### python -m qod_magics {name}\n\n{_fenced(shown.getvalue())}")
    return "\n\n".join(found)


def errors() -> str:
    """Write all errors of the package and their first lines as a table, each under its parent."""
    import qod_magics
    from qod_magics.errors import QodError

    for module in walk_packages(qod_magics.__path__, "qod_magics."):
        if not module.name.endswith("__main__"):
            import_module(module.name)

    def below(kind: type[BaseException], depth: int) -> Iterator[str]:
        first = (kind.__doc__ or "").strip().splitlines()[0]
        yield f"| {'&nbsp;' * 4 * depth}`{kind.__name__}` | `{kind.__module__}` | {_cell(first)} |"
        for child in sorted(kind.__subclasses__(), key=lambda each: each.__name__):
            if child.__module__.startswith("qod_magics."):
                yield from below(child, depth + 1)

    return "\n".join(["| error | module | meaning |", "|---|---|---|", *below(QodError, 0)])


def optional_fields() -> str:
    """Write the optional numbers of a snapshot's rows as a table."""
    from qod_magics.core.snapshot import measures

    rows = [f"| `{m.table}` | `{m.name}` | {m.unit} | {_cell(m.meaning)} | `{m.owner}` |" for m in measures()]
    return "\n".join(["| table | key | unit | meaning | policy |", "|---|---|---|---|---|", *rows])


def metrics() -> str:
    """Write the metrics for Prometheus as a table."""
    from qod_magics.monitoring.metrics import METRICS

    kinds = {True: "counter", False: "gauge"}
    rows = [f"| `{m.name}` | {kinds[m.is_counter]} | {', '.join(m.labels)} | {_cell(m.help)} |" for m in METRICS]
    return "\n".join(["| metric | type | labels | meaning |", "|---|---|---|---|", *rows])


def alarms() -> str:
    """Write the kinds of alarms as a table."""
    from qod_magics.monitoring.alarms import ALARMS

    return "\n".join(["| kind | begins when |", "|---|---|", *(f"| `{k}` | {_cell(v)} |" for k, v in ALARMS.items())])


def policy_parameters() -> str:
    """Write the parameters of each policy that has some as a table, under a heading each."""
    from qod_magics.policies import parameters_of, policy_names

    head = ["| parameter | default | value | meaning |", "|---|---|---|---|"]
    found = []
    for name in policy_names():
        rows = [f"| `{r.name}` | `{r.value}` | {r.rule} | {_cell(r.meaning)} |" for r in parameters_of(name)]
        if rows:
            found.append("\n".join([f"### {name}", "", *head, *rows]))
    return "\n\n".join(found)


GENERATED: dict[str, Callable[[], str]] = {
    "stream options": stream_options,
    "stream keywords": stream_keywords,
    "magics": magics,
    "configuration": configuration,
    "commands": commands,
    "errors": errors,
    "policy parameters": policy_parameters,
    "optional fields": optional_fields,
    "metrics": metrics,
    "alarms": alarms,
}


def generated(text: str) -> str:
    """Return a page's text with each mark replaced by what the code says. Raises KeyError for an unknown mark."""
    return MARK.sub(lambda mark: GENERATED[mark.group(1)](), text)


def with_formulas(page: str) -> str:
    """Return a page of HTML with its TeX formulas as MathML, which browsers draw without a script."""
    from latex2mathml.converter import convert

    def drawn(found: re.Match[str]) -> str:
        block, inline = found["block"], found["inline"]
        return convert(html.unescape(block or inline).strip(), display="block" if block else "inline")

    # VERBATIM has two groups: text, all of an element, the element's name, text ...
    parts = VERBATIM.split(page)
    return "".join(FORMULA.sub(drawn, part) if at % 3 == 0 else part for at, part in enumerate(parts) if at % 3 != 2)


def from_network(page: str) -> list[str]:
    """Return the addresses of other hosts that a page of HTML would load when it is shown."""
    return LOADED.findall(CANONICAL.sub("", page))


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Fill in a page's generated parts (called by mkdocs)."""
    return generated(markdown)


def on_page_content(page_html: str, page: Any, **_: Any) -> str:
    """Draw a notebook's formulas, and lead its links to pages (called by mkdocs)."""
    if not page.file.src_uri.endswith(".ipynb"):
        return page_html
    return NOTEBOOK.sub(r"\1\2.html", with_formulas(page_html))


def on_post_build(config: Any, **_: Any) -> None:
    """Fail the build where a page loads from another host (called by mkdocs)."""
    from mkdocs.exceptions import PluginError

    for path in sorted(Path(config.site_dir).rglob("*.html")):
        found = from_network(path.read_text("utf-8"))
        if found:
            raise PluginError(f"{path} would load {found[0]} from the network; give it a local copy or leave it out")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _code(text: str) -> str:
    return "<code>" + " ".join(html.escape(text, quote=False).split()).replace("|", "&#124;") + "</code>"


def _fenced(text: str) -> str:
    return f"```text\n{text.strip()}\n```"
