"""Which partitions each instance reads, before and after it is scaled."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qod_magics.spark.cluster.deployment import Deal, dealt

COUNTS = st.integers(1, 24)


@st.composite
def deals(draw: st.DrawFn) -> tuple[int, Deal]:
    """Partitions, and a deal of them that rescaling has led to."""
    partitions = draw(COUNTS)
    found: Deal = ()
    for instances in draw(st.lists(st.integers(1, partitions), min_size=1, max_size=4)):
        found = dealt(partitions, instances, found)
    return partitions, found


def check(deal: Deal, partitions: int, instances: int) -> None:
    """Each partition is with exactly one instance, and the shares differ by one at most."""
    assert sorted(p for each in deal for p in each) == list(range(partitions))
    assert len(deal) == instances
    assert max(map(len, deal)) - min(map(len, deal)) <= 1
    assert all(list(each) == sorted(each) for each in deal)


@given(COUNTS, st.data())
def test_a_first_deal_takes_turns(partitions: int, data: st.DataObject) -> None:
    instances = data.draw(st.integers(1, partitions))
    deal = dealt(partitions, instances)
    check(deal, partitions, instances)
    assert all(p % instances == index for index, each in enumerate(deal) for p in each)


@given(deals(), st.data())
def test_partitions_go_to_one_instance_each_and_no_more_than_needed_change_hands(
    before: tuple[int, Deal], data: st.DataObject
) -> None:
    partitions, deal = before
    instances = data.draw(st.integers(1, partitions))
    after = dealt(partitions, instances, deal)
    check(after, partitions, instances)
    share, larger = divmod(partitions, instances)
    kept = sum(len(set(old) & set(new)) for old, new in zip(deal, after, strict=False))
    sizes = sorted((len(each) for each in deal[:instances]), reverse=True)
    assert kept == sum(min(size, share + (at < larger)) for at, size in enumerate(sizes))  # as many as can stay
    if instances == len(deal):
        assert after == deal


@given(deals(), st.integers(0, 12), st.integers(0, 12))
def test_new_partitions_take_none_away_however_they_come(before: tuple[int, Deal], more: int, later: int) -> None:
    """A checkpoint may get partitions, and may not lose one."""
    partitions, deal = before
    grown = dealt(partitions + more, len(deal), deal)
    check(grown, partitions + more, len(deal))
    assert all(set(old) <= set(new) for old, new in zip(deal, grown, strict=True))
    further = dealt(partitions + more + later, len(deal), deal)
    assert all(set(old) <= set(new) for old, new in zip(grown, further, strict=True))


def test_there_and_back() -> None:
    one = dealt(8, 1)
    three = dealt(8, 3, one)
    assert three == ((0, 1, 2), (3, 5, 7), (4, 6))
    four = dealt(8, 4, three)
    assert four == ((0, 1), (3, 5), (4, 6), (2, 7))  # the third keeps what it has
    assert dealt(8, 3, four) == ((0, 1, 2), (3, 5, 7), (4, 6))


@pytest.mark.parametrize(("partitions", "instances"), [(2, 3), (0, 1), (3, 0)])
def test_an_instance_without_a_partition_can_t_be(partitions: int, instances: int) -> None:
    with pytest.raises(ValueError, match="each needs one"):
        dealt(partitions, instances)
