from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qod_magics.policies.stream_economics.placing import kill

#: id, priority, minimum requirement: the example of the thesis, section 3.5.1
EXAMPLE = [("a", 4, 20.0), ("b", 3, 10.0), ("c", 3, 40.0), ("d", 2, 10.0), ("e", 2, 10.0), ("f", 1, 10.0)]


def names(need: float, candidates: list[tuple[str, int, float]]) -> list[str]:
    ids, priorities, required = zip(*candidates, strict=True)
    return [ids[c] for c in kill(need, priorities, required)]


def test_the_example_of_the_thesis() -> None:
    assert names(40, EXAMPLE) == ["b", "d", "e", "f"]


@pytest.mark.parametrize(("need", "failed"), [(5, "f"), (10, "f"), (11, "ef"), (31, "bdef"), (1e9, "acbdef")])
def test_lowest_priorities_first_and_no_more_than_needed(need: float, failed: str) -> None:
    assert names(need, EXAMPLE) == list(failed)


def test_ties_are_settled_by_id() -> None:
    assert names(10, [("a", 1, 10.0), ("b", 1, 10.0), ("c", 1, 10.0)]) == ["c"]


@given(st.floats(0.1, 500), st.lists(st.tuples(st.integers(0, 3), st.floats(0, 100)), min_size=1))
def test_enough_is_released_and_each_one_that_fails_was_needed(
    need: float, candidates: list[tuple[int, float]]
) -> None:
    priorities = [priority for priority, _ in candidates]
    required = [cpu for _, cpu in candidates]
    failed = kill(need, priorities, required)
    released = sum(required[c] for c in failed)
    assert released >= min(need, sum(required)) - 1e-6
    if released >= need:
        assert all(released - required[c] < need + 1e-6 for c in failed)
    spared = [priorities[c] for c in range(len(candidates)) if c not in failed]
    below = [priorities[c] for c in failed]
    if below:  # no priority is touched while lower ones alone would do
        lower = sum(cpu for priority, cpu in candidates if priority < max(below))
        assert lower < need + 1e-6
    assert len(spared) + len(below) == len(candidates)
