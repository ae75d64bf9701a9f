"""Which changes of tasks take turns, and which are refused for others."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qod_magics.lifecycle.admission import (
    Admission,
    Answer,
    Asked,
    InstanceFacts,
    StateFacts,
    TaskFacts,
    why_not_lent,
    why_state_stays,
)
from qod_magics.lifecycle.changes import Kind
from qod_magics.lifecycle.events import State


def lent(*states: State, lends: bool = True, settable: bool = True, to: str = "q.2") -> str | None:
    """The rule against lending rows of q.1, where its task's instances are in these states."""
    instances = tuple(InstanceFacts(f"q.{n}", "tm1", state) for n, state in enumerate(states, 1))
    found = why_not_lent(TaskFacts("q", instances, True, StateFacts(lends=lends)), "q.1", to, settable)
    return None if found is None else found.rule


def test_rows_are_lent_between_two_running_instances_of_a_task_that_lends() -> None:
    two = (State.RUNNING, State.RUNNING)
    assert lent(*two) is None
    assert lent(*two, lends=False) == "lends"
    assert lent(*two, settable=False) == "settable"
    assert lent(State.RUNNING, State.MOVING) == lent(State.MOVING, State.RUNNING) == "running"
    assert lent(State.RUNNING) == lent(*two, to="q.1") == lent(*two, to="q.3") == "instances"


def test_a_task_that_lends_keeps_its_instances() -> None:
    state = StateFacts(frozenset({"k"}), "k", sent=True)
    assert why_state_stays(TaskFacts("q", (), True, state)) == ""
    assert "--lend" in why_state_stays(TaskFacts("q", (), True, replace(state, lends=True)))


def scale(task: str, parallelism: int = 2) -> Asked:
    return Asked(Kind.SCALE, task, parallelism, frozenset({task}))


def fuse(*tasks: str, kind: Kind = Kind.FUSE) -> Asked:
    return Asked(kind, ">".join(tasks), tasks=frozenset(tasks))


def test_rescalings_of_a_plan_take_turns_and_the_newest_of_a_task_counts() -> None:
    admission = Admission()
    admission.begins(scale("a"))
    assert admission.ask(scale("a")) is Answer.NOTHING
    assert admission.ask(scale("a", 3)) is Answer.BEGINS  # and is refused
    assert [admission.ask(scale("b", n)) for n in (2, 3)] == [Answer.WAITS] * 2
    assert admission.next is None
    admission.ends(scale("a"))
    assert admission.ask(scale("b", 4)) is Answer.WAITS  # it has its place already
    assert admission.next == scale("b", 4)
    assert admission.take("b") == scale("b", 4)
    assert admission.next is None


@pytest.mark.parametrize("one_at_a_time", [False, True])
def test_what_concerns_the_same_task_is_refused(one_at_a_time: bool) -> None:
    admission = Admission(one_at_a_time)
    admission.begins(fuse("a", "b"))
    for asked in (scale("b"), fuse("c", "d", kind=Kind.UNFUSE)):
        refused = admission.why_not(asked)
        assert refused is not None
        assert (refused.rule, refused.name) == ("one change at a time", "a>b")
    assert bool(admission.why_not(scale("c"))) is one_at_a_time


@given(st.booleans(), st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("abc"), st.booleans()), max_size=20))
def test_no_two_changes_of_a_task_are_under_way(one_at_a_time: bool, steps: list[tuple[str, str, bool]]) -> None:
    admission = Admission(one_at_a_time)
    for first, second, ends in steps:
        asked = scale(first) if first == second else fuse(first, second)
        if ends:
            admission.ends(asked)
        elif not admission.why_not(asked):
            admission.begins(asked)
        tasks = [task for each in admission.under_way for task in each.tasks]
        assert len(tasks) == len(set(tasks))
        assert len(admission.under_way) <= 1 or not one_at_a_time
