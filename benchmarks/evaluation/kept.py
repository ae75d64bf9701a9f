"""The stored figures of a part: a JSON file of its runs, all at one scale, each with its machine, time and commit."""

from __future__ import annotations

import json
import platform
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

Figures = Mapping[str, Any]


def earlier(path: Path, scale: float) -> list[Figures]:
    """The runs in a file, for more to be added; none without a file.

    Raises:
        ValueError: they are of another scale.

    """
    if not path.exists():
        return []
    kept = json.loads(path.read_text("utf-8"))
    if kept["scale"] != scale:
        raise ValueError(
            f"{path} keeps runs at --scale {kept['scale']:g}, not {scale:g}: "
            f"give --scale {kept['scale']:g}, or leave out --more to begin anew"
        )
    runs: list[Figures] = kept["runs"]
    return runs


def keep(path: Path, part: str, scale: float, runs: Sequence[Figures]) -> None:
    """Write the runs of a part."""
    path.write_text(json.dumps(_rounded({"part": part, "scale": scale, "runs": runs}), indent=1) + "\n", "utf-8")


def provenance(commit: str, took_s: float) -> dict[str, Any]:
    """Time, machine, load and commit of a run that has just ended."""
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "load_average": psutil.getloadavg()[0],
        "commit": commit,
        "took_s": took_s,
    }


def commit_of_tree() -> str:
    """The commit checked out; `-dirty` if files differ from it."""
    said = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    return said.stdout.strip()


def machine() -> str:
    """The machine in a few words."""
    told = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    named = (line.partition(":")[2].strip() for line in told if "model name" in line)
    return (
        f"{psutil.cpu_count()} virtual cores of {next(named, platform.processor())}, "
        f"{psutil.virtual_memory().total / 2**30:.0f} GiB, {platform.system()}, Python {platform.python_version()}"
    )


def _rounded(value: Any) -> Any:
    """To four decimals, more than the precision of the measurements."""
    if isinstance(value, float):
        return round(value, 4)
    if isinstance(value, Mapping):
        return {key: _rounded(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(each) for each in value]
    return value
