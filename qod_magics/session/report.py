"""The report of a session that is still recording."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from qod_magics.errors import UsageProblem
from qod_magics.recordings.reading import load
from qod_magics.recordings.verdict import verdict


def report_so_far(recording: Path, out: Path, began: datetime) -> Path:
    """Write the report of a session that began then, judged on its cycles so far; the recording may have earlier runs.

    Raises UsageProblem while nothing is recorded, and when the page can't be written; RecordingError.
    """
    from qod_magics.reports.page import write_report

    if not recording.is_file() or not recording.stat().st_size:
        raise UsageProblem("nothing is recorded yet: wait for the first cycle")
    records = load(recording, began)
    try:
        write_report(out, records, None, verdict(records))
    except OSError as error:
        raise UsageProblem(f"{out} can't be written ({error.strerror}): name another file") from None
    return out
