"""Where rows are looked for that a stream has twice, and that each is counted once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from qod_magics.spark.cluster.repeats import SETTLED_MS, Repeats, Stretch


def test_rows_are_looked_for_from_the_last_commit_to_the_end_of_a_run() -> None:
    repeats = Repeats()
    repeats.run_ended(0, None, 100)  # before its first run
    assert repeats.open == []
    repeats.run_ended(0, 500, 700)
    assert repeats.open == [Stretch(0, 500, 700)]
    assert repeats.due(700) == []
    assert repeats.due(700 + SETTLED_MS) == repeats.open


def test_a_run_that_failed_before_its_first_commit_is_looked_at_from_its_begin() -> None:
    repeats = Repeats()
    repeats.run_ended(1, None, 100)
    repeats.run_ended(1, 90, 400)  # its checkpoint was made at 90
    assert repeats.open == [Stretch(1, 100, 400)]


def test_a_row_of_a_run_that_was_counted_is_not_counted_again_though_no_batch_has_ended_since() -> None:
    repeats = Repeats()
    repeats.run_ended(0, 500, 700)
    repeats.counted(repeats.due(9_000), 3)
    repeats.run_ended(0, 500, 900)
    assert (repeats.rows, repeats.open) == (3, [Stretch(0, 700, 900)])


@given(st.lists(st.sampled_from(["send", "commit", "fail", "look"]), max_size=40), st.integers(0, 1))
def test_the_rows_counted_are_those_that_no_batch_committed(steps: list[str], sender: int) -> None:
    """One step each 10 ms; a run that fails is followed by another at once."""
    repeats, sent, now, committed, twice, under_way = Repeats(), [], 1000, None, 0, 0
    repeats.run_ended(sender, None, now)

    def look() -> None:
        due = repeats.due(now + SETTLED_MS)
        repeats.counted(due, sum(any(each.holds(sender, at) for each in due) for at in sent))

    for step in steps:
        now += 10
        if step == "send":
            sent.append(now)
            under_way += 1
        elif step == "commit":
            committed, under_way = now, 0
        elif step == "fail":
            twice, under_way = twice + under_way, 0
            repeats.run_ended(sender, 1000 if committed is None else committed, now)
        else:
            look()
    look()
    assert repeats.rows == twice
    assert repeats.open == []
