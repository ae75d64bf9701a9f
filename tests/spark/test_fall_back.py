"""What becomes of a query that Spark refuses in real-time mode only once it is at work."""

from __future__ import annotations

from qod_magics.spark.instance import Instance
from qod_magics.spark.pipeline import Job

JOB = Job("T", "T.1", 0, (), lambda spark, inputs: None, (), (), None, None, None)  # type: ignore[arg-type, return-value]


def test_before_its_first_batch_it_begins_anew_elsewhere() -> None:
    instance = Instance(JOB, "/cp/T/1")
    instance.fall_back("refused")
    assert instance.no_realtime == "refused"
    assert instance.checkpoint != "/cp/T/1"
    assert instance.checkpoint.startswith("/cp/T/1")


def test_with_batches_behind_it_goes_on_where_it_was() -> None:
    instance = Instance(JOB, "/cp/T/1", begun=True)
    instance.fall_back("refused")
    assert instance.no_realtime == "refused"
    assert instance.checkpoint == "/cp/T/1"
