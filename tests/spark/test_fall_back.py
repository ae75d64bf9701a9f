"""What becomes of a query that Spark refuses in real-time mode only once it is at work."""

from __future__ import annotations

import pytest

from qod_magics.errors import SetupError
from qod_magics.spark.instance import Instance, refuses_realtime
from qod_magics.spark.pipeline import Job
from qod_magics.spark.realtime import not_realtime
from qod_magics.spark.server import ServerOptions

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


def test_too_few_slots_are_no_failure_of_the_query() -> None:
    """As Spark 4.3 words it."""
    error = (
        "[CONCURRENT_SCHEDULER_INSUFFICIENT_SLOT] Cannot run the pipelined stage group: it needs 33 concurrent task "
        "slots to run all its stages together, but only 32 are currently free."
    )
    assert refuses_realtime(error)
    assert "too few slots are free (--slots)" in not_realtime(error)
    with pytest.raises(SetupError, match="1 task slot or more, not 0"):
        ServerOptions(slots=0)
