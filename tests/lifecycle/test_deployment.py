"""Deployments: what happens to each task, in which steps, and what holds whatever is declared and whatever fails."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from qod_magics.lifecycle.changes import ChangeBegins, ChangeEvent, RollBack, StepEnded, StepFailed, SwitchOver
from qod_magics.lifecycle.deployment import (
    CreateTopics,
    Decision,
    Declared,
    DeleteTopics,
    DeleteTopicsLater,
    Deploying,
    Fate,
    Queries,
    StartTasks,
    StopTasks,
    TellStateLost,
    decide,
)
from qod_magics.lifecycle.events import (
    Instruction,
    RunEnded,
    StartAsked,
    Started,
    StartQuery,
    State,
    StopAsked,
    StopUndone,
)
from qod_magics.lifecycle.query import QueryLife


def task(id: str, *upstream: str, work: object = "recipe", **more: object) -> Declared:
    return Declared(id, upstream, frozenset({id}), work, **more)  # type: ignore[arg-type]


def fates(old: list[Declared], new: list[Declared], running: object = None, wanted: object = None) -> dict[str, Fate]:
    known = {each.id: Queries(columns="c") for each in (*old, *new)}
    found = decide(old, new, known | (running or {}), known | (wanted or {}))  # type: ignore[operator]
    return dict(found.fates)


A, B = task("a"), task("b", "a")
KEPT = Queries(2, "c", "counts", None, keeps_state=True)


# -- what happens to each task -----------------------------------------------------------------------------------------


def test_a_new_reader_restarts_what_it_reads() -> None:
    assert fates([A], [A, B]) == {"a": Fate.RESTARTS, "b": Fate.STARTS}
    assert fates([A, B], [A]) == {"a": Fate.RESTARTS, "b": Fate.ENDS}


def test_a_plan_that_changes_with_another_task_restarts_its_queries() -> None:
    assert fates([A], [A], {"a": Queries(plan=False)}, {"a": Queries(plan=True)}) == {"a": Fate.RESTARTS}


@pytest.mark.parametrize(("columns", "fate"), [("c", Fate.RESTARTS), ("others", Fate.REBUILT), (None, Fate.REBUILT)])
def test_a_reader_keeps_its_checkpoints_while_its_input_columns_are_the_same(columns: object, fate: Fate) -> None:
    new = [task("a", work="another"), B]
    assert fates([A, B], new, wanted={"a": Queries(columns=columns)}) == {"a": Fate.REPLACED, "b": fate}


@pytest.mark.parametrize(
    ("wanted", "fate"),
    [
        (KEPT, Fate.RESUMES),
        (replace(KEPT, columns="others"), Fate.RESUMES),
        (replace(KEPT, meaning="sums"), Fate.REPLACED),
        (replace(KEPT, meaning=None), Fate.REPLACED),
        (replace(KEPT, instances=1), Fate.REPLACED),
        (replace(KEPT, plan=True), Fate.REPLACED),
    ],
)
def test_another_recipe_resumes_state_that_means_the_same(wanted: Queries, fate: Fate) -> None:
    known = {"a": KEPT}
    found = decide([A], [task("a", work="another")], known, {"a": wanted})
    assert found.fates == {"a": fate}
    assert set(found.losing_state) == ({"a"} if fate is Fate.REPLACED else set())


@pytest.mark.parametrize(
    ("running", "fate"), [(2, Fate.RESUMES), (3, Fate.REPLACED), (0, Fate.REPLACED)], ids=["as scaled", "else", "part"]
)
def test_a_task_declared_with_the_instances_that_it_was_scaled_to_keeps_its_state(running: int, fate: Fate) -> None:
    known = {"a": replace(KEPT, instances=min(running, 1), running=running)}
    found = decide([A], [task("a", work="another")], known, {"a": replace(KEPT, instances=2)})
    assert found.fates == {"a": fate}
    assert set(found.losing_state) == ({"a"} if fate is Fate.REPLACED else set())


def test_a_reader_with_other_input_columns_loses_its_state_and_says_so() -> None:
    running = {"a": Queries(columns="c"), "b": KEPT}
    found = decide([A, B], [task("a", work="another"), B], running, {"a": Queries(columns="others"), "b": KEPT})
    assert found.fates["b"] is Fate.REBUILT
    assert set(found.losing_state) == {"b"}


def test_a_reader_with_another_recipe_and_other_input_columns_keeps_no_state() -> None:
    """Its checkpoint has positions in a topic of rows with the old columns."""
    running, wanted = {"a": Queries(columns="c"), "b": KEPT}, {"a": Queries(columns="others"), "b": KEPT}
    found = decide([A, B], [task("a", work="another"), replace(B, work="another")], running, wanted)
    assert found.fates["b"] is Fate.REPLACED
    assert found.other_columns == {"a"}


def test_queries_stop_at_once_where_nobody_reads_on() -> None:
    known = {each: Queries() for each in "ab"}
    found = decide([A, B], [replace(task("c"), inputs=frozenset({"a"}))], known, {"c": Queries()})
    assert found.stopping == {"a", "b"}
    assert found.at_once == {"b"}  # c goes on reading the input of a


def test_a_query_that_goes_on_from_its_checkpoints_stops_at_the_end_of_a_batch_whatever_reads_its_input() -> None:
    edited = replace(task("a", work="another"), inputs=frozenset({"renamed"}))
    found = decide([A], [edited], {"a": KEPT}, {"a": KEPT})
    assert (found.fates, found.at_once) == ({"a": Fate.RESUMES}, frozenset())
    found = decide([A], [edited], {"a": KEPT}, {"a": replace(KEPT, meaning="sums")})
    assert (found.fates, found.at_once) == ({"a": Fate.REPLACED}, {"a"})


# -- its steps ---------------------------------------------------------------------------------------------------------

WHOLE = Decision({"a": Fate.REPLACED, "b": Fate.ENDS}, frozenset({"b"}), {"a": "it changed"})


def up_to(life: Deploying, last: type[Instruction]) -> Instruction:
    """Carry out a deployment until this instruction is next, and return it."""
    (step,) = life.handle(ChangeBegins())
    while not isinstance(step, last):
        (step,) = life.handle(StepEnded(step))
        life.check()
    return step


def test_it_takes_only_the_steps_that_are_needed() -> None:
    steps = [type(step) for step in Deploying(WHOLE).steps]
    assert steps == [StopTasks, StopTasks, CreateTopics, SwitchOver, StartTasks, TellStateLost, DeleteTopics]
    none = Deploying(Decision({"a": Fate.RUNS_ON}, frozenset(), {}))
    assert [type(step) for step in none.steps] == [CreateTopics, SwitchOver, StartTasks, DeleteTopics]


@pytest.mark.parametrize("at", [StopTasks, CreateTopics, SwitchOver, StartTasks])
def test_what_fails_before_the_tasks_run_is_put_back(at: type[Instruction]) -> None:
    life = Deploying(WHOLE)
    step = up_to(life, at)
    assert life.handle(StepFailed(step, "it broke")) == (RollBack(),)
    assert (life.runs, life.undone, life.step) == (False, True, None)
    assert life.handle(StepEnded(step)) == ()


@pytest.mark.parametrize(("at", "then"), [(TellStateLost, DeleteTopics()), (DeleteTopics, DeleteTopicsLater())])
def test_what_fails_once_the_tasks_run_undoes_nothing(at: type[Instruction], then: Instruction) -> None:
    life = Deploying(WHOLE)
    step = up_to(life, at)
    assert life.handle(StepFailed(step, "it broke")) == (then,)
    life.check()
    assert (life.runs, life.undone) == (True, False)


# -- any declarations, any failures ------------------------------------------------------------------------------------


@dataclass
class Query:
    """The query of a task, with what a runtime knows of it."""

    task: str
    checkpoint: int
    life: QueryLife = field(default_factory=lambda: QueryLife(State.STARTING))
    runs: int = 0  #: that write now


@dataclass(frozen=True)
class Recipe:
    """What a test declares of a task."""

    work: int
    reads: str | None
    columns: int
    groups: int | None  #: what its state means


NAMES = "abc"
RECIPES = st.builds(
    Recipe, st.integers(0, 2), st.sampled_from([None, *NAMES]), st.integers(0, 1), st.sampled_from([None, 0, 1])
)


class AnyDeployments(RuleBasedStateMachine):
    """Tasks a, b and c, each of which may read one before it, are declared in any way. Any step may fail, and any event
    may come twice."""

    def __init__(self) -> None:
        super().__init__()
        self.now, self.made = 0.0, 0
        self.recipes: dict[str, Recipe] = {}
        self.queries: dict[str, Query] = {}
        self.every: list[Query] = []
        self.holds: dict[int, tuple[object, ...]] = {}  #: by checkpoint: its input columns, and what its state means
        self.told: set[str] = set()

    def declared(self, recipes: dict[str, Recipe]) -> list[Declared]:
        return [
            Declared(id, (r.reads,) if r.reads else (), frozenset({id}), (r.work, r.reads, r.columns, r.groups))
            for id, r in recipes.items()
        ]

    def known(self, recipes: dict[str, Recipe]) -> dict[str, Queries]:
        return {
            id: Queries(
                columns=r.columns,
                meaning=None if r.groups is None else (r.groups, self.input_of(id, recipes)),
                keeps_state=r.groups is not None,
            )
            for id, r in recipes.items()
        }

    def input_of(self, id: str, recipes: dict[str, Recipe]) -> object:
        reads = recipes[id].reads
        return None if reads is None else (reads, recipes[reads].columns)

    def start(self, query: Query) -> None:
        (step,) = (s for s in query.life.handle(StartAsked(), self.now) if isinstance(s, StartQuery))
        query.runs = 1
        query.life.handle(Started(step.run), self.now)

    def stop(self, query: Query) -> None:
        query.life.handle(StopAsked(), self.now)
        query.runs = 0
        query.life.handle(RunEnded(), self.now)

    @rule(
        wanted=st.dictionaries(st.sampled_from(NAMES), RECIPES),
        fails_at=st.integers(0, 12),
        twice=st.booleans(),
        begun=st.booleans(),
    )
    def is_deployed(self, wanted: dict[str, Recipe], fails_at: int, twice: bool, begun: bool) -> None:
        """Deploy these. The step at `fails_at` fails, where there are as many; `begun`: after half of it was done."""
        self.now += 100.0
        valid: dict[str, Recipe] = {}
        for id in sorted(wanted):
            reads = wanted[id].reads
            valid[id] = wanted[id] if reads in valid else replace(wanted[id], reads=None)
        before, ran = dict(self.recipes), dict(self.queries)
        decision = decide(self.declared(before), self.declared(valid), self.known(before), self.known(valid))
        for id in decision.starting:
            if valid[id].reads in decision.other_columns:
                assert decision.fates[id].new_checkpoints, "a task reads rows with other columns at its old positions"
        running = {id: query.life.run for id, query in ran.items()}
        life = Deploying(decision)
        steps, done, seen = life.handle(ChangeBegins()), 0, list[ChangeEvent]()
        failed: Instruction | None = None
        self.told.clear()
        while steps:
            step = steps[0]
            fails = done == fails_at and not isinstance(step, RollBack)
            if not fails or begun:
                self.carry_out(step, decision, valid, before, ran)
            failed = step if fails else failed
            event = StepFailed(step, "it broke") if fails else StepEnded(step)
            steps, done = life.handle(event), done + 1
            seen.append(event)
            if twice:
                assert all(life.handle(each) == () for each in seen)
            life.check()
        assert life.ended
        assert life.runs != life.undone
        for id, fate in decision.fates.items():
            if fate is Fate.RUNS_ON:
                assert self.queries[id] is ran[id], "a task that runs on was replaced"
                assert ran[id].life.run == running[id], "a task that runs on was restarted"
        if life.undone:
            assert self.queries == ran
            assert self.recipes == before
        else:
            assert self.recipes == valid
            assert list(self.queries) == list(valid)
            kept = {id for id, query in ran.items() if before[id].groups is not None and id in valid}
            lost = {id for id in kept if self.queries[id].checkpoint != ran[id].checkpoint}
            assert lost == self.told or isinstance(failed, TellStateLost)
        for query in self.queries.values():  # as the watcher does
            if query.life.state is State.BACKING_OFF:
                self.start(query)

    def carry_out(
        self,
        step: Instruction,
        decision: Decision,
        wanted: dict[str, Recipe],
        before: dict[str, Recipe],
        ran: dict[str, Query],
    ) -> None:
        match step:
            case StopTasks(tasks, at_batch_end):
                assert tasks
                for id in tasks:
                    assert at_batch_end == (id in wanted), "rows are read twice, or somebody waits for nothing"
                    self.stop(ran[id])
            case SwitchOver():
                self.queries, self.recipes = {}, wanted
                for id in wanted:
                    self.queries[id] = self.take_over(id, decision.fates[id], ran.get(id), before)
            case StartTasks():
                for id in decision.starting:
                    self.start(self.queries[id])
            case TellStateLost(id):
                self.told.add(id)
            case RollBack():
                for id, query in self.queries.items():
                    if query is not ran.get(id):
                        self.stop(query)
                self.queries, self.recipes = ran, before
                for id in decision.stopping:
                    ran[id].life.handle(StopUndone(True, why="not deployed"), self.now)

    def take_over(self, id: str, fate: Fate, last: Query | None, before: dict[str, Recipe]) -> Query:
        if fate is Fate.RUNS_ON:
            assert last is not None
            return last
        holds = (self.input_of(id, self.recipes), self.recipes[id].groups)
        if fate.new_checkpoints:
            self.made += 1
            self.holds[self.made] = holds
            query = Query(id, self.made)
        else:
            assert last is not None
            assert self.holds[last.checkpoint] == holds, "a checkpoint is read as something else"
            query = Query(id, last.checkpoint)
        self.every.append(query)
        return query

    @invariant()
    def each_task_has_one_query_that_runs(self) -> None:
        assert set(self.queries) == set(self.recipes)
        assert [query for query in self.every if query.runs] == [q for q in self.every if q in self.queries.values()]
        assert all(query.life.state is State.RUNNING for query in self.queries.values())

    @invariant()
    def no_checkpoint_has_two_writers(self) -> None:
        written = [query.checkpoint for query in self.every if query.runs]
        assert len(written) == len(set(written))


TestAnyDeployments = AnyDeployments.TestCase
TestAnyDeployments.settings = settings(max_examples=3 * settings().max_examples, stateful_step_count=12, deadline=None)
