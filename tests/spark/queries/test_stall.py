"""How long a query has stood still, by what was seen."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qod_magics.spark.queries.instance_state import (
    BESIDE_OTHERS,
    FREE,
    LONGEST_LOOK_S,
    UNKNOWN,
    StallDetector,
    counted_share,
)


def looked(*looks: tuple[float, int, float]) -> StallDetector:
    """After looks at one run: second, number of the last batch that ended, share."""
    still = StallDetector()
    for now, ended, part in looks:
        still.look(now, "run", ended, part)
    return still


def test_time_without_the_end_of_a_batch_adds_up() -> None:
    still = looked((100.0, 3, 1.0), (101.0, 3, 1.0), (102.5, 3, 1.0))
    assert still.counted_s == still.watched_s == 2.5


def test_the_end_of_a_batch_begins_it_anew() -> None:
    still = looked((100.0, 3, 1.0), (101.0, 3, 1.0), (102.0, 4, 1.0), (103.0, 4, 1.0))
    assert still.counted_s == 1.0


def test_a_new_run_begins_it_anew() -> None:
    still = looked((100.0, -1, 1.0), (101.0, -1, 1.0))
    still.look(102.0, "the next run", -1, 1.0)
    assert still.counted_s == still.watched_s == 0.0


def test_time_in_which_nobody_looked_is_no_time() -> None:
    still = looked((100.0, 3, 1.0), (101.0, 3, 1.0), (9000.0, 3, 1.0))
    assert still.counted_s == 1.0 + LONGEST_LOOK_S


def test_on_cores_with_too_much_to_do_time_passes_and_does_not_count() -> None:
    still = looked(*((float(second), 3, counted_share(0.9, batches_end=False)) for second in range(500)))
    assert (still.counted_s, still.watched_s) == (0.0, 499.0)


@pytest.mark.parametrize(
    ("busy", "batches_end", "counts"),
    [
        (FREE - 0.01, False, 1.0),
        (FREE - 0.01, True, 1.0),
        (FREE, False, 0.0),
        (FREE, True, BESIDE_OTHERS),
        (1.0, False, 0.0),
        (None, False, UNKNOWN),
        (None, True, BESIDE_OTHERS),
    ],
)
def test_what_counts(busy: float | None, batches_end: bool, counts: float) -> None:
    assert counted_share(busy, batches_end) == counts


@given(
    st.lists(st.tuples(st.floats(0.0, 1e4), st.integers(0, 3), st.sampled_from([0.0, 1 / 3, 1 / 2, 1.0])), min_size=1)
)
def test_never_more_counts_than_was_watched_nor_than_has_passed(looks: list[tuple[float, int, float]]) -> None:
    looks.sort(key=lambda look: look[0])
    still = looked(*looks)
    assert 0.0 <= still.counted_s <= still.watched_s <= looks[-1][0] - looks[0][0] + 1e-6
