"""What a line of a recording tells."""

from __future__ import annotations

from qod_magics.recordings.lines import queries, sources, streams
from tests.widgets.recordings import taxi_drives


def test_what_a_line_names() -> None:
    (line, *_) = taxi_drives()
    assert list(queries(line)) == ["TDSnk1", "TDSnk2"]
    assert sources(line) == ("TDSrc1", "TDSrc2")
    assert streams(line) == ("TDSrc1>TDSnk1", "TDSrc1>TDSnk2", "TDSrc2>TDSnk1", "TDSrc2>TDSnk2")
