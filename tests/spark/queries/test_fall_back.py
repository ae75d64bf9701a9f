"""What becomes of a query that Spark refuses in real-time mode only once it is at work."""

from __future__ import annotations

from dataclasses import replace

import pytest

from qod_magics.errors import SetupError, TaskManagerError
from qod_magics.lifecycle.events import State
from qod_magics.spark.plans.job import GROUPS_ONCE, Feed, Job, PlanFacts
from qod_magics.spark.queries.instance import Instance
from qod_magics.spark.queries.modes import against_realtime, not_realtime, output_modes, refuses_realtime
from qod_magics.spark.servers.server import ServerOptions
from tests.raising import breaks
from tests.spark.fakes import Parts, Query, cluster, instance, manager

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


#: As Spark 4.3 words it.
TOO_FEW = (
    "[CONCURRENT_SCHEDULER_INSUFFICIENT_SLOT] Cannot run the pipelined stage group: it needs 33 concurrent task "
    "slots to run all its stages together, but only 32 are currently free."
)


@pytest.mark.parametrize("wanted", ["auto", "realtime"])
def test_too_few_slots_once_it_runs_are_no_failure_unless_real_time_was_asked_for(wanted: str) -> None:
    home = manager()
    one = instance(home, Query())
    one.mode, one.mode_wanted = "real-time", wanted
    Parts(cluster(home, instances=(one,))).recovery._ended_by_itself(one, TOO_FEW)
    assert one.state is State.BACKING_OFF
    assert (one.failures, one.no_realtime) == ((0, TOO_FEW) if wanted == "auto" else (1, ""))


def test_a_query_of_one_stage_gets_no_more_tasks_than_there_are_slots() -> None:
    """Spark refuses only plans of several stages: the tasks without a slot would wait for ever."""
    facts = PlanFacts(keeps_state=False, read={})
    job = replace(JOB, feeds=(Feed("T", ("T",), "t", (0, 1, 2), {}, None, False),))
    assert against_realtime(job, facts, "auto", free_slots=3) == ""
    assert "--slots" in not_realtime(against_realtime(job, facts, "auto", free_slots=2))
    with pytest.raises(TaskManagerError, check=breaks("real-time")):
        against_realtime(job, facts, "realtime", free_slots=2)
    with pytest.raises(TaskManagerError, check=breaks("real-time")) as theirs:
        against_realtime(job, facts, "realtime", free_slots=2, kind="connect")
    assert "--slots" not in str(theirs.value)  # an option of servers that are started here


def test_where_only_batches_tell_how_busy_a_server_is_real_time_mode_has_to_be_asked_for() -> None:
    facts = PlanFacts(keeps_state=False, read={})
    home = manager()
    one = instance(home, Query())
    one.facts = facts
    for meter, ui, told in ((None, None, True), (None, "http://there:4040", False), (object(), None, False)):
        home.cpu_meter, home.ui = meter, ui  # type: ignore[assignment]
        assert bool(one._against_realtime(facts)) == told
    home.cpu_meter = home.ui = None
    for asked in (replace(one.job, max_latency_s=0.1), one.job):
        one.job = asked
        one.mode_wanted = "auto" if asked.max_latency_s else "realtime"
        assert one._against_realtime(facts) == ""


def test_groups_that_are_read_with_state_are_emitted_once_in_micro_batches() -> None:
    facts = PlanFacts(keeps_state=True)
    assert output_modes(JOB, realtime=False) == ("update", "append")
    hurried = replace(JOB, max_latency_s=0.1)
    assert against_realtime(hurried, facts, "auto") == ""
    chained = replace(hurried, chained=True)
    assert output_modes(chained, realtime=False) == ("append",)
    assert against_realtime(chained, facts, "auto") == GROUPS_ONCE
    with pytest.raises(TaskManagerError, check=breaks("real-time", value=GROUPS_ONCE)):
        against_realtime(chained, facts, "realtime")


def test_too_few_slots_are_no_failure_of_the_query() -> None:
    assert refuses_realtime(TOO_FEW)
    assert "--slots" in not_realtime(TOO_FEW)
    for kind in ("connect", "attached"):
        assert "--slots" not in not_realtime(TOO_FEW, kind)
        assert "local[N]" in not_realtime(TOO_FEW, kind)
    with pytest.raises(SetupError, check=breaks("positive", value=0)):
        ServerOptions(slots=0)
