"""Changes of tasks: which steps they take, what is put back, and what holds whatever comes, in any order and twice."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from qod_magics.lifecycle.admission import (
    InstanceFacts,
    StateFacts,
    TaskFacts,
    why_busy,
    why_not_joined,
    why_not_scaled,
    why_state_stays,
)
from qod_magics.lifecycle.changes import (
    DRAIN_S,
    ChangeBegins,
    ChangeEvent,
    CopyCheckpoints,
    Drain,
    GiveUp,
    Group,
    GrowTopics,
    Kind,
    Overtaken,
    Resume,
    RollBack,
    RowsLeft,
    StandsStill,
    StartAll,
    StepEnded,
    StepFailed,
    StopAll,
    SwitchOver,
    TaskChange,
    steps_of,
)
from qod_magics.lifecycle.events import (
    Failed,
    FindOther,
    Instruction,
    Instructions,
    MoveAsked,
    MoveStopped,
    NoOther,
    NotStarted,
    OtherFound,
    PlaceAsked,
    PutBack,
    RetryDue,
    RunEnded,
    ServerLost,
    StartAsked,
    Started,
    StartOn,
    StartQuery,
    State,
    StopAsked,
    StopForMove,
    StopUndone,
    Tell,
)
from qod_magics.lifecycle.query import QueryLife
from tests.texts import tells


def until(change: TaskChange, last: type[Instruction]) -> Instruction:
    """Carry out a change until this instruction is next, and return it."""
    (step,) = change.handle(ChangeBegins(), 0.0)
    while not isinstance(step, last):
        ended = RowsLeft(step, 0) if isinstance(step, Drain) else StepEnded(step)
        (step,) = change.handle(ended, 1.0)
        change.check()
    return step


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize("drains", [False, True])
def test_a_change_takes_its_steps_and_says_how_long_it_took(kind: Kind, drains: bool) -> None:
    change = TaskChange(kind, "a", "b", drains, {"task": "b"})
    until(change, SwitchOver)
    assert change.handle(StandsStill(0.5), 1.0) == ()  # too late
    told = change.handle(StepEnded(SwitchOver()), 2.0)
    while not isinstance(told[0], Tell):
        told = change.handle(StepEnded(told[0]), 3.0)
    assert told == (Tell(kind.value, {"task": "b", "took_s": 3.0}),)
    assert change.ended
    assert not change.refusal
    assert change.handle(StepEnded(SwitchOver()), 4.0) == ()


@pytest.mark.parametrize(
    ("kind", "step", "undone"),
    [
        (Kind.FUSE, StopAll, []),
        (Kind.FUSE, Drain, [Resume(Group.FIRST)]),
        (Kind.FUSE, CopyCheckpoints, [Resume(Group.FIRST), Resume(Group.SECOND)]),
        (Kind.FUSE, StartAll, [RollBack()]),
        (Kind.UNFUSE, CopyCheckpoints, [Resume(Group.OLD)]),
        (Kind.SCALE, GrowTopics, [Resume(Group.SENDERS)]),
        (Kind.SCALE, SwitchOver, [Resume(Group.SENDERS), Resume(Group.OLD)]),
    ],
)
def test_a_step_that_fails_puts_back_what_ran(kind: Kind, step: type[Instruction], undone: list[Instruction]) -> None:
    change = TaskChange(kind, "a", "b", drains=True)
    failing = until(change, step)
    assert list(change.handle(StepFailed(failing, "no broker"), 9.0)) == [*undone, GiveUp("no broker")]
    assert change.refusal == "no broker"
    assert change.handle(StepFailed(failing, "no broker"), 9.0) == ()


def test_a_rescaling_goes_on_once_its_partitions_have_other_owners() -> None:
    change = TaskChange(Kind.SCALE, "a", "b", drains=True)
    resume = until(change, Resume)
    (start,) = change.handle(StepFailed(resume, "no broker"), 1.0)
    assert isinstance(start, StartAll)
    (told,) = change.handle(StepFailed(start, "no broker"), 2.0)
    assert isinstance(told, Tell)


def test_a_reader_has_its_time_to_read_all() -> None:
    change = TaskChange(Kind.FUSE, "a>b", "b")
    step = until(change, Drain)
    assert isinstance(step, Drain)
    assert change.handle(RowsLeft(step, 5), 1.0) == (step,)
    assert change.handle(RowsLeft(step, 0, idle=False), DRAIN_S) == (step,)
    *_, last = change.handle(RowsLeft(step, 5), DRAIN_S + 2.0)
    assert isinstance(last, GiveUp)
    assert tells(last.why, "b", 5)


def test_what_overtakes_a_change_ends_it() -> None:
    change = TaskChange(Kind.FUSE, "a>b", "b")
    until(change, Drain)
    assert change.handle(Overtaken(), 2.0) == (Resume(Group.FIRST),)
    assert change.ended
    switched = TaskChange(Kind.FUSE, "a>b", "b")
    until(switched, StartAll)
    assert switched.handle(Overtaken(), 2.0) == ()


def task(id: str, *states: State, home: str | None = "tm1", differs: bool = False, **more: object) -> TaskFacts:
    there = [InstanceFacts(f"{id}.{n + 1}", home, state, differs) for n, state in enumerate(states)]
    return TaskFacts(id, tuple(there), **more)  # type: ignore[arg-type]


RUNS = State.RUNNING
BY_KEY = StateFacts(frozenset({"k", "at"}), "k", sent=True)


@pytest.mark.parametrize(
    ("first", "second", "why"),
    [
        (task("a", RUNS), task("b", RUNS), ""),
        (task("a", RUNS, RUNS), task("b", RUNS), "2 instances"),
        (task("a", RUNS), task("b", RUNS, home="tm2"), "a.1"),
        (task("a", RUNS, home=None), task("b", RUNS, home=None), "a.1"),
        (task("a", RUNS, inputs=0), task("b", RUNS), "source"),
        (task("a", RUNS, keeps_state=True), task("b", RUNS, keeps_state=True), "state"),
        (task("a", RUNS, inputs=2), task("b", RUNS, keeps_state=True), "inputs"),
        (task("a", RUNS, RUNS), task("b", RUNS, RUNS, keeps_state=True), ""),  # declared so: each has rows of its own
        (task("a", RUNS), task("b", RUNS, keeps_state=True, state=BY_KEY), ""),
        (task("a", RUNS, RUNS), task("b", RUNS, RUNS, keeps_state=True, state=BY_KEY), "by k"),
    ],
)
def test_whose_instances_can_become_one_query(first: TaskFacts, second: TaskFacts, why: str) -> None:
    assert why in why_not_joined(first, second)
    assert bool(why) == bool(why_not_joined(first, second))


@pytest.mark.parametrize(
    ("facts", "parallelism", "rule"),
    [
        (task("a", RUNS), 2, None),
        (task("a", RUNS), 0, "at least 1"),
        (task("a", RUNS), 5, "maximum"),
        (task("a", RUNS, State.MOVING), 2, "running"),
        (task("a", RUNS, differs=True), 2, "reported"),
        (task("a", RUNS, keeps_state=True), 2, "assignable state"),
        (task("a", RUNS, keeps_state=True, state=BY_KEY), 2, None),
    ],
)
def test_who_is_busy_or_keeps_state_is_not_scaled(facts: TaskFacts, parallelism: int, rule: str | None) -> None:
    refused = why_not_scaled(facts, parallelism, 4, "it has 4 partitions")
    assert (None if refused is None else refused.rule) == rule


@pytest.mark.parametrize(
    ("other", "names"),
    [
        ({"columns": frozenset()}, ("sent by k", "no column")),
        ({"columns": frozenset({"zone"})}, ("sent by k", "zone")),
        ({"key": None}, ("--key",)),
        ({"sent": False}, ("one stream of the session",)),
        ({"obstacle": "it writes files"}, ("it writes files",)),
    ],
    ids=["not told", "another column", "no key", "a topic", "the runtime"],
)
def test_state_that_belongs_to_no_key_stays_and_the_reason_is_named(
    other: dict[str, object], names: tuple[str, ...]
) -> None:
    facts = task("a", RUNS, keeps_state=True, state=replace(BY_KEY, **other))  # type: ignore[arg-type]
    stays = why_state_stays(facts)
    assert all(name in stays for name in names), stays
    refused = why_not_scaled(facts, 2, 4, "")
    assert refused is not None
    assert (refused.rule, refused.name) == ("assignable state", "a")
    assert "\n" not in str(refused.error())


def test_what_keeps_no_state_is_scaled_wherever_its_rows_come_from() -> None:
    assert why_state_stays(task("a", RUNS, state=replace(BY_KEY, sent=False))) == ""


def test_state_is_carried_while_its_task_stands_still_or_all_go_on_as_before() -> None:
    change = TaskChange(Kind.SCALE, "a", "a", drains=True, carries=True)
    order = [type(step) for step in change.steps]
    assert order.index(StopAll, 1) < order.index(CopyCheckpoints) < order.index(SwitchOver)
    (step,) = change.handle(ChangeBegins(), 0.0)
    while not isinstance(step, CopyCheckpoints):
        ended = RowsLeft(step, 0) if isinstance(step, Drain) else StepEnded(step)
        (step,) = change.handle(ended, 1.0)
    undone = change.handle(StepFailed(step, "no room"), 2.0)
    assert undone == (Resume(Group.SENDERS), Resume(Group.OLD), GiveUp("no room"))
    assert (change.ended, change.switched) == (True, False)


# -- any events in any order -------------------------------------------------------------------------------------------


@dataclass
class Query:
    """A query, with what a runtime knows of it."""

    name: str
    checkpoint: str
    reads: frozenset[tuple[str, int]]  #: topics and partitions
    home: str | None
    life: QueryLife = field(default_factory=lambda: QueryLife(State.STARTING))
    runs: set[int] = field(default_factory=set)  #: that write now


SERVERS = ("tm1", "tm2")
PARTITIONS = 2


class AnyChanges(RuleBasedStateMachine):
    """Tasks a and b, of which b reads a: fused, unfused and rescaled while their queries move, fail and are lost.
    Steps are carried out at any later time; what is reported may come again."""

    def __init__(self) -> None:
        super().__init__()
        self.now, self.made = 0.0, 0
        self.lost: set[str] = set()
        self.waiting = {"in": 0, "inner": 0}  #: rows by topic
        self.queries: dict[str, Query] = {}
        self.every: list[Query] = []
        self.fused = False
        self.change: TaskChange | None = None
        self.left: list[Instruction] = []
        self.stopped: dict[Group, list[Query]] = {}
        self.before: tuple[dict[str, Query], bool] = ({}, False)
        self.width = 1
        self.old: list[ChangeEvent] = []
        for query in [*self.instances("a", "in", 1), *self.instances("b", "inner", 1)]:
            self.queries[query.name] = query
            self.start(query)

    def instances(self, name: str, topic: str, count: int) -> list[Query]:
        self.made += 1
        parts = [frozenset((topic, p) for p in range(PARTITIONS) if p % count == n) for n in range(count)]
        made = [Query(f"{name}.{n + 1}", f"{name}/{self.made}/{n}", p, "tm1") for n, p in enumerate(parts)]
        self.every += made
        return made

    def of(self, name: str) -> list[Query]:
        return [query for query in self.queries.values() if query.name.startswith(f"{name}.")]

    def facts(self, name: str) -> TaskFacts:
        return TaskFacts(name, tuple(InstanceFacts(q.name, q.home, q.life.state) for q in self.of(name)))

    # -- queries --

    def up(self, home: str | None) -> bool:
        return home is not None and home not in self.lost

    def stop(self, query: Query) -> None:
        query.runs.clear()
        query.life.handle(RunEnded(), self.now)

    def start(self, query: Query, *, fails: bool = False) -> bool:
        """Start a query where it is; return whether it runs."""
        start = next((s for s in query.life.handle(StartAsked(), self.now) if isinstance(s, StartQuery)), None)
        if start is None:
            return False
        query.runs.clear()
        if fails or not self.up(query.home):
            return False
        query.runs.add(start.run)
        query.life.handle(Started(start.run), self.now)
        return True

    def fail(self, query: Query, **more: bool) -> None:
        if not self.up(query.home):
            self.lose_query(query, None)
            return
        query.life.handle(Failed("it broke", **more), self.now)  # type: ignore[arg-type]
        query.runs.clear()

    def lose_query(self, query: Query, source: str | None) -> None:
        query.runs.clear()
        query.home = None
        query.life.handle(ServerLost("it was lost", source), self.now)

    def move_on(self, query: Query, instructions: Instructions, fails: bool) -> None:
        left = list(instructions)
        while left:
            match left.pop(0):
                case StopForMove():
                    self.stop(query)
                    left += query.life.handle(MoveStopped(), self.now)
                case StartOn(target):
                    query.home = target
                    if not self.start(query, fails=fails):
                        query.home = None
                        left += query.life.handle(NotStarted("no jar", target), self.now)
                case FindOther(tried):
                    other = next((id for id in SERVERS if id not in tried and self.up(id)), None)
                    left += query.life.handle(NoOther() if other is None else OtherFound(other), self.now)
                case PutBack(target):
                    query.home = target
                    self.fail(query, put_back=True)
                case _:
                    pass

    # -- rules about queries --

    @rule(seconds=st.floats(0.1, 40.0))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        for query in list(self.queries.values()):
            if query.life.handle(RetryDue(query.home is not None), self.now) and not self.start(query):
                self.fail(query)

    @rule(rows=st.integers(1, 9))
    def rows_come(self, rows: int) -> None:
        self.waiting["in"] += rows

    @rule()
    def queries_work(self) -> None:
        if all(query.runs for query in self.queries.values()):
            rows, self.waiting["in"] = self.waiting["in"], 0
            self.waiting["inner"] = 0 if self.fused else rows

    @rule()
    def readers_work(self) -> None:
        if not self.fused and all(query.runs for query in self.of("b")):
            self.waiting["inner"] = 0

    @rule(data=st.data(), to=st.sampled_from(SERVERS), fails=st.booleans())
    def is_moved(self, data: st.DataObject, to: str, fails: bool) -> None:
        query = self.queries[data.draw(st.sampled_from(sorted(self.queries)))]
        if to not in self.lost:
            self.move_on(query, query.life.handle(MoveAsked(to, query.home, "by hand"), self.now), fails)

    @rule(data=st.data())
    def fails_by_itself(self, data: st.DataObject) -> None:
        query = self.queries[data.draw(st.sampled_from(sorted(self.queries)))]
        if query.life.state is State.RUNNING:
            query.runs.clear()
            query.life.handle(Failed("it broke", run=query.life.run), self.now)

    @rule(id=st.sampled_from(SERVERS))
    def server_is_lost(self, id: str) -> None:
        if not self.lost:
            self.lost.add(id)
            for query in self.every:
                if query.home == id:
                    self.lose_query(query, id)

    @rule()
    def server_joins(self) -> None:
        self.lost.clear()

    @rule()
    def waiting_ones_are_placed(self) -> None:
        home = next(id for id in SERVERS if id not in self.lost)
        for query in self.queries.values():
            if query.life.state is State.WAITING and query.life.handle(PlaceAsked(home), self.now):
                query.home = home
                if not self.start(query):
                    self.fail(query)

    # -- rules about changes --

    def report(self, event: ChangeEvent) -> None:
        assert self.change is not None
        self.old.append(event)
        self.left += self.change.handle(event, self.now)
        self.change.check()

    @precondition(lambda self: self.change is None)
    @rule(kind=st.sampled_from(Kind), width=st.integers(1, PARTITIONS), drains=st.booleans(), carries=st.booleans())
    def is_asked_for(self, kind: Kind, width: int, drains: bool, carries: bool) -> None:
        if kind is Kind.SCALE:
            refused = self.fused or why_not_scaled(self.facts("b"), width, PARTITIONS, "")
        elif kind is Kind.FUSE:
            both = (self.facts("a"), self.facts("b"))
            refused = self.fused or why_not_joined(*both) or why_busy((*both[0].instances, *both[1].instances), "fuse")
        else:
            refused = not self.fused or why_busy(self.facts("b").instances, "unfuse")
        if not refused:
            self.width, self.stopped, self.left, self.old = width, {}, [], []
            self.change = TaskChange(kind, "a>b", "b", drains, carries=carries)
            self.report(ChangeBegins())

    def group(self, group: Group) -> list[Query]:
        return self.of("a" if group in (Group.FIRST, Group.SENDERS) else "b")

    @precondition(lambda self: self.left)
    @rule(fails=st.booleans())
    def is_carried_out(self, fails: bool) -> None:
        step = self.left.pop(0)
        ok = not fails
        match step:
            case StopAll(group):
                ok = self.stop_all(group, fails)
            case Drain():
                self.report(RowsLeft(step, self.waiting["inner"]))
                return
            case SwitchOver():
                ok = True
                self.switch()
            case StartAll(group):
                may_fail = group in (Group.NEW, Group.OTHERS)
                for query in self.starts(group):
                    if not self.start(query, fails=fails):
                        ok = False
                        if may_fail:
                            self.fail(query)
                ok = ok or may_fail
            case Resume(group):
                ok = True
                for query in self.stopped[group]:
                    query.life.handle(StopUndone(query.home is not None, why="not changed"), self.now)
            case RollBack():
                ok = True
                self.roll_back()
            case GiveUp() | Tell():
                self.finish()
                return
        self.report(StepEnded(step) if ok else StepFailed(step, "it broke"))
        self.finish()

    def finish(self) -> None:
        if self.change is not None and self.change.ended and not self.left:
            self.change = None

    def stop_all(self, group: Group, fails: bool) -> bool:
        """Stop all of a group, or none."""
        mine = self.group(group)
        claimed = [query for query in mine if query.life.handle(StopAsked(only_running=True), self.now)]
        if len(claimed) < len(mine) or fails:
            for query in claimed:
                runs = bool(query.runs) and len(claimed) < len(mine)
                if not runs:
                    self.stop(query)
                query.life.handle(StopUndone(query.home is not None, runs, "not stopped"), self.now)
            return False
        for query in mine:
            self.stop(query)
        self.stopped[group] = mine
        return True

    def switch(self) -> None:
        assert self.change is not None
        self.before = (dict(self.queries), self.fused)
        homes = [query.home for query in self.of("b")]
        if self.change.kind is Kind.SCALE:
            made = self.instances("b", "inner", self.width)
            kept = self.of("a")
        elif self.change.kind is Kind.FUSE:
            assert self.waiting["inner"] == 0, "rows of the topic between them have no owner"
            made, kept = self.instances("b", "in", len(homes)), []
            self.fused = True
        else:
            made = [*self.instances("b", "inner", len(homes)), *self.instances("a", "in", len(homes))]
            kept, self.fused = [], False
        for n, query in enumerate(made):
            query.home = homes[n % len(homes)] or "tm1"
        self.queries = {query.name: query for query in (*kept, *made)}

    def starts(self, group: Group) -> list[Query]:
        first = self.of("a") or self.of("b")
        later = self.of("b") if self.of("a") else []
        found = {Group.READERS: later, Group.ONE: first[:1], Group.OTHERS: first[1:], Group.NEW: self.of("b")}
        return found[group]

    def roll_back(self) -> None:
        begun = [query for query in self.queries.values() if query not in self.before[0].values()]
        for query in begun:
            query.life.handle(StopAsked(), self.now)
            self.stop(query)
        self.queries, self.fused = dict(self.before[0]), self.before[1]
        for query in [query for group in self.stopped.values() for query in group]:
            query.life.handle(StopUndone(query.home is not None, why="not changed"), self.now)

    @precondition(lambda self: self.change is not None and self.old)
    @rule(data=st.data())
    def is_reported_again(self, data: st.DataObject) -> None:
        """Late, or twice: the present step, once it is carried out, is not in `old` as ended."""
        assert self.change is not None
        event = data.draw(st.sampled_from(self.old))
        if not isinstance(event, RowsLeft) or event.step != self.change.step:
            assert self.change.handle(event, self.now) == ()

    @precondition(lambda self: self.change is not None)
    @rule()
    def is_overtaken_by_the_end(self) -> None:
        """What is stopped is resumed; what has been asked for since counts no more."""
        assert self.change is not None
        if not self.change.switched and not self.change.ended:
            self.left = list(self.change.handle(Overtaken(), self.now))
            self.finish()

    # -- what holds --

    @invariant()
    def no_checkpoint_has_two_writers_and_no_partition_two_readers(self) -> None:
        running = [query for query in self.every if query.runs]
        checkpoints = [query.checkpoint for query in running for _ in query.runs]
        partitions = [each for query in running for each in query.reads]
        assert len(checkpoints) == len(set(checkpoints))
        assert len(partitions) == len(set(partitions))

    @invariant()
    def each_row_has_an_owner(self) -> None:
        owned = [each for query in self.queries.values() for each in query.reads]
        topics = ["in"] if self.fused else ["in", "inner"]
        assert sorted(owned) == [(topic, p) for topic in topics for p in range(PARTITIONS)]
        assert not self.fused or not self.waiting["inner"]

    @invariant()
    def what_is_stopped_is_stopped_for_a_change(self) -> None:
        if self.change is None:
            assert all(query.life.state is not State.STOPPED for query in self.queries.values())

    def teardown(self) -> None:
        """Whatever came: each query ends running, waiting, or given up with a reason."""
        self.lost.clear()
        for _ in range(200):
            if self.change is None:
                break
            self.now += DRAIN_S
            if self.left:
                self.is_carried_out(fails=False)
            else:
                self.finish()
        assert self.change is None
        for _ in range(8):
            self.waiting_ones_are_placed()
            self.time_passes(40.0)
        for query in self.queries.values():
            assert query.life.state in (State.RUNNING, State.GAVE_UP), query
            assert query.life.state is State.RUNNING or query.life.failure
            assert query.life.steps


TestAnyChanges = AnyChanges.TestCase
TestAnyChanges.settings = settings(max_examples=3 * settings().max_examples, stateful_step_count=60, deadline=None)


def test_a_change_has_its_steps() -> None:
    assert [type(step) for step in steps_of(Kind.SCALE)] == [GrowTopics, StopAll, SwitchOver, StartAll]
    assert [type(step) for step in steps_of(Kind.SCALE, drains=True)][:2] == [StopAll, Drain]
