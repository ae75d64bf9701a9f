"""What is said of results that lack rows though no shedder dropped them."""

from __future__ import annotations

from qod_magics.spark.cluster.books import Incomplete, late_text


def test_late_rows_add_up_by_task() -> None:
    found = Incomplete()
    found.add("q", 2, False)
    found.add("q", 0, False)
    found.add("other", 0, True)
    assert found.late == {"q": 2}
    (told,) = found.texts("q")
    assert "2 rows" in told
    assert "at least" not in told
    found.add("q", 3, True, "2050-01-01T00:00:00.000Z")
    (told,) = found.texts("q")
    assert "at least 5 rows" in told
    assert "2050-01-01T00:00:00.000Z" in told
    assert found.texts("other") == []


def test_state_that_was_lost_marks_results_until_the_task_is_gone() -> None:
    found = Incomplete()
    found.lost_at["q"] = 1_800_000_000.0
    before = found.copy()
    assert "incomplete" in found.texts("q")[0]
    found.forget("q")
    assert found.texts("q") == []
    assert before.texts("q")


def test_one_row_is_spoken_of_as_one() -> None:
    assert "1 row came" in late_text(1, False)
