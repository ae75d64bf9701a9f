"""Cameo, Dirigo, Nephele Streaming and Getafix live, each in turns with its baselines on one cluster: the scripts that
run them, as parts of the evaluation."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import deadlines, gaps, hot_slices, lending
from benchmarks._live import Table

#: Seconds for which each policy is measured in a turn.
CAMEO_S, DIRIGO_S, NEPHELE_S, GETAFIX_S = 16.0, 30.0, 20.0, 25.0


def cameo_live(out: Path, scale: float) -> dict[str, Any]:
    """Figures of each turn of a policy; `scale` shortens the turns, fraction of 1. See `deadlines`."""
    return _turns(out, deadlines.FIELDS, "cameo-live", partial(deadlines.measure, seconds=CAMEO_S * scale))


def dirigo_live(out: Path, scale: float) -> dict[str, Any]:
    """Figures of each turn of a policy, as `cameo_live`. See `lending`."""
    return _turns(out, lending.FIELDS, "dirigo-live", partial(lending.measure, seconds=DIRIGO_S * scale))


def nephele_live(out: Path, scale: float) -> dict[str, Any]:
    """Figures of each turn of a policy, as `cameo_live`. See `gaps`."""
    return _turns(out, gaps.FIELDS, "nephele-live", partial(gaps.measure, seconds=NEPHELE_S * scale))


def getafix_live(out: Path, scale: float) -> dict[str, Any]:
    """Figures of each turn of a policy, as `cameo_live`. See `hot_slices`."""
    return _turns(out, hot_slices.FIELDS, "getafix-live", partial(hot_slices.measure, seconds=GETAFIX_S * scale))


def _turns(out: Path, fields: Sequence[str], name: str, measure: Callable[[Table], None]) -> dict[str, Any]:
    """Return the rows that were measured; where the run broke off after the first ones, with the reason."""
    table = Table(out / f"{name}.csv", fields)
    try:
        measure(table)
    except Exception as error:
        if not table.rows:
            raise
        traceback.print_exc()
        return {"turns": table.rows, "left_out": {"later turns": f"{type(error).__name__}: {error}".splitlines()[0]}}
    return {"turns": table.rows}
