"""The page of a recording that goes on."""

from __future__ import annotations

from pathlib import Path

from qod_magics.controller.recording import read
from qod_magics.errors import UsageProblem
from qod_magics.recordings.verdict import verdict


def report_so_far(recording: Path, out: Path) -> Path:
    """Write the page of a recording that goes on, judged by what it has so far.

    Raises UsageProblem while nothing is recorded, and when the page can't be written.
    """
    from qod_widgets.report import write_report

    lines = tuple(read(recording))
    if not lines:
        raise UsageProblem("nothing is recorded yet: wait for the first cycle")
    try:
        write_report(out, lines, None, verdict(lines))
    except OSError as error:
        raise UsageProblem(f"{out} can't be written ({error.strerror}): name another file") from None
    return out
