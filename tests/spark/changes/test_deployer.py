"""What a deployment does about runs that don't end, and which output its instances write to: no server, no broker."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.types import IntegerType, StructType

from qod_magics.application.recipes.python import PythonRecipe
from qod_magics.application.tasks import TaskSpec, tasks
from qod_magics.errors import TaskManagerError
from qod_magics.lifecycle.events import State
from qod_magics.spark.changes import deployer as module
from qod_magics.spark.changes.deployer import Deployer
from qod_magics.spark.changes.new_input import NewInput
from qod_magics.spark.cluster.books import Account
from qod_magics.spark.cluster.cluster import Patience
from qod_magics.spark.plans.checking import Checked
from qod_magics.spark.plans.job import PlanFacts
from qod_magics.spark.plans.labels import Column, Label, Labels
from qod_magics.spark.queries.instance import Instance
from qod_magics.spark.servers.task_manager import TaskManager
from tests.application.frames import application, stream
from tests.kafka.fakes import FakeKafka
from tests.raising import breaks
from tests.spark.fakes import (
    BOARD,
    FakeTaskManager,
    Parts,
    Query,
    Script,
    cluster,
    fake_inspection,
    instance,
    kinds,
    manager,
    runs,
    soon,
)
from tests.texts import tells


class Deaf(Query):
    """A query that can't be stopped until it `hears`."""

    def __init__(self) -> None:
        super().__init__()
        self.hears = False
        self.asked = 0

    def stop(self) -> None:
        self.asked += 1
        super().stop()
        if not self.hears:
            raise ConnectionError("nobody answers")
        self.isActive = False


class Deployed:
    """A deployer whose deployments ask no broker."""

    def __init__(self, *managers: TaskManager, instances: tuple[Instance, ...] = ()) -> None:
        self.cluster = cluster(*managers, instances=instances)
        self.parts = Parts(self.cluster)
        self.there = {0: 0}  # end offsets of every topic
        history = SimpleNamespace(at=lambda topic, now: self.there, forget=lambda topic: None)
        metrics: Any = SimpleNamespace(sample=lambda: None, history=history)
        self.deployer = Deployer(self.cluster, self.parts.lifecycle, metrics, "/nowhere")
        self.cluster.patience = Patience(batch_s=-1.0)  # no report is waited for
        self.kafka = FakeKafka()
        self.cluster.deployment.kafka = self.kafka
        rows = StructType([])
        self.cluster.deployment.inspection = fake_inspection(
            lambda specs: Checked(dict.fromkeys([spec.id for spec in specs], rows))
        )
        if instances:
            self.cluster.deployment.specs = {"T": declared()[0]}
            self.deployer._generation["T"] = 1

    def look(self) -> None:
        """As the watcher does, once a second."""
        self.parts.recovery.retry()


def starts(one: Instance, home: TaskManager) -> None:
    """At once."""


def declared(**settings: Any) -> tuple[TaskSpec, ...]:
    return tasks(application(stream("T", priority=1, **settings)))


def running(query: Query, make: Callable[..., Instance] = Instance) -> tuple[Instance, Deployed]:
    home = manager()
    one = instance(home, query, make)
    return one, Deployed(home, instances=(one,))


# -- runs that don't end -----------------------------------------------------------------------------------------------


def test_a_run_that_could_not_be_stopped_before_is_stopped_with_its_stream() -> None:
    query = Deaf()
    one, made = running(query)
    with pytest.raises(ConnectionError):
        one.stop()
    made.parts.lifecycle.fail(one, "not moved")
    assert (one.state, one.query, one.unended) == (State.BACKING_OFF, None, query)
    query.hears = True
    made.deployer.deploy(())
    assert (query.isActive, one.unended) == (False, None)
    assert kinds(made.cluster) == ["query-failed"]


def test_a_run_that_can_not_be_stopped_is_told_of_and_stopped_once_it_can_be() -> None:
    query = Deaf()
    _, made = running(query)
    made.deployer.deploy(())
    assert made.cluster.instances == {}
    (event,) = made.cluster.events
    assert (event.kind, event.detail["instance"], event.detail["task_manager"]) == ("query-not-stopped", "T.1", "tm1")
    assert tells(event.detail["why"], "nobody answers")
    made.look()
    soon(lambda: query.asked == 2)
    query.hears = True
    soon(lambda: made.look() or not query.isActive)  # type: ignore[func-returns-value]
    soon(lambda: made.look() or not made.cluster.lingering)  # type: ignore[func-returns-value]
    asked = query.asked
    made.look()
    assert query.asked == asked
    assert kinds(made.cluster) == ["query-not-stopped"]


def test_while_one_attempt_hangs_no_other_is_begun() -> None:
    query = Deaf()
    _, made = running(query)
    made.deployer.deploy(())
    query.gate.clear()
    for _ in range(5):
        made.look()
    soon(lambda: query.asked == 2)
    assert [thread.name for thread in threading.enumerate()].count("qod-stop-T.1") == 1
    query.hears = True
    query.gate.set()
    soon(lambda: made.look() or not made.cluster.lingering)  # type: ignore[func-returns-value]
    assert query.asked == 2


def test_a_stop_that_takes_too_long_is_told_of_and_waited_for() -> None:
    query = Deaf()
    query.gate.clear()
    one, made = running(query)
    made.cluster.patience = replace(made.cluster.patience, step_s=0.1)
    made.deployer.deploy(())
    assert kinds(made.cluster) == ["query-not-stopped"]
    made.look()
    assert made.cluster.lingering == [one]
    query.hears = True
    query.gate.set()
    soon(lambda: made.look() or not made.cluster.lingering)  # type: ignore[func-returns-value]
    assert (one.query, one.unended, query.isActive) == (None, None, False)


def test_a_run_whose_task_manager_is_gone_is_not_asked_again() -> None:
    query = Deaf()
    _, made = running(query)
    made.deployer.deploy(())
    made.cluster.task_managers.clear()
    made.look()
    assert made.cluster.lingering == []
    assert query.asked == 1


def test_a_run_that_ended_is_not_told_of_though_its_last_report_is_lost() -> None:
    def poll(_: Instance) -> bool:
        raise ConnectionError("nobody answers")

    _, made = running(Query(), Script(starts, poll).make)
    made.deployer.deploy(())
    assert (kinds(made.cluster), made.cluster.lingering) == ([], [])


def test_an_instance_that_a_failed_deployment_put_back_is_left_to_its_restart() -> None:
    """Its new run is not the one that could not be stopped."""
    query = Deaf()
    one, made = running(query)
    with pytest.raises(TaskManagerError, check=breaks("stoppable", name="T.1")):
        made.deployer.deploy(declared(trigger_s=5.0))
    assert made.cluster.all_instances == [one]
    assert (one.state, one.unended) == (State.BACKING_OFF, query)
    assert kinds(made.cluster) == ["query-not-stopped"]
    one.life.retry_at = float("inf")
    made.look()
    assert made.cluster.lingering == []


def test_a_deployment_that_is_interrupted_twice_puts_back_what_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    """Impatient users press the button again while what has begun is being stopped."""
    one, made = running(Query())
    before, calls, gather = made.cluster.deployment.specs, list[int](), module.gather

    def interrupted(wanted: Any, timeout_s: float) -> Any:
        calls.append(len(wanted))
        if len(calls) > 1:  # what ran has been stopped: now the new one starts, and then is stopped
            raise KeyboardInterrupt
        return gather(wanted, timeout_s)

    monkeypatch.setattr(module, "gather", interrupted)
    with pytest.raises(KeyboardInterrupt):
        made.deployer.deploy(declared(trigger_s=5.0))
    assert calls == [1, 1, 1]
    assert made.cluster.all_instances == [one]
    assert one.state is State.BACKING_OFF  # the watcher starts it
    assert made.cluster.deployment.specs == before


def test_what_a_failed_deployment_was_stopped_in_is_read_again_by_what_it_puts_back() -> None:
    one, made = running(Query())

    def start(new: Instance, home: TaskManager) -> None:
        new.query = Query()  # type: ignore[assignment]
        raise TaskManagerError("it can't go on", rule="starts")

    made.cluster.make = Script(start).make
    with pytest.raises(TaskManagerError, check=breaks("starts")):
        made.deployer.deploy(declared(trigger_s=5.0))
    assert made.cluster.all_instances == [one]
    assert one.interrupted


def test_an_interrupt_while_old_topics_are_deleted_does_not_hide_that_it_was_deployed() -> None:
    """The session would take the streams before for those that run, and the next declaration put them back."""
    _, made = running(Query())

    def interrupted(operation: str, topic: str) -> None:
        if operation == "delete":
            raise KeyboardInterrupt

    made.cluster.deployment.results = {"T": "qod.s.a.b.1"}
    made.kafka.create("qod.s.a.b.1")
    made.kafka.fail = interrupted
    assert made.deployer.deploy(())
    assert made.cluster.leftover_topics == {"qod.s.a.b.1"}  # deleted at the end


# -- where the output goes ---------------------------------------------------------------------------------------------


@pytest.fixture
def made() -> Deployed:
    """Starts everything but what has a recipe with "broken" in it."""
    made = Deployed(manager())

    def start(one: Instance, home: TaskManager) -> None:
        if "broken" in str(made.cluster.deployment.specs[one.job.task].tail.recipe):
            raise TaskManagerError("it can't start", rule="starts")

    made.cluster.make = Script(start).make
    return made


def roll_back(made: Deployed, specs: Sequence[TaskSpec]) -> None:
    """Have a deployment fail in which the last of these tasks has another recipe."""
    spec = specs[-1]
    broken = replace(spec, streams=(*spec.streams[:-1], replace(spec.tail, recipe=PythonRecipe("broken"))))
    with pytest.raises(TaskManagerError, check=breaks("starts")):
        made.deployer.deploy((*specs[:-1], broken))


def test_a_query_that_follows_its_checkpoint_writes_to_its_output(made: Deployed) -> None:
    """A deployment that was rolled back has counted a new checkpoint, which nobody uses."""
    made.deployer.deploy(declared())
    (before,) = made.cluster.all_instances
    roll_back(made, declared())
    made.deployer.deploy(declared(trigger_s=5.0))
    (after,) = made.cluster.all_instances
    assert after is not before
    assert (after.checkpoint, after.job.run) == (before.checkpoint, before.job.run)
    assert after.job.trigger_s == 5.0


def test_a_task_that_is_put_back_sheds_as_before_and_goes_on_counting(made: Deployed) -> None:
    """Until the next plan it would keep every row, which is what an overload can't have."""
    made.deployer.deploy(declared())
    dials = {BOARD.source("T"): 0.3, BOARD.accuracy("T"): 0.3, BOARD.pace("T.1"): 0.5}
    made.cluster.dials |= dials
    counts = made.cluster.own_source["T"] = [30, 70]
    (other,) = tasks(application(stream("U", priority=1)))
    broken = replace(other, streams=(replace(other.tail, recipe=PythonRecipe("broken")),))
    with pytest.raises(TaskManagerError, check=breaks("starts")):
        made.deployer.deploy((broken,))
    assert [one.id for one in made.cluster.all_instances] == ["T.1"]
    assert made.cluster.dials == dials
    assert made.cluster.own_source == {"T": [30, 70]}
    assert made.cluster.own_source["T"] is counts


def test_what_shedding_does_to_columns_is_known_once_a_restriction_lets_it(made: Deployed) -> None:
    made.deployer.deploy(declared())
    deployment = made.cluster.deployment
    kept, other = Labels((Column("n", Label.KEPT),)), Labels((Column("n", Label.EXACT),))
    deployment.checked = Checked({"T": "schema"}, labels={"gone": other})  # type: ignore[dict-item]
    made.deployer.restrict(declared(min_accuracy=0.5), {"T": kept, "fused since": other})
    assert deployment.specs["T"].min_accuracy == 0.5
    assert (deployment.checked.labels, deployment.checked.schemas) == ({"T": kept}, {"T": "schema"})
    made.deployer.restrict(declared(min_accuracy=0.4))
    assert deployment.checked.labels == {"T": kept}


@pytest.mark.parametrize("answers", [True, False])
def test_the_next_batch_is_held_while_a_query_that_reads_on_is_stopped(made: Deployed, answers: bool) -> None:
    """Else it could send rows which the run after it sends again. It is stopped, too, where nothing can be held."""

    def deploy(**settings: Any) -> Instance:
        made.deployer.deploy(tasks(application(stream("T", topic="t", priority=1, **settings))))
        (found,) = made.cluster.all_instances
        return found

    made.cluster.deployment.accounts["T"] = Account("t", {0: 0})
    made.cluster.deployment.source_partitions["T"] = 1
    one, home, query = deploy(), FakeTaskManager(), Query()
    runs(one, query)
    one.task_manager, one.mode, home.mute_dials = home, "micro-batch", not answers  # type: ignore[assignment]
    query.status = {"isTriggerActive": False}  # type: ignore[attr-defined]
    made.cluster.patience = Patience(batch_s=-0.5)
    deploy(trigger_s=5.0)
    assert one.query is None
    held, *then = home.turned or [{}]
    assert (held.keys() == {BOARD.pace("T.1")}) is answers
    assert not made.cluster.holding
    assert len(then) == answers


def test_a_query_with_a_new_checkpoint_writes_to_an_output_of_its_own(made: Deployed) -> None:
    made.deployer.deploy(declared())
    (before,) = made.cluster.all_instances
    specs = declared()
    made.deployer.deploy([replace(specs[0], streams=(replace(specs[0].tail, recipe=PythonRecipe("other")),))])
    (after,) = made.cluster.all_instances
    assert after.checkpoint != before.checkpoint
    assert after.job.run != before.job.run


def test_a_query_that_keeps_state_and_gets_other_input_columns_says_that_it_loses_its_state(made: Deployed) -> None:
    """Its own recipe is the same: only the columns of the stream that it reads are others."""
    source = stream("S", fuse=False)
    reader = stream("Q", "S", priority=1, fuse=False)
    deployment = made.cluster.deployment
    columns = {"S": StructType([]), "Q": StructType([])}
    deployment.inspection = fake_inspection(lambda specs: Checked({spec.id: columns[spec.id] for spec in specs}))
    made.deployer.deploy(tasks(application(source, reader)))
    for one in made.cluster.all_instances:
        one.begun, one.facts = True, PlanFacts(keeps_state=one.job.task == "Q")
    columns["S"] = StructType().add("zone", IntegerType())
    other = replace(source, recipe=PythonRecipe("source.select('zone')"))
    made.deployer.deploy(tasks(application(other, reader)))
    assert made.deployer.lost_state == {"Q"}
    (event,) = [event for event in made.cluster.events if event.kind == "state-begins-anew"]
    assert event.detail["task"] == "Q"
    assert set(made.cluster.incomplete.lost_at) == {"Q"}


def test_a_query_that_reads_new_partitions_keeps_its_output(made: Deployed) -> None:
    specs = tasks(application(stream("T", topic="t", priority=1)))
    made.cluster.deployment.accounts["T"] = Account("t", {0: 0})
    made.cluster.deployment.source_partitions["T"] = 1
    made.deployer.deploy(specs)
    (one,) = made.cluster.all_instances
    run = one.job.run
    roll_back(made, specs)
    made.there[1] = 0
    NewInput(made.deployer, made.deployer.metrics.history).read_partitions()
    assert made.cluster.all_instances == [one]
    assert (one.job.feeds[0].partitions, one.job.run) == ((0, 1), run)


@pytest.mark.parametrize("parallelism", [2, 3])
def test_a_task_declared_with_the_instances_that_it_was_scaled_to_keeps_its_state(
    made: Deployed, parallelism: int
) -> None:
    declared_as: dict[str, Any] = {"priority": 1, "fuse": False, "key": "k", "max_parallelism": 4}
    columns = {"S": StructType([]), "Q": StructType([])}
    deployment = made.cluster.deployment
    deployment.inspection = fake_inspection(lambda _: Checked(columns, signatures={"Q": "counts"}))
    made.deployer.deploy(tasks(application(stream("S", fuse=False), stream("Q", "S", **declared_as))))
    deployment.reassign(deployment.specs["Q"], 2)
    made.cluster.put(made.deployer._instances(deployment.specs["Q"], True))
    for one in made.cluster.all_instances:
        one.begun, one.facts, one.life.state = True, PlanFacts(keeps_state=one.job.task == "Q"), State.RUNNING
    checkpoints = {one.id: one.checkpoint for one in made.cluster.instances_of("Q")}
    assert len(checkpoints) == 2
    again = stream("Q", "S", **declared_as, parallelism=parallelism)
    made.deployer.deploy(tasks(application(stream("S", fuse=False), again)))
    now = {one.id: one.checkpoint for one in made.cluster.instances_of("Q")}
    kept = parallelism == 2
    assert (now == checkpoints) is kept
    assert len(now) == parallelism
    assert made.deployer.lost_state == (frozenset() if kept else {"Q"})
