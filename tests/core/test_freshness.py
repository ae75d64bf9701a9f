"""What an instance's row says of the age of its figures."""

from __future__ import annotations

from typing import Any

import pytest

from qod_magics.core.optional import Freshness, is_moving, window_of
from qod_magics.core.snapshot import Instance
from qod_magics.errors import SnapshotError


def instance(**extra: Any) -> Instance:
    return Instance("Snk.1", "Snk", "tm1", 1.0, 1.0, False, extra)


def test_a_row_that_says_nothing_is_of_now() -> None:
    assert Freshness.of(instance()) == Freshness(None, False, ())
    assert Freshness.of(instance()).is_fresh
    assert not is_moving(instance())


@pytest.mark.parametrize("extra", [{"stale": True}, {"missing": ["cpu"]}])
def test_what_is_stale_or_missing_is_not_fresh(extra: dict[str, Any]) -> None:
    found = Freshness.of(instance(window=[1, 6.5], **extra))
    assert found.window == (1.0, 6.5)
    assert not found.is_fresh


def test_one_that_is_on_its_way_is_moving() -> None:
    assert is_moving(instance(state="moving"))
    assert not is_moving(instance(state="running"))


@pytest.mark.parametrize("window", [5, "now", [1], [1, 2, 3], [None, 2]])
def test_what_is_no_window_is_refused_in_one_line(window: Any) -> None:
    with pytest.raises(SnapshotError, match=r"instances\.window: .* is no window; give \[begin, end\]") as caught:
        window_of(instance(window=window))
    assert "\n" not in str(caught.value)
