"""Draws of workers."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qod_magics.policies.dirigo.base import Seeded
from tests.policies.dirigo.oracles import Listed


@given(seed=st.integers(0, 1 << 70), count=st.integers(1, 9), number=st.integers(1, 9))
def test_draws_are_different_workers(seed: int, count: int, number: int) -> None:
    workers = range(10, 10 + count)
    drawn = Seeded(seed).some(workers, number)
    assert len(set(drawn)) == len(drawn) == min(count, number)
    assert set(drawn) <= set(workers)
    assert drawn == Seeded(seed).some(workers, number)


def test_the_generator_is_splitmix64() -> None:
    """The published first outputs for the seed 0, times 2^64 / 2^64."""
    draws = Seeded(0)
    assert [draws.below(1 << 64) for _ in range(3)] == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


@pytest.mark.parametrize("number", [1, 2, 3])
def test_draws_are_uniform(number: int) -> None:
    draws, times = Seeded(5), 6000
    found = Counter(each for _ in range(times) for each in draws.some(range(6), number))
    expected = times * number / 6
    assert all(abs(count - expected) < 0.1 * expected for count in found.values())


def test_listed_draws_are_checked() -> None:
    draws = Listed([[1, 2], [3]])
    assert draws.some((1, 2, 3), 2) == [1, 2]
    with pytest.raises(ValueError, match="1"):
        draws.some((1, 2), 1)
