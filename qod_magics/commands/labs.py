"""`python -m qod_magics labs DIR`: copy the notebooks that come with the package, to be opened and changed there."""

from __future__ import annotations

import argparse
import os
import shutil
from pathlib import Path

from qod_magics.errors import SetupError, UsageProblem, counted

#: The folder of notebooks beside this package: as a wheel has it, and as a checkout has it.
FOLDERS = ("qod_notebooks", "notebooks")
INDEX = "index.ipynb"
#: Not copied: what Jupyter and Python leave in a checkout.
_LEFT_OUT = shutil.ignore_patterns(".*", "__pycache__")


def main(argv: list[str] | None = None) -> int:
    """Copy them and print where they are. Returns 0. Raises SetupError, UsageProblem, OSError."""
    parser = argparse.ArgumentParser(
        prog="python -m qod_magics labs", description="Copy the notebooks with the labs, and what they read, to DIR."
    )
    parser.add_argument("directory", metavar="DIR", type=Path, help="is made; files that are there stay as they are")
    directory = parser.parse_args(argv).directory
    made, stay = copy(notebooks(), directory)
    kept = f"; {counted(stay, 'file')} that {'was' if stay == 1 else 'were'} there stay as they are" if stay else ""
    print(f"{counted(made, 'file')} copied to {directory}{kept}. Begin with {directory / INDEX}")
    return 0


def notebooks() -> Path:
    """Return the folder of the notebooks. Raises SetupError: they did not come with this installation."""
    beside = Path(__file__).parents[2]
    for name in FOLDERS:
        if (beside / name / INDEX).is_file():
            return beside / name
    raise SetupError(
        f"the notebooks must be beside the package in {beside}, got none; install its wheel, or take a checkout",
        name=str(beside),
        rule="notebooks",
    )


def copy(source: Path, target: Path) -> tuple[int, int]:
    """Copy a folder's files where none is; return how many were copied, and how many were there.

    Raises:
        UsageProblem: the target can't be a directory.
        OSError: a file could not be copied; no part of it stays. Others are copied.

    """
    if target.exists() and not target.is_dir():
        raise UsageProblem(f"DIR must be a directory, got the file {target}; name another", rule="directory")
    made = stay = 0

    def place(file: str, to: str) -> str:
        nonlocal made, stay
        if Path(to).exists():
            stay += 1
        else:
            part = Path(f"{to}.part")
            try:
                shutil.copyfile(file, part)
                os.replace(part, to)
            finally:
                part.unlink(missing_ok=True)
            made += 1
        return to

    try:
        shutil.copytree(source, target, ignore=_LEFT_OUT, copy_function=place, dirs_exist_ok=True)
    except shutil.Error as error:  # of each file that failed: from, to, why
        raise OSError(error.args[0][0][2]) from None
    return made, stay
