"""What happens around calls that hang: by hand, with gates in the place of servers that freeze."""

from __future__ import annotations

import ast
import inspect
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import fields, replace
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import qod_magics
from qod_magics.errors import TaskManagerError
from qod_magics.lifecycle.events import (
    Cause,
    Failed,
    StartAsked,
    Started,
    StartQuery,
    State,
    StopAsked,
)
from qod_magics.lifecycle.query import RECOVERED_AFTER_S, QueryLife
from qod_magics.spark.changes.recovery import AWAY_S, LATE_S, Recovery
from qod_magics.spark.cluster.cluster import Cluster, Patience
from qod_magics.spark.cluster.deployment import Deployment
from qod_magics.spark.cluster.reports import take_reports
from qod_magics.spark.plans.dial import written
from qod_magics.spark.plans.job import Feed
from qod_magics.spark.queries.instance import Instance
from qod_magics.spark.queries.progress import Batch
from qod_magics.spark.servers.connection import begin
from qod_magics.spark.servers.task_manager import TaskManager
from tests.raising import breaks
from tests.spark.batches import batch
from tests.spark.fakes import BOARD, Home, Parts, Query, Script, cluster, instance, kinds, manager, runs, soon
from tests.texts import tells

PATIENCE = Patience()

# -- failures ----------------------------------------------------------------------------------------------------------


def test_waits_grow_and_the_last_failure_is_said_aloud(back_off: tuple[float, ...]) -> None:
    home = manager()
    one = instance(home, Query())
    made = cluster(home, instances=(one,))
    for wait_s in back_off:
        runs(one, Query())
        Parts(made).lifecycle.fail(one, "it broke")
        assert one.state is State.BACKING_OFF
        assert one.query is None
        assert made.events[-1].detail["retry_in_s"] == wait_s
        assert one.life.retry_at - time.monotonic() == pytest.approx(wait_s, abs=0.5)
    runs(one, Query())
    Parts(made).lifecycle.fail(one, "it broke")
    assert one.state is State.GAVE_UP
    assert made.events[-1].detail == {
        "instance": "T.1",
        "task_manager": "tm1",
        "why": "it broke",
        "gave_up": True,
        "failures": 3,
    }


def test_a_query_that_ran_for_long_has_recovered(back_off: tuple[float, ...]) -> None:
    home = manager()
    one = instance(home, Query())
    made = cluster(home, instances=(one,))
    one.life.failures = 3
    one.life.started_at, one.life.batches = time.monotonic() - RECOVERED_AFTER_S - 1, 1
    Parts(made).lifecycle.fail(one, "after all")
    assert (one.state, one.failures) == (State.BACKING_OFF, 1)


def test_restarts_that_fail_after_a_long_run_come_to_an_end(back_off: tuple[float, ...]) -> None:
    """The long run counts once: those that fail at their start have not run."""
    home = manager()
    one = instance(home, Query())
    made = cluster(home, instances=(one,))
    one.life.started_at, one.life.batches = time.monotonic() - RECOVERED_AFTER_S - 1, 1
    for _ in (*back_off, "once more"):
        Parts(made).lifecycle.fail(one, "no such table")
        one.handle(StartAsked()) if one.state is State.BACKING_OFF else None
    assert [event.detail.get("retry_in_s") for event in made.events] == [*back_off, None]
    assert one.state is State.GAVE_UP


def test_who_lost_his_task_manager_did_not_fail(back_off: tuple[float, ...]) -> None:
    """A start that breaks off because the server died is not the query's fault, and is not tried there again."""
    gone, left = manager("tm1"), manager("tm2")
    one = instance(gone, Query())
    made = cluster(left, instances=(one,))
    Parts(made).lifecycle.fail(one, "connection refused")
    assert (one.state, one.failures, one.task_manager) == (State.WAITING, 0, None)
    assert kinds(made) == []


def test_a_late_failure_of_where_it_was_before_is_none_of_its_present_home(back_off: tuple[float, ...]) -> None:
    old, new = manager("tm1"), manager("tm2")
    query = Query()
    one = instance(new, query)
    made = cluster(old, new, instances=(one,))
    Parts(made).lifecycle.fail_on(one, old, "too late")
    assert (one.state, one.query) == (State.RUNNING, query)


def test_a_run_whose_last_reports_can_not_be_had_is_ended_before_the_next_begins(back_off: tuple[float, ...]) -> None:
    """Two at once would write rows twice, and Spark refuses a second query of a name."""
    home, query, stopped = manager(), Query(), list[str]()
    query.stop = lambda: stopped.append("tm1")  # type: ignore[method-assign]

    def poll(_: Instance) -> bool:
        raise ConnectionError("nobody answers")

    one = instance(home, query, Script(poll=poll).make)
    one.mode = "micro-batch"
    one.job = replace(one.job, feeds=(Feed("T", ("T",), "t", (0,), {0: 0}, None, False),))  # type: ignore[arg-type]
    watched = Parts(cluster(home, instances=(one,)))
    watched.mover.restart(one)
    assert (one.state, one.query, one.unended, one.books_differ) == (State.BACKING_OFF, None, query, True)
    with pytest.raises(TaskManagerError, match=r"^T\.1 .* tm1: (?!its previous run)"):
        watched.lifecycle.start(one, home)  # the stand-in runs no query
    assert (stopped, one.unended) == (["tm1"], None)


def test_of_a_run_that_ended_by_itself_nothing_is_left_to_stop(back_off: tuple[float, ...]) -> None:
    """Spark forgets such a query after a while: it could not be stopped then, and its instance not be started."""
    one = instance(manager(), Query())
    assert one.task_manager is not None
    watched = Parts(cluster(one.task_manager, instances=(one,)))
    one.ended_run = ("r", "it ended")
    watched.recovery.restart_ended()
    assert (one.state, one.query, one.unended) == (State.BACKING_OFF, None, None)


def test_a_move_to_where_it_is_does_not_hide_that_it_does_not_run() -> None:
    home = manager()
    one = instance(home)
    one.life.state = State.BACKING_OFF
    made = cluster(home, instances=(one,))
    started: list[str] = []
    watched = Parts(made)
    watched.lifecycle.start = lambda i, m: started.append(m.id)  # type: ignore[method-assign]
    watched.move(one, home, "by hand")
    assert started == ["tm1"]


def starts(watched: Parts, but_not_on: TaskManager) -> list[str]:
    """Instances start at once, but not on this task manager; returns the task managers that were tried, in order."""
    tried: list[str] = []

    def start(i: Instance, m: TaskManager) -> None:
        tried.append(m.id)
        i.task_manager = m
        if m is but_not_on:
            raise TaskManagerError(f"{i.id} can't start on {m.id}: no jar")
        i.handle(StartAsked())
        i.handle(Started(i.life.run))

    watched.lifecycle.start = start  # type: ignore[method-assign]
    return tried


def test_a_move_says_why_it_did_not_take_place() -> None:
    source, target, third = manager("tm1"), manager("tm2"), manager("tm3")
    one = instance(source, Query())
    made = cluster(third, source, target, instances=(one,))
    watched = Parts(made)
    started = starts(watched, but_not_on=target)
    assert tells(watched.move(one, target, "by hand"), "T.1", "tm2", "no jar")
    assert (started, one.state, one.task_manager) == (["tm2", "tm3"], State.RUNNING, third)
    assert watched.move(one, source, "by hand") == ""
    one.query = Query()  # type: ignore[assignment]
    one.query.stop = lambda: 1 / 0  # type: ignore[method-assign]
    assert tells(watched.move(one, third, "by hand"), "stopped", "division by zero")


def elsewhere(unplaced: Any, there: Any, running: Any) -> Mapping[str, str]:
    """On the first task manager that is not forbidden."""
    (asked,) = unplaced
    left = [each.id for each in there if each.id not in asked.forbidden]
    return {asked.instance: left[0]} if left else {}


@pytest.mark.parametrize("third", [False, True])
def test_a_move_is_told_from_where_it_was_to_where_it_came_and_not_at_all_if_it_went_back(third: bool) -> None:
    source, target, other = manager("tm1"), manager("tm2"), manager("tm3")
    one = instance(source, Query())
    made = cluster(source, target, *([other] if third else []), instances=(one,))
    watched = Parts(made)
    started = starts(watched, but_not_on=target)
    made.place = elsewhere
    stopped_at = time.time()
    assert tells(watched.move(one, target, "by hand"), "T.1", "tm2", "no jar")
    if not third:
        one.life.retry_at = 0.0
        watched.recovery.retry()
        soon(lambda: one.state is State.RUNNING)
    now = time.time()
    one.run_id = "next"
    one.meter.add(batch(0, now, now + 1.0, run="next"))
    take_reports(made, one)
    told = [event.detail for event in made.events if event.kind == "move"]
    assert [(each["from"], each["to"]) for each in told] == ([("tm1", "tm3")] if third else [])
    assert all(each["took_s"] <= now - stopped_at + 0.01 for each in told)
    assert started == ["tm2", "tm3" if third else "tm1"]


def test_a_move_ends_where_it_began_once_no_task_manager_can_start_it() -> None:
    """It went to and fro between those that could not."""
    source, *others = manager("tm1"), manager("tm2"), manager("tm3")
    one = instance(source, Query())
    made = cluster(source, *others, instances=(one,))
    watched, started = Parts(made), list[str]()

    def start(i: Instance, m: TaskManager) -> None:
        started.append(m.id)
        i.task_manager = m
        raise TaskManagerError(f"T.1 can't start on {m.id}: no jar")

    made.place = elsewhere
    watched.lifecycle.start = start  # type: ignore[method-assign]
    watched.move(one, others[0], "by hand")
    assert (started, one.task_manager, one.state, one.move) == (["tm2", "tm3"], source, State.BACKING_OFF, None)


def stopped_by_a_deployment() -> tuple[Instance, Cluster, TaskManager]:
    home, away = manager("tm1"), manager("tm2")
    one = instance(home, Query())
    assert one.handle(StopAsked())
    return one, cluster(home, away, instances=(one,)), away


def test_what_a_deployment_stopped_is_started_by_nobody(back_off: tuple[float, ...]) -> None:
    """It would write beside the instance that replaces it."""
    one, made, away = stopped_by_a_deployment()
    parts = Parts(made)
    one.ended_run = ("r", "it ended")
    parts.lifecycle.fail(one, "it broke")
    parts.recovery.restart_ended()
    parts.recovery.retry()
    parts.recovery.place_waiting()
    parts.mover.restart(one)
    with pytest.raises(TaskManagerError, check=breaks("running", name="T.1")):
        parts.move(one, away, "by hand")
    one.detach()
    parts.recovery.place_waiting()
    assert one.state is State.STOPPED
    assert one.query is None
    assert kinds(made) == []


CHANGING = {"add", "append", "clear", "discard", "extend", "pop", "popleft", "remove", "setdefault", "update"}


@cache
def writes(path: Path) -> tuple[tuple[str, str, str], ...]:
    """What a module writes to attributes of other objects, `x.name` or `x.name[...]`: whose, which, and how."""
    found = []
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = [each for target in node.targets for each in getattr(target, "elts", [target])]
        elif isinstance(node, ast.AugAssign | ast.AnnAssign):
            targets = [node.target]
        elif isinstance(node, ast.Delete):
            targets = node.targets
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGING:
            targets = [node.func.value]
        for target in targets:
            while isinstance(target, ast.Subscript):
                target = target.value
            if isinstance(target, ast.Attribute):
                whose = ast.unparse(target.value).split(".")[-1]
                found.append((whose, target.attr, f"{path.stem}: {ast.unparse(node)}"))
    return tuple(found)


#: Names by which modules call objects whose fields only their class writes.
INSTANCES = ("instance", "i", "one", "each", "new", "old", "sender", "before", "last", "made", "query")


@pytest.mark.parametrize(
    ("names", "owner", "home"),
    [
        (("life",), QueryLife, "query"),
        (INSTANCES, Instance, "instance"),
        (("cluster",), Cluster, "cluster"),
        (("deployment",), Deployment, "deployment"),
    ],
)
def test_only_its_class_changes_the_fields_of_an_object(names: Sequence[str], owner: type, home: str) -> None:
    package = Path(inspect.getfile(qod_magics)).parent
    owned = dict.fromkeys(names, {each.name for each in fields(owner)} | {"life", "state"})
    parts = ("spark", "session", "notebook", "simulator/rates")
    files = [path for part in parts for path in package.glob(f"{part}/**/*.py")]
    assert len(files) > 80
    written = [each for path in files if path.stem != home for each in writes(path)]
    assert [line for whose, name, line in written if name in owned.get(whose, ())] == []


def test_what_was_stopped_for_a_deployment_that_failed_runs_again() -> None:
    one, _, _ = stopped_by_a_deployment()
    one.reinstate()
    assert one.state is State.BACKING_OFF
    assert one.life.retry_at <= time.monotonic()
    one.handle(StopAsked())
    one.detach()
    assert one.state is State.STOPPED
    one.reinstate()
    assert one.state is State.WAITING


def test_what_is_placed_where_a_task_manager_has_just_left_waits_on() -> None:
    """As one that moves, it would be placed by nobody any more."""
    home, one = manager(), instance()
    made = cluster(home, instances=(one,))
    watched, started = Parts(made), list[str]()
    watched.lifecycle.start = lambda i, m: started.append(m.id)  # type: ignore[method-assign]
    place = made.place

    def place_and_lose(*asked: Any) -> Mapping[str, str]:
        made.task_managers.pop("tm1")
        return place(*asked)

    made.place = place_and_lose
    watched.recovery.place_waiting()
    assert (one.state, started) == (State.WAITING, [])
    made.place, made.task_managers["tm1"] = place, home
    watched.recovery.place_waiting()
    soon(lambda: started == ["tm1"])


def test_what_was_given_up_for_want_of_a_topic_starts_when_it_is_back() -> None:
    home = manager()
    one, other = instance(home, Query()), instance(home, Query())
    feed = Feed("T", ("T",), "lost", (0,), {0: 0}, None, False)  # type: ignore[arg-type]
    one.job = replace(one.job, feeds=(feed,))
    made = cluster(home, instances=(one,))
    made.instances["U.1"] = other
    parts = Parts(made)
    for each in (one, other):
        give_up(each)
    made.missing_topics = {"lost": "there is none"}
    parts.recovery.restart_readers()
    assert one.state is State.GAVE_UP
    made.missing_topics = {}
    parts.recovery.restart_readers()
    assert (one.state, one.failures) == (State.BACKING_OFF, 0)
    assert one.life.retry_at <= time.monotonic()
    assert (other.state, other.failures) == (State.GAVE_UP, 0)


def test_what_was_given_up_while_a_broker_was_away_starts_when_it_is_back() -> None:
    home, clock = manager(), [100.0]
    one, late, wrong = instance(home, Query()), instance(home, Query()), instance(home, Query())
    late.job, wrong.job = replace(one.job, instance="T.2"), replace(one.job, instance="T.3")
    made = cluster(home, instances=(one, late, wrong))
    recovery = Recovery(made, Parts(made).lifecycle, lambda: clock[0])

    def silent(seconds: float) -> None:
        made.silent_kafka = {"own:1": "no answer"}
        recovery.restart_cut_off()
        clock[0] += seconds
        recovery.restart_cut_off()
        made.silent_kafka = {}
        recovery.restart_cut_off()

    tire(one)
    give_up(wrong)
    silent(AWAY_S / 2)
    assert one.state is State.GAVE_UP, "it was not away"
    silent(2 * AWAY_S)
    assert (one.state, one.failures) == (State.BACKING_OFF, 0)
    tire(late)  # its last try began while the broker was away
    recovery.restart_cut_off()
    assert late.state is State.BACKING_OFF
    tire(late)
    clock[0] += LATE_S + 1
    recovery.restart_cut_off()
    assert (late.state, wrong.state) == (State.GAVE_UP, State.GAVE_UP)


def test_what_lost_its_task_manager_as_well_waits_for_another_when_its_topic_is_back() -> None:
    home = manager()
    one = instance(home, Query())
    feed = Feed("T", ("T",), "lost", (0,), {0: 0}, None, False)  # type: ignore[arg-type]
    one.job = replace(one.job, feeds=(feed,))
    made = cluster(instances=(one,))
    parts = Parts(made)
    give_up(one)
    one.detach()
    made.missing_topics = {"lost": "there is none"}
    parts.recovery.restart_readers()
    made.missing_topics = {}
    parts.recovery.restart_readers()
    assert one.state is State.WAITING


def test_what_was_given_up_starts_again_where_it_is_asked_for(back_off: tuple[float, ...]) -> None:
    home = manager()
    one, other, homeless = instance(home, Query()), instance(home, Query()), instance()
    other.job, homeless.job = replace(one.job, task="U", instance="U.1"), replace(one.job, instance="T.2")
    made = cluster(home, instances=(one, other, homeless))
    parts, started = Parts(made), list[tuple[str, str]]()
    for each in (one, other):
        for _ in (*back_off, "the last"):
            each.handle(StartAsked())
            parts.lifecycle.fail(each, "it broke")
    give_up(homeless)
    assert parts.recovery.restart_given_up({"T"}) == ("T.1", "T.2")
    assert (one.state, one.failures, one.checkpoint) == (State.BACKING_OFF, 0, "/nowhere")
    assert (other.state, homeless.state) == (State.GAVE_UP, State.WAITING)
    assert parts.recovery.restart_given_up({"T"}) == ()
    parts.lifecycle.start = lambda i, m: started.append((i.id, m.id))  # type: ignore[method-assign]
    parts.recovery.retry()
    soon(lambda: started == [("T.1", "tm1")])


def give_up(one: Instance) -> None:
    one.handle(StartAsked())
    one.handle(Failed("the topic is gone", Cause.CERTAIN))


def tire(one: Instance) -> None:
    """Have it fail for a cause that may pass until it is given up."""
    while one.state is not State.GAVE_UP:
        one.handle(StartAsked())
        one.handle(Failed("timed out"))


def moving() -> tuple[Instance, Home, Cluster, Query, list[str]]:
    """A query that moves from tm1 to tm2 and does not end, and where it was started."""
    old, new, started = manager("tm1"), manager("tm2"), list[str]()
    query = Query()
    query.gate.clear()
    one = instance(old, query, Script(lambda _, home: started.append(home.id)).make)
    made = cluster(old, new, instances=(one,))
    made.patience = replace(made.patience, stop_s=0.1)
    watched = Parts(made)
    begin(lambda: watched.move(one, new, "by hand"), "move").add_done_callback(lambda _: started.append("over"))
    soon(lambda: kinds(made) == ["move-waits"])
    return one, old, made, query, started


def test_a_query_starts_nowhere_else_before_it_has_ended() -> None:
    """Two at once would write their rows twice."""
    one, _, made, query, started = moving()
    assert started == []
    query.gate.set()
    soon(lambda: started == ["tm2", "over"])
    assert one.move is not None
    assert (one.move.source, one.move.target) == ("tm1", "tm2")
    assert kinds(made) == ["move-waits"]


def test_a_start_ends_a_run_that_another_call_began_meanwhile() -> None:
    home, away, query = manager("tm1"), manager("tm2"), Query()
    stopped: list[str] = []
    query.stop = lambda: stopped.append("tm1")  # type: ignore[method-assign]
    one = instance(home, query)
    watched = Parts(cluster(home, away, instances=(one,)))
    with pytest.raises(TaskManagerError, match=r"^T\.1 .* tm2: "):
        watched.lifecycle.start(one, away)  # the stand-in runs no query
    assert stopped == ["tm1"]
    assert (one.query, one.unended) == (None, None)


@pytest.mark.parametrize("how", ["lost", "removed"])
def test_a_query_that_does_not_end_waits_for_another_task_manager_once_its_own_is_gone(how: str) -> None:
    one, old, made, _, started = moving()
    old.lives = False
    if how == "removed":
        del made.task_managers["tm1"]
    soon(lambda: started == ["over"])
    Parts(made).recovery.recover_lost()
    soon(lambda: one.task_manager is not old)
    assert one.move is not None
    assert (one.move.source, one.move.why) == ("tm1", f"tm1 was {how}")


def test_what_can_not_leave_a_task_manager_that_is_removed_starts_elsewhere_with_all_its_tries(
    back_off: tuple[float, ...],
) -> None:
    """Its moves are tried one after the other: they would use up the tries, and it would be given up."""
    home, away, started = manager("tm1"), manager("tm2"), list[str]()
    one = instance(home, Query())
    made = cluster(home, away, instances=(one,))
    watched = Parts(made)
    watched.lifecycle.start = lambda i, m: started.append(m.id)  # type: ignore[method-assign]
    made.leaving.add("tm1")
    for _ in (*back_off, "one more", "another"):
        one.handle(StartAsked())
        watched.lifecycle.fail(one, "no jar")
    assert (one.state, one.failures, one.task_manager) == (State.BACKING_OFF, 0, home)
    del made.task_managers["tm1"]
    made.leaving.clear()
    watched.recovery.recover_lost()
    soon(lambda: started == ["tm2"])
    assert one.failures == 0
    assert one.move is not None
    assert (one.move.source, one.move.target, one.move.why) == ("tm1", "tm2", "tm1 was removed")


def test_a_query_that_could_not_be_stopped_stays_where_it_is_and_starts_once_it_can_be() -> None:
    home, away, query = manager("tm1"), manager("tm2"), Query()
    deaf, stops = True, list[bool]()

    def stop() -> None:
        stops.append(deaf)
        if deaf:
            raise ConnectionError("nobody answers")

    query.stop = stop  # type: ignore[method-assign]
    one = instance(home, query)
    made = cluster(home, away, instances=(one,))
    watched = Parts(made)
    watched.move(one, away, "by hand")
    assert (one.state, one.task_manager) == (State.BACKING_OFF, home)
    (event,) = made.events
    assert tells(event.detail["why"], "tm2", "nobody answers")
    watched.move(one, away, "once more")
    assert (one.state, one.task_manager, one.unended) == (State.BACKING_OFF, home, query)
    with pytest.raises(TaskManagerError, check=breaks("stoppable", name="T.1")):
        watched.lifecycle.start(one, home)
    deaf = False
    with pytest.raises(TaskManagerError, match=r"^T\.1 .* tm2: (?!its run before)"):
        watched.lifecycle.start(one, away)  # the stand-in runs no query
    assert stops == [True, True, True, False]
    assert one.unended is None


# -- task managers that hang ------------------------------------------------------------------------------------------


class Silent:
    """A task manager with a query, whose last poll failed and that answers nothing since; time passes by `wait` alone.

    Args:
        used_s: the CPU seconds that it has used by a time, in seconds; None: it was not started here.

    """

    due: Callable[[Instance], bool] = staticmethod(lambda _: False)  #: whether its query should write a batch

    def __init__(self, used_s: Callable[[float], float] | None) -> None:
        self.home, self.now = manager("tm1"), 1000.0
        self.home.kind = "connect" if used_s is None else "local"
        self.home.silent_since = self.now
        self.answers(False)
        self.one = instance(self.home, Query())
        self.parts = Parts(cluster(self.home, instances=(self.one,)), lambda: self.now)
        self.home.spent_s = lambda: None if used_s is None else used_s(self.now - 1000.0)

    def answers(self, does: bool) -> None:
        gate = self.home.spark.gate  # type: ignore[attr-defined]
        gate.set() if does else gate.clear()

    def wait(self, seconds: float) -> list[str]:
        """A check of its own each second; the kinds of all events so far."""
        for _ in range(round(seconds)):
            self.now += 1.0
            self.parts.recovery.kill_hung()
            self.parts.recovery.recover_lost(self.due)
            ping = self.parts.recovery._pings.get(self.home)
            if ping is not None and self.home.spark.gate.is_set():  # type: ignore[attr-defined]
                ping.result(10)
        return kinds(self.parts.cluster)


def test_a_task_manager_that_neither_answers_nor_works_is_killed() -> None:
    silent = Silent(lambda at: 7.0)
    assert silent.wait(PATIENCE.hung_s) == []
    assert silent.wait(2) == ["task-manager-hung"]


def test_one_that_is_only_busy_is_not() -> None:
    """However little it gets done in one of the seconds."""
    assert Silent(lambda at: 0.3 * at).wait(5 * PATIENCE.hung_s) == []


def test_one_that_hangs_after_it_was_busy_is_killed() -> None:
    silent = Silent(lambda at: min(at, 40.0))
    assert silent.wait(3 * PATIENCE.hung_s) == []
    assert silent.wait(PATIENCE.hung_s)[:1] == ["task-manager-hung"]


@pytest.mark.parametrize("used_s", [lambda at: 7.0, None])
def test_one_that_answers_is_not_silent_however_long_ago_a_poll_failed(used_s: Callable[[float], float] | None) -> None:
    """Polls are as far apart as the user says, and one fails where one query can't be asked."""
    silent = Silent(used_s)
    assert silent.wait(5.0) == []
    silent.answers(True)
    assert silent.wait(600.0) == []
    silent.answers(False)
    assert silent.wait(PATIENCE.hung_s + 2.0) == ["task-manager-silent" if used_s is None else "task-manager-hung"]


def writing(checkpoint: Path, batch: int) -> None:
    """Have a driver plan a batch."""
    (checkpoint / "offsets").mkdir(exist_ok=True)
    (checkpoint / "offsets" / str(batch)).write_text("v1")
    os.utime(checkpoint / "offsets", (batch, batch))


@pytest.mark.parametrize("case", ["it works on", "no rows wait", "no checkpoint tells", "dead"])
def test_one_behind_a_proxy_is_lost_once_it_writes_nothing_though_rows_wait(case: str, tmp_path: Path) -> None:
    """Its port takes connections, and nothing answers: it may be slow, cut off, or gone."""
    silent, lease_s = Silent(None), PATIENCE.lease_s
    silent.home.ended = False
    silent.due = lambda _: case != "no rows wait"
    if case != "no checkpoint tells":
        silent.one.checkpoint = str(tmp_path)
        writing(tmp_path, 1)
    assert silent.wait(lease_s - 2.0) == ["task-manager-silent"]
    if case == "it works on":
        for batch in range(2, 8):
            writing(tmp_path, batch)
            assert silent.wait(lease_s - 5.0) == ["task-manager-silent"]
        assert silent.wait(10.0)[1:] == ["task-manager-lost"], "now it does not"
    elif case == "dead":
        assert silent.wait(5.0)[1:] == ["task-manager-lost"]
        assert (silent.one.task_manager, silent.one.state) == (None, State.WAITING)
        assert silent.one.books_differ, "it may have written a batch that it could not report"
    else:
        assert silent.wait(5 * lease_s) == ["task-manager-silent"]
        assert silent.one.task_manager is silent.home
    silent.parts.recovery.close()


@pytest.mark.parametrize("case", ["one could not be stopped", "another moves, and works on"])
def test_a_lease_is_that_of_all_runs_that_may_write(case: str, tmp_path: Path) -> None:
    silent, lease_s = Silent(None), PATIENCE.lease_s
    silent.home.ended, silent.due, silent.one.checkpoint = False, lambda _: True, str(tmp_path)
    writing(tmp_path, 1)
    if case == "one could not be stopped":
        silent.one.unended, silent.one.query = silent.one.query, None
        silent.one.life.state = State.BACKING_OFF
        assert silent.one.life.writing
        assert silent.wait(lease_s + 5.0) == ["task-manager-silent", "task-manager-lost"]
    else:
        other = instance(silent.home, Query())
        other.job, other.checkpoint = replace(other.job, instance="T.2", index=1), str(tmp_path / "2")
        Path(other.checkpoint).mkdir()
        other.life.state = State.MOVING
        silent.parts.cluster.put([other])
        for batch in range(1, 8):
            writing(Path(other.checkpoint), batch)
            assert silent.wait(lease_s - 5.0) == ["task-manager-silent"]
        assert silent.wait(10.0)[1:] == ["task-manager-lost"]
    silent.parts.recovery.close()


def test_one_that_is_lost_is_closed_in_the_end_though_its_ping_hangs() -> None:
    silent, closed = Silent(None), threading.Event()
    silent.home.ended, silent.home.close = False, closed.set  # type: ignore[method-assign, assignment]
    silent.parts.cluster.patience = Patience(asked_s=0.2)
    begin(partial(silent.parts.recovery._close, silent.home), "closing")
    assert closed.wait(10.0)
    silent.answers(True)


def test_a_long_batch_is_waited_for(tmp_path: Path) -> None:
    silent, lease_s = Silent(None), PATIENCE.lease_s
    silent.home.ended, silent.due, silent.one.checkpoint = False, lambda _: True, str(tmp_path)
    writing(tmp_path, 1)
    silent.one.meter.spans.append((0.0, Batch("r", 0, 0.0, 2 * lease_s, 0.0, (), 0, {})))
    assert silent.wait(6 * lease_s) == ["task-manager-silent"]
    assert silent.wait(lease_s + 5.0)[1:] == ["task-manager-lost"]
    silent.parts.recovery.close()


def test_one_that_was_lost_by_its_lease_loses_its_queries_once_it_answers(tmp_path: Path) -> None:
    silent, closed = Silent(None), threading.Event()
    silent.home.ended, silent.due, silent.one.checkpoint = False, lambda _: True, str(tmp_path)
    silent.home.close = closed.set  # type: ignore[method-assign, assignment]
    writing(tmp_path, 1)
    silent.wait(PATIENCE.lease_s + 5.0)
    assert not closed.wait(0.2), "it does not answer yet, and would not hear a stop"
    silent.answers(True)
    assert closed.wait(10.0)
    silent.parts.recovery.close()


@pytest.mark.parametrize("gone", [False, True])
def test_one_of_the_users_that_is_silent_is_lost_only_once_it_is_gone(gone: bool) -> None:
    """Its queries may run on: a second run of them would write to the same checkpoints."""
    silent = Silent(None)
    silent.home.ended = gone
    assert silent.wait(PATIENCE.silence_s) == []
    assert silent.wait(3.0) == ["task-manager-silent", "task-manager-lost"][: 1 + gone]
    expected = (None, State.WAITING) if gone else (silent.home, State.RUNNING)
    assert (silent.one.task_manager, silent.one.state) == expected
    if not gone:
        silent.home.silent_since = None
        silent.wait(1.0)
        silent.home.silent_since = silent.now
        assert silent.wait(PATIENCE.silence_s + 2.0) == ["task-manager-silent"] * 2


def test_placing_and_building_plans_prefer_those_that_answer() -> None:
    first, second = manager("tm1"), manager("tm2")
    made = cluster(first, second)
    first.silent_since = time.monotonic()
    assert made.answering() == [second]
    second.silent_since = time.monotonic()
    assert made.answering() == [first, second]


# -- real-time mode that is refused late -----------------------------------------------------------------------------


def starting(answers: list[bool | None]) -> tuple[Instance, Parts]:
    """A query that has just begun in real-time mode, and that Spark refuses once its task manager has given these
    answers as to whether it has tasks."""
    query, home = Query(), manager()
    one = instance(home, query)
    one.mode, one.mode_wanted = "real-time", "realtime"

    def works_on(run_id: str) -> bool | None:
        answer = answers.pop(0)
        if not answers:
            query.isActive, query.why = False, Exception("[STREAMING_REAL_TIME_MODE.X] it has a limitation")
        return answer

    home.works_on = works_on  # type: ignore[method-assign]
    return one, Parts(cluster(home, instances=(one,)))


def test_while_a_query_has_no_tasks_a_refusal_is_waited_for() -> None:
    one, parts = starting([False, None, False])
    parts.cluster.patience = replace(parts.cluster.patience, untold_s=0.0)
    with pytest.raises(TaskManagerError, check=breaks("real-time", name="T.1")):
        parts.lifecycle.settle(one)


def test_where_nobody_tells_of_tasks_a_refusal_is_not_waited_for_long() -> None:
    answers: list[bool | None] = [None, False]
    one, parts = starting(answers)
    parts.cluster.patience = replace(parts.cluster.patience, untold_s=0.0)
    parts.lifecycle.settle(one)
    assert answers == [False]


def test_a_query_with_tasks_is_settled() -> None:
    answers: list[bool | None] = [False, True, False]
    one, parts = starting(answers)
    parts.lifecycle.settle(one)
    assert answers == [False]


# -- calls that hang ---------------------------------------------------------------------------------------------------


def test_a_poll_that_is_not_answered_is_not_begun_again() -> None:
    home, query = manager(), Query()
    one = instance(home, query)
    made = cluster(home, instances=(one,))
    gate, began = threading.Event(), threading.Event()

    class Slow(Query):
        @property
        def lastProgress(self) -> None:  # type: ignore[override]
            began.set()
            gate.wait(30)

        @lastProgress.setter
        def lastProgress(self, value: object) -> None:
            pass

    one.query = Slow()  # type: ignore[assignment]
    first = begin(lambda: Parts(made).collector.poll(home), "poll")
    assert began.wait(10)
    with pytest.raises(TaskManagerError, match="tm1"):  # and so it stays silent, in `silent_since`
        Parts(made).collector.poll(home, timeout_s=0.1)
    gate.set()
    first.result(10)
    one.query = query  # type: ignore[assignment]
    Parts(made).collector.poll(home)


def test_who_is_detached_in_a_hanging_call_can_start_elsewhere_and_stays_there() -> None:
    old, new = manager("tm1"), manager("tm2")
    hanging = Query()
    hanging.gate.clear()
    one = instance(old, hanging)
    stopping = begin(one.stop, "stop")  # holds the lock
    soon(lambda: not _free(one.lock))
    one.detach()
    assert (one.state, one.task_manager, one.query) == (State.WAITING, None, None)
    assert _free(one.lock)
    query = Query()
    with one.lock:
        one.query, one.run_id, one.task_manager, one.life.state = query, "next", new, State.RUNNING  # type: ignore[assignment]
    hanging.gate.set()  # the old server wakes up
    stopping.result(10)
    assert (one.query, one.run_id, one.task_manager, one.state) == (query, "next", new, State.RUNNING)


def test_a_start_that_waited_while_it_was_taken_away_does_not_take_place() -> None:
    old, new = manager("tm1"), manager("tm2")
    hanging = Query()
    hanging.gate.clear()
    one = instance(old, hanging)
    stopping = begin(one.stop, "stop")
    soon(lambda: not _free(one.lock))
    starting = begin(lambda: one.start(new, BOARD, {}, {}), "start")
    time.sleep(0.1)  # it may come after `detach` instead: then it fails in another way
    one.detach()
    hanging.gate.set()
    stopping.result(10)
    with pytest.raises(TaskManagerError):
        starting.result(10)
    assert one.query is None


def test_a_start_whose_answer_arrives_as_it_is_taken_away_leaves_no_run_behind() -> None:
    home = manager()
    one = instance(home)
    stopped = threading.Event()

    class Late(Query):
        @property
        def runId(self) -> str:  # type: ignore[override]
            one.detach()
            return "late"

        def stop(self) -> None:
            stopped.set()

    class Writer:
        def start(self) -> Late:
            return Late()

        def __getattr__(self, name: str) -> Any:
            return lambda *_, **__: self

    workshop: Any = SimpleNamespace(result=lambda *_, **__: nullcontext(), writer=lambda *_: Writer())
    with pytest.raises(TaskManagerError, check=breaks("attached", name="T.1")):
        one._begin(StartQuery(1), home, workshop, realtime=False)
    assert stopped.wait(10)
    assert (one.state, one.query, one.run_id, one.task_manager) == (State.WAITING, None, None, None)


def test_what_was_stopped_or_given_up_does_not_wait_for_a_task_manager() -> None:
    for state in (State.STOPPED, State.GAVE_UP):
        one = instance(manager())
        one.life.state = state
        one.detach()
        assert (one.state, one.task_manager) == (state, None)


def test_dials_told_to_a_frozen_server_never_overtake_later_ones() -> None:
    home = manager()
    spark: Any = home.spark
    home.turn({"qod.a": 1.0})
    spark.asked.clear()
    spark.gate.clear()
    with pytest.raises(TaskManagerError, check=breaks("answers")):
        home.turn({"qod.a": 0.5}, timeout_s=0.1)
    assert "qod.a" not in home.dials  # nobody knows which it holds
    with pytest.raises(TaskManagerError, check=breaks("answers")):
        home.turn({"qod.a": 1.0}, timeout_s=0.1)
    spark.gate.set()
    home.turn({"qod.a": 1.0})
    assert [f"'{written(0.5)}'" in text for text in spark.asked] == [True, False]
    assert f"('qod.a', '{written(1.0)}')" in spark.asked[-1]
    assert home.dials["qod.a"] == 1.0
    spark.asked.clear()
    home.turn({"qod.a": 1.0})
    assert spark.asked == []  # it holds that already


def _free(lock: threading.RLock) -> bool:  # type: ignore[valid-type]
    """Whether another thread could take it."""
    found: bool = begin(lambda: lock.acquire(blocking=False) and (lock.release() or True), "look").result(10)  # type: ignore[attr-defined]
    return found
