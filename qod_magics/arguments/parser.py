"""Commands with their options: argparse reads them by their rows; every error is one line."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from textwrap import fill, wrap
from types import MappingProxyType
from typing import Any, NoReturn

from qod_magics.arguments.option import Option
from qod_magics.errors import UsageProblem, nearest

# --- Words of a magic line: quotes as in a shell, comments, continued lines -------------------------------------------

_BACKSLASH = re.compile(r"\\\s*$")


def words_of(line: str) -> list[str]:
    """Split a magic line into words, without the comment at its end. Raises UsageProblem: a quote is left open."""
    try:
        return shlex.split(without_comment(line))
    except ValueError:
        _, quote = _end_of(line)
        what = f"a closing {quote} is missing" if quote else "nothing follows the \\ at the end"
        raise UsageProblem(f"{what} in: {' '.join(line.split())}", value=quote or "\\", rule="closed") from None


def without_comment(line: str) -> str:
    """Return the line up to a `#` outside quotes that begins a word."""
    end, _ = _end_of(line)
    return line[:end]


def continued(line: str) -> str | None:
    """Return a magic line without the backslash at its end, by which it goes on below; None: it has none."""
    line = without_comment(line)
    backslash = _BACKSLASH.search(line)
    return None if backslash is None else line[: backslash.start()]


def joined(line: str, body: str) -> tuple[str, str]:
    """Return the whole magic line of a cell, and the rest of its body.

    The line goes on below after a backslash at its end, which blanks or a comment may follow, and where it leaves a
    quote open that a line below closes at the end of a word.
    """
    whole, below = without_comment(line), body.splitlines(keepends=True)
    while below:
        if (begun := continued(whole)) is not None:
            whole = without_comment(f"{begun} {below.pop(0).rstrip()}")
            continue
        _, quote = _end_of(whole)
        closing = next((n for n, each in enumerate(below) if quote in each), None) if quote else None
        if closing is None or not re.match(rf"[^{quote}]*{quote}(\s|$)", below[closing]):
            break
        whole = without_comment(" ".join([whole, *(each.strip() for each in below[: closing + 1])]))
        below = below[closing + 1 :]
    return whole, "".join(below)


def _end_of(line: str) -> tuple[int, str]:
    """Return where the words of a line end, and the quote that it leaves open, or ""."""
    quote, before, escaped = "", " ", False
    for place, character in enumerate(line):
        if escaped:
            escaped = False
        elif character == "\\" and quote != "'":
            escaped = True
        elif quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character == "#" and before.isspace():
            return place, ""
        before = character
    return len(line), quote


HELP_WIDTH = 118  #: columns of help texts, whatever width the kernel assumes
NONE: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Command:
    """A magic, or a command of one, with the rows of its options."""

    name: str  #: as it is typed: "%qod up"
    summary: str
    options: tuple[Option, ...] = ()
    usage: str | None = None  #: what follows the name; by default as the options ask for it
    epilog: str = ""  #: at the end of the help
    ending: Callable[[Sequence[str]], str] | None = None  #: makes what follows that, by the words of the line

    def __post_init__(self) -> None:
        rows: list[Option] = []
        for row in self.options:
            rows.append(replace(row, changes=row.changes or (rows[-1].changes if rows else "")))
        object.__setattr__(self, "options", tuple(rows))

    def read(self, words: Sequence[str], defaults: Mapping[str, Any] = NONE) -> argparse.Namespace:
        """Return the values of all options, by name; `defaults` come before those of the rows. Raises UsageProblem."""
        given, left = self.given(words)
        if left:
            raise _problem(self.name, f"{left[0]!r} is one word too many (a value with spaces goes in quotes).")
        unstated = {each.name: defaults.get(each.name, each.default) for each in self.options}
        return argparse.Namespace(**unstated | given)

    def given(self, words: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
        """Return the values of the options that are given, by name, and the words left over. Raises UsageProblem."""
        found, left = _parser(self).read(words)
        return vars(found), left

    def help(self, defaults: Mapping[str, Any] = NONE, words: Sequence[str] = ()) -> str:
        """Return the help text, with these defaults. `words`: of the line that asks for it."""
        rows = (replace(row, default=defaults.get(row.name, row.default)) for row in self.options)
        text = _parser(replace(self, options=tuple(rows))).format_help().rstrip("\n")
        more = "" if self.ending is None else self.ending(words)
        return "\n\n".join(filter(None, [text, self.epilog, more]))

    @property
    def flags(self) -> list[str]:
        """The long forms of the options."""
        return ["--help", *(row.flag for row in self.options if not row.positional)]

    @property
    def arguments(self) -> list[Option]:
        """The arguments that are known by their places."""
        return [row for row in self.options if row.positional]

    def option(self, word: str) -> Option | None:
        """Return the option that a word names in one of its forms."""
        return next((row for row in self.options if word in row.flags), None)


def wants_help(line: str) -> bool:
    """Tell whether a line asks for the help text."""
    try:
        words = words_of(line)
    except UsageProblem:
        words = line.split()
    return any(word in ("--help", "-h", "-?") for word in words)


def wrapped(text: str, indent: int) -> str:
    """Return a text in lines as wide as the help, indented, those below the first once more."""
    first, below = " " * indent, " " * 2 * indent
    return fill(text, HELP_WIDTH, initial_indent=first, subsequent_indent=below, break_on_hyphens=False)


class Parser(argparse.ArgumentParser):
    """Parses the line of a command in a terminal: an error raises UsageProblem instead of ending the process."""

    def __init__(self, command: str, description: str, **more: Any) -> None:
        super().__init__(f"python -m qod_magics {command}", description=description, allow_abbrev=False, **more)

    def error(self, message: str) -> NoReturn:
        """Raise UsageProblem with the message."""
        raise UsageProblem(f"{message}; see --help")


def _problem(name: str, message: str, option: str | None = None) -> UsageProblem:
    ended = message if message.endswith((".", "?", ")")) else f"{message}."
    return UsageProblem(f"{name}: {' '.join(ended.split())} {name} -h explains it.", option=option)


def _parser(command: Command) -> _CommandParser:
    parser = _CommandParser(
        prog=command.name,
        usage=None if command.usage is None else f"%(prog)s {command.usage}",
        description=command.summary,
        allow_abbrev=False,
        exit_on_error=False,
        argument_default=argparse.SUPPRESS,
        formatter_class=partial(_Formatter, width=HELP_WIDTH, max_help_position=30),
    )
    sections: dict[str, argparse._ActionsContainer] = {}
    for row in command.options:
        if row.changes and row.changes not in sections:
            sections[row.changes] = parser.add_argument_group(row.changes)
        parser.add_row(row, sections.get(row.changes, parser))
    return parser


class _CommandParser(argparse.ArgumentParser):
    """Parses by rows: values that begin with a dash, and no abbreviations."""

    def add_row(self, row: Option, section: argparse._ActionsContainer) -> None:
        """Add the option of a row to a section of the help."""
        nargs: str | int | None = "+" if row.several else 0 if row.switch else None
        if row.positional and not row.required:
            nargs = "*" if row.several else "?"
        metavar = row.metavar or (row.flag if row.positional else None)
        meaning = row.meaning.replace("%", "%%")
        section.add_argument(*row.flags, action=_Store, row=row, nargs=nargs, help=meaning, metavar=metavar)

    def read(self, words: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
        """Return the values that are given, and the words left over. Raises UsageProblem."""
        try:
            return self.parse_known_args(list(self._exact(words)))
        except argparse.ArgumentError as error:
            row = next((each for each in self._rows.values() if "/".join(each.flags) == error.argument_name), None)
            if row is not None and error.message.startswith("expected"):
                raise row.lacks_value() from None
            raise _problem(self.prog, str(error), row.flag if row else None) from None

    def error(self, message: str) -> NoReturn:
        """Raise UsageProblem with the message and the help command."""
        raise _problem(self.prog, message) from None

    @property
    def _rows(self) -> dict[str, Option]:
        return {flag: each.row for flag, each in self._option_string_actions.items() if isinstance(each, _Store)}

    def _exact(self, words: Iterable[str]) -> Iterator[str]:
        """Yield the words so that argparse takes each option's value for one: it would refuse `-a -1e-3`, read
        `-priority` as `-p riority`, and take one word only for `--from=a b`."""
        rows, waiting = self._rows, list(words)
        while waiting:
            word = waiting.pop(0)
            flag, equals, value = word.partition("=")
            if flag not in rows and re.match(r"-\w[\d.]", word) and word[:2] in rows:
                flag, equals, value = word[:2], "=", word[2:]
            row = rows.get(flag)
            if row is None:
                if re.match(r"-[^\d.]", word):
                    hint = nearest(flag, [each for each in self._option_string_actions if each.startswith("--")])
                    raise _problem(self.prog, f"unknown option {flag!r}.{hint}", flag)
                yield word
            elif row.several:
                yield from (row.flag, value) if equals else (row.flag,)
            elif equals:
                yield f"{row.flag}={value}"
            elif row.switch or not waiting or waiting[0].partition("=")[0] in rows:
                yield row.flag
            else:
                yield f"{row.flag}={waiting.pop(0)}"


class _Store(argparse.Action):
    """Reads and stores the value of a row, once."""

    def __init__(self, option_strings: Sequence[str], dest: str, *, row: Option, **more: Any) -> None:
        super().__init__(option_strings, row.name, **more)
        self.row = row

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, _: str | None = None
    ) -> None:
        """Raise UsageProblem for a second value, ArgumentError for one that can't be read."""
        row, before = self.row, getattr(namespace, self.dest, None)
        if before is not None and not row.repeats:
            raise UsageProblem(f"{row.flag} is given twice", option=row.flag)
        if row.switch:
            value = not row.default
        elif row.several or row.repeats:
            read = [self._read(text) for text in (values if row.several else [values])]
            parts = [part for each in read for part in (each if isinstance(each, tuple) else (each,))]
            if not parts:
                raise row.lacks_value()
            value = type(row.default)([*(before or ()), *parts])
        else:
            value = self._read(values)
        setattr(namespace, self.dest, value)

    def _read(self, text: str) -> Any:
        try:
            return self.row.read(text)
        except ValueError:
            name = self.row.convert.__name__
            raise argparse.ArgumentError(self, f"invalid {name} value: {text!r}") from None


class _Formatter(argparse.HelpFormatter):
    """Shows an option's value once, behind all its forms, and breaks no name."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return wrap(text, width, break_on_hyphens=False)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        return action.row.usage if isinstance(action, _Store) else super()._format_action_invocation(action)
