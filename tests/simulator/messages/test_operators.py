"""Operators against a computation of windows from scratch."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qod_magics.core.engines import CLIENT, Message
from qod_magics.simulator.messages.operators import Regular, Windowed


def message(progress: int, rows: int = 1, *, source: int = 0, observed: int = 0, event_time: int = -1) -> Message:
    return Message(1, 0, CLIENT, progress, event_time, observed, rows=rows, source=source)


def test_a_window_is_emitted_when_its_slowest_channel_has_passed_its_end() -> None:
    window = Windowed(10, 10, 0, (-2, -3))
    assert window.execute(message(8, 3, source=0, observed=80)) == ()
    assert window.execute(message(12, 5, source=0, observed=120)) == ()
    assert window.execute(message(9, 4, source=1, observed=95)) == ()
    assert window.execute(message(21, 7, source=1, observed=210)) == ((10, 210, 7, 9, -1),)
    assert window.waiting == 5 + 7


def test_the_result_of_a_window_belongs_to_the_window_that_ends_with_it() -> None:
    window = Windowed(20, 20, 0, (-2,))
    assert window.execute(message(10, 1, event_time=9)) == ()
    assert window.execute(message(20, 2, event_time=19, observed=7)) == ((20, 7, 3, 19, -1),)


def test_rows_at_the_end_of_a_window_belong_to_the_next_one() -> None:
    window = Windowed(10, 10, 0, (-2,))
    assert [each.rows for each in window.execute(message(10, 2))] == [0]
    assert window.execute(message(10, 3)) == ()
    assert window.late == 0
    assert [each.rows for each in window.execute(message(20, 1))] == [5]


def test_empty_windows_are_emitted_so_that_progress_goes_on() -> None:
    window = Windowed(10, 10, 0, (-2,))
    assert [each.progress for each in window.execute(message(35, observed=9))] == [10, 20, 30]


def test_rows_of_an_emitted_window_are_counted_late_and_go_into_the_next() -> None:
    window = Windowed(10, 10, 0, (-2,))
    window.execute(message(12, 1))
    assert window.execute(message(12, 6, event_time=4)) == ()
    assert window.late == 6
    assert [each.rows for each in window.execute(message(20, 0))] == [7]


@given(
    slide=st.integers(1, 12),
    times=st.integers(1, 4),
    extra=st.integers(0, 5),
    steps=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 15), st.integers(0, 9)), max_size=60),
)
def test_windows_hold_the_rows_that_lie_in_them(
    slide: int, times: int, extra: int, steps: list[tuple[int, int, int]]
) -> None:
    """Each channel in order: what all emitted windows counted is what lies in them."""
    length = slide * times + min(extra, slide - 1)
    window = Windowed(slide, length, 0, (-2, -3, -4))
    progress = [0, 0, 0]
    rows: list[tuple[int, int]] = []
    emitted: dict[int, int] = {}
    for channel, step, count in steps:
        progress[channel] += step
        rows.append((progress[channel], count))
        for each in window.execute(message(progress[channel], count, source=channel)):
            emitted[each.progress] = each.rows
    low = min(progress)
    first = length % slide or slide
    assert sorted(emitted) == list(range(first, low + 1, slide))
    true: dict[int, int] = defaultdict(int)
    for at, count in rows:
        for end in emitted:
            if end - length <= at < end:
                true[end] += count
    assert emitted == {end: true[end] for end in emitted}
    assert window.late == 0
    assert window.rows == sum(count for _, count in rows)
    if length == slide:
        assert window.rows == window.emitted + window.waiting


@given(st.lists(st.integers(0, 50), max_size=50), st.sampled_from([0.0, 0.1, 1 / 3, 1.0, 2.5]))
def test_a_share_of_the_rows_is_emitted_whatever_the_size_of_messages(sizes: list[int], selectivity: float) -> None:
    operator = Regular((-2,), selectivity)
    emitted = sum(operator.execute(message(n, rows))[0].rows for n, rows in enumerate(sizes, 1))
    assert emitted == int(sum(sizes) * selectivity + 1e-9) == operator.emitted


def test_the_progress_of_a_union_is_that_of_its_slowest_channel() -> None:
    union = Regular((-2, -3))
    assert union.execute(message(8, source=0))[0][:1] == (0,)
    assert union.execute(message(5, source=1))[0] == (5, 0, 1, 5, -1)
    assert union.execute(message(9, source=1))[0] == (8, 0, 1, 9, -1)


def test_a_window_without_a_length_is_refused() -> None:
    with pytest.raises(ValueError, match="length"):
        Windowed(0, 10, 0, (-2,))
