"""Which partitions each instance reads, before and after it is scaled."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qod_magics.spark.cluster.feeds import Assignment, assigned

COUNTS = st.integers(1, 24)


@st.composite
def assignments(draw: st.DrawFn) -> tuple[int, Assignment]:
    """Partitions, and a assignment of them that rescaling has led to."""
    partitions = draw(COUNTS)
    found: Assignment = ()
    for instances in draw(st.lists(st.integers(1, partitions), min_size=1, max_size=4)):
        found = assigned(partitions, instances, found)
    return partitions, found


def check(assignment: Assignment, partitions: int, instances: int) -> None:
    """Each partition is with exactly one instance, and the shares differ by one at most."""
    assert sorted(p for each in assignment for p in each) == list(range(partitions))
    assert len(assignment) == instances
    assert max(map(len, assignment)) - min(map(len, assignment)) <= 1
    assert all(list(each) == sorted(each) for each in assignment)


@given(COUNTS, st.data())
def test_a_first_deal_takes_turns(partitions: int, data: st.DataObject) -> None:
    instances = data.draw(st.integers(1, partitions))
    assignment = assigned(partitions, instances)
    check(assignment, partitions, instances)
    assert all(p % instances == index for index, each in enumerate(assignment) for p in each)


@given(assignments(), st.data())
def test_partitions_go_to_one_instance_each_and_no_more_than_needed_change_hands(
    before: tuple[int, Assignment], data: st.DataObject
) -> None:
    partitions, assignment = before
    instances = data.draw(st.integers(1, partitions))
    after = assigned(partitions, instances, assignment)
    check(after, partitions, instances)
    share, larger = divmod(partitions, instances)
    kept = sum(len(set(old) & set(new)) for old, new in zip(assignment, after, strict=False))
    sizes = sorted((len(each) for each in assignment[:instances]), reverse=True)
    assert kept == sum(min(size, share + (at < larger)) for at, size in enumerate(sizes))  # as many as can stay
    if instances == len(assignment):
        assert after == assignment


@given(assignments(), st.integers(0, 12), st.integers(0, 12))
def test_new_partitions_take_none_away_however_they_come(before: tuple[int, Assignment], more: int, later: int) -> None:
    """A checkpoint may get partitions, and may not lose one."""
    partitions, assignment = before
    grown = assigned(partitions + more, len(assignment), assignment)
    check(grown, partitions + more, len(assignment))
    assert all(set(old) <= set(new) for old, new in zip(assignment, grown, strict=True))
    further = assigned(partitions + more + later, len(assignment), assignment)
    assert all(set(old) <= set(new) for old, new in zip(grown, further, strict=True))


def test_there_and_back() -> None:
    one = assigned(8, 1)
    three = assigned(8, 3, one)
    assert three == ((0, 1, 2), (3, 5, 7), (4, 6))
    four = assigned(8, 4, three)
    assert four == ((0, 1), (3, 5), (4, 6), (2, 7))  # the third keeps what it has
    assert assigned(8, 3, four) == ((0, 1, 2), (3, 5, 7), (4, 6))


@pytest.mark.parametrize(("partitions", "instances"), [(2, 3), (0, 1), (3, 0)])
def test_an_instance_without_a_partition_can_t_be(partitions: int, instances: int) -> None:
    with pytest.raises(ValueError, match="one"):
        assigned(partitions, instances)
