"""The words of a command line: what is wrong with them is one line, without the usage before it."""

from __future__ import annotations

import argparse
from typing import NoReturn

from qod_magics.errors import UsageProblem


class Parser(argparse.ArgumentParser):
    """An argument parser that raises UsageProblem, which the commands print, in place of leaving the process."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong."""
        raise UsageProblem(f"{message}; see --help")
