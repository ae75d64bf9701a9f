"""Which changes of tasks take turns, and which are refused for others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qod_magics.lifecycle.admission import Admission, Answer, Asked
from qod_magics.lifecycle.changes import Kind


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
