"""What a record names."""

from __future__ import annotations

from qod_magics.recordings.names import queries, sources, streams
from tests.recordings.taxi_drives import records, taxi_drives


def test_what_a_record_names() -> None:
    (record, *_) = records(taxi_drives()[:1])
    assert list(queries(record)) == ["TDSnk1", "TDSnk2"]
    assert sources(record) == ("TDSrc1", "TDSrc2")
    assert streams(record) == ("TDSrc1>TDSnk1", "TDSrc1>TDSnk2", "TDSrc2>TDSnk1", "TDSrc2>TDSnk2")
