"""Parsing of command lines, in a terminal or after `%qod`; every error is one line."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from math import inf
from typing import NoReturn

from qod_magics.application.streams.words import words_of
from qod_magics.errors import QodError, UsageProblem, nearest

HELP_WIDTH = 118  #: columns of help texts, whatever width the kernel assumes
#: As a command's only argument: asks for its options.
FLAGS = "\0flags"


class Parser(argparse.ArgumentParser):
    """An argument parser that raises UsageProblem, which the commands print, instead of exiting the process."""

    def error(self, message: str) -> NoReturn:
        """Raise UsageProblem with the message."""
        raise UsageProblem(f"{message}; see --help")


class HelpShown(Exception):
    """Help was requested and has been printed."""


class FlagsAsked(Exception):
    """The options of a command were requested (by `FLAGS` as its only argument)."""


class MagicWords(argparse.ArgumentParser):
    """Parses the arguments of `%qod NAME`: every error is one line, and the process never exits."""

    def __init__(self, name: str, description: str) -> None:
        super().__init__(
            f"%qod {name}",
            description=description,
            allow_abbrev=False,
            formatter_class=lambda prog: argparse.HelpFormatter(prog, width=HELP_WIDTH),
        )

    def read(self, words: list[str]) -> argparse.Namespace:
        """Parse the arguments. Raises UsageProblem, with the nearest option, HelpShown or FlagsAsked."""
        if words == [FLAGS]:
            raise FlagsAsked([name for name in self._option_string_actions if name.startswith("--")])
        given, left = self.parse_known_args(words)
        if left:
            unknown = left[0].partition("=")[0]
            if unknown.startswith("-"):
                hint = nearest(unknown, [name for name in self._option_string_actions if name.startswith("--")])
                self.error(f"unknown option {unknown!r}.{hint}")
            self.error(f"{left[0]!r} is one word too many (a value with spaces goes in quotes).")
        return given

    def error(self, message: str) -> NoReturn:
        """Raise UsageProblem with the message and the help command."""
        ended = message if message.endswith((".", "?", ")")) else f"{message}."
        raise UsageProblem(f"{self.prog}: {' '.join(ended.split())} {self.prog} -h explains it.")

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """Raise HelpShown: argparse exits here only after printing help."""
        raise HelpShown


def split(line: str) -> list[str]:
    """The arguments after `%qod`, quoted as in a shell, without a comment. Raises UsageProblem."""
    try:
        return words_of(line)
    except UsageProblem as error:
        raise UsageProblem(f"%qod: {error}") from None


def pairs(words: list[str]) -> dict[str, str]:
    """Options NAME=VALUE by name. Raises UsageProblem."""
    found = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise UsageProblem(f"an option is NAME=VALUE, not {word!r}")
        if name in found:
            raise UsageProblem(f"option {name} is given twice: leave one of them out")
        found[name] = value
    return found


def cores(text: str | None) -> set[int] | None:
    """The numbers in "0,1"; None where nothing is given. Raises UsageProblem."""
    if text is None:
        return None
    try:
        return {int(word) for word in text.split(",")}
    except ValueError:
        raise UsageProblem(f"cores are numbers with commas between, such as 0,1, not {text!r}") from None


def restriction(option: str, text: str | None, convert: Callable[[str], float]) -> float | None:
    """The value of an option that may be taken back: infinity for "none"; None where nothing is given. Raises
    UsageProblem, one line that names the option."""
    if text is None:
        return None
    if text == "none":
        return inf
    try:
        return convert(text)
    except QodError as error:
        raise UsageProblem(f"{option}: {error}; or none") from None
