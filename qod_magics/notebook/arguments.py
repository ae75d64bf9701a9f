"""The words of a command line, in a terminal or after `%qod`: what is wrong with them is one line."""

from __future__ import annotations

import argparse
import shlex
from typing import NoReturn

from qod_magics.errors import UsageProblem, nearest

HELP_WIDTH = 118  #: columns of help texts, whatever the kernel takes its terminal for
#: As a command's only word: asks which options it has.
FLAGS = "\0flags"


class Parser(argparse.ArgumentParser):
    """An argument parser that raises UsageProblem, which the commands print, in place of leaving the process."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong."""
        raise UsageProblem(f"{message}; see --help")


class HelpShown(Exception):
    """Help was asked for, and is printed."""


class FlagsAsked(Exception):
    """The options of a command were asked for (by `FLAGS` as its only word)."""


class MagicWords(argparse.ArgumentParser):
    """The words after `%qod NAME`: what is wrong with them is one line, and the process is never left."""

    def __init__(self, name: str, description: str) -> None:
        super().__init__(
            f"%qod {name}",
            description=description,
            allow_abbrev=False,
            formatter_class=lambda prog: argparse.HelpFormatter(prog, width=HELP_WIDTH),
        )

    def read(self, words: list[str]) -> argparse.Namespace:
        """What the words say. Raises UsageProblem, with the nearest option, or HelpShown."""
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
        """Say what is wrong, and where to read on."""
        ended = message if message.endswith((".", "?", ")")) else f"{message}."
        raise UsageProblem(f"{self.prog}: {' '.join(ended.split())} {self.prog} -h explains it.")

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """End with HelpShown: what argparse leaves the process for is help."""
        raise HelpShown


def split(line: str) -> list[str]:
    """The words of the line after `%qod`, quoted as in a shell. Raises UsageProblem."""
    try:
        return shlex.split(line)
    except ValueError as error:
        raise UsageProblem(f"%qod: {error} in {line!r}") from None


def pairs(words: list[str]) -> dict[str, str]:
    """Options NAME=VALUE by name. Raises UsageProblem."""
    found = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise UsageProblem(f"an option is NAME=VALUE, not {word!r}")
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
