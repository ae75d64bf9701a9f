"""The view of results, its half in the kernel: what is sent, when it looks, and that no thread is left behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import vl_convert
from hypothesis import given
from hypothesis import strategies as st

from qod_magics.results.drawing import Wish, drawing_of, layout_of, page_of
from qod_widgets.charts import DATA, result_chart
from qod_widgets.results import ResultsView, news
from qod_widgets.watched import bundle
from tests.results.rows import NAME, PER_ZONE, TRIPS, ZONE, estimate, per_zone, result

PATIENCE_S = 20.0


def page(*counts: tuple[int, int, float], wish: Wish | None = None, **more: Any) -> dict[str, Any]:
    """The page of these (window, zone, trips)."""
    found = result(PER_ZONE, ("w", "zone"), [per_zone(*each) for each in counts])
    layout = layout_of(found.columns, found.keys, wish or Wish())
    return {**page_of(found, layout, drawing_of(found, layout)), "state": "", "ended": False, **more}


class Looked:
    """Stands for a query: holds the page that a look returns, and counts the looks."""

    def __init__(self) -> None:
        self.now = page((0, 1, 5.0))
        self.looks = 0
        self.left = 0

    def look(self) -> dict[str, Any]:
        self.looks += 1
        return self.now

    def leave(self) -> None:
        self.left += 1


class Watched(ResultsView):
    """A view whose messages are kept."""

    def __init__(self, looked: Looked) -> None:
        self.sent: list[dict[str, Any]] = []
        super().__init__("per_zone", looked.look, looked.leave, every_s=0.02)

    def send(self, content: Any, buffers: Any = None) -> None:
        self.sent.append(content)

    def tell(self, kind: str, view: str = "a") -> None:
        self._heard(self, {"kind": kind, "view": view}, [])


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "qod-results"]


@pytest.fixture
def looked() -> Looked:
    return Looked()


@pytest.fixture
def view(looked: Looked) -> Iterator[Watched]:
    made = Watched(looked)
    yield made
    made.close()
    assert threads() == []


def test_nobody_looks_before_a_view_opens(view: Watched, looked: Looked) -> None:
    time.sleep(0.1)
    assert (looked.looks, view.sent, threads()) == (0, [], [])


def test_who_opens_it_gets_all_and_then_what_has_changed(view: Watched, looked: Looked) -> None:
    view.tell("open")
    until(lambda: view.sent)
    first = view.sent[0]
    assert first["fresh"]
    assert (first["form"], len(first["items"]), first["spec"]["data"]) == ("line", 1, {"name": DATA})
    looked.now = page((0, 1, 5.0), (1, 1, 7.0))
    until(lambda: len(view.sent) == 2)
    second = view.sent[1]
    assert not second["fresh"]
    assert "spec" not in second
    assert [item["value"] for item in second["items"].values()] == [7.0]
    time.sleep(0.2)
    assert len(view.sent) == 2, "nothing is sent where nothing has changed"
    assert looked.looks > 3


def test_another_view_gets_all_again(view: Watched, looked: Looked) -> None:
    view.tell("open")
    until(lambda: view.sent)
    view.tell("open", "b")
    until(lambda: len(view.sent) == 2)
    assert view.sent[1] == view.sent[0]


def test_its_thread_ends_with_the_last_view_and_another_one_begins_anew(view: Watched, looked: Looked) -> None:
    view.tell("open")
    view.tell("open", "b")
    until(lambda: view.sent)
    view.tell("close")
    assert threads()
    view.tell("close", "b")
    until(lambda: not threads())
    assert looked.left == 1
    looks = looked.looks
    time.sleep(0.1)
    assert looked.looks == looks
    view.tell("open", "c")
    until(lambda: looked.looks > looks)
    assert view.sent[-1]["fresh"]


def test_views_that_open_and_close_all_the_time_leave_one_that_is_served(view: Watched, looked: Looked) -> None:
    for number in range(200):
        view.tell("open", str(number))
        view.tell("close", str(number))
    view.tell("open", "last")
    count = len(view.sent)
    looked.now = page((0, 1, 6.0))
    until(lambda: len(view.sent) > count)
    assert len(threads()) == 1


def test_while_it_is_paused_nothing_changes(view: Watched, looked: Looked) -> None:
    view.tell("open")
    until(lambda: view.sent)
    view.paused = True
    time.sleep(0.1)
    looks = looked.looks
    looked.now = page((0, 1, 9.0))
    time.sleep(0.1)
    assert (looked.looks, len(view.sent)) == (looks, 1)
    view.tell("open", "b")
    until(lambda: len(view.sent) == 2)
    assert view.sent[1] == view.sent[0], "another view gets what is on show"
    view.paused = False
    until(lambda: len(view.sent) == 3)
    assert [item["value"] for item in view.sent[2]["items"].values()] == [9.0]


def test_once_nothing_follows_it_has_ended(view: Watched, looked: Looked) -> None:
    view.tell("open")
    until(lambda: view.sent)
    looked.now = page((0, 1, 5.0), state="ended: there is no stream 'per_zone'", ended=True)
    until(lambda: view.ended and not threads())
    assert view.sent[-1]["state"] == "ended: there is no stream 'per_zone'"
    looks = looked.looks
    view.tell("open", "b")
    until(lambda: view.sent[-1]["fresh"] and not threads())
    assert looked.looks == looks
    assert looked.left == 2


def test_its_end_waits_for_the_thread(view: Watched, looked: Looked) -> None:
    view.tell("open")
    until(lambda: view.sent)
    view.end()
    assert (view.ended, threads(), looked.left) == (True, [], 1)


COUNTS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 2)), max_size=12)


@given(before=COUNTS, now=COUNTS, kinds=st.tuples(*[st.sampled_from(["line", "bar", "table"])] * 2))
def test_changes_bring_a_view_to_where_the_whole_would(before: Any, now: Any, kinds: Any) -> None:
    old, new = (page(*counts, wish=Wish(kind)) for counts, kind in zip((before, now), kinds, strict=True))
    items: dict[str, Any] = {}
    for message in (news(None, old), news(old, new)):
        if message is None:
            continue
        if message["fresh"]:
            items.clear()
        for gone in message["gone"]:
            del items[gone]
        items.update(message["items"])
    assert items == new["items"]
    assert news(new, new) is None


NULLS = estimate(3.0)


@pytest.mark.parametrize("wish", [Wish(), Wish("bar"), Wish(y="fares"), Wish("line", x="zone"), Wish(x="zone")])
def test_a_chart_can_be_drawn_with_and_without_intervals(wish: Wish) -> None:
    drawn = page((0, 1, 5.0), (0, 2, 7.0), (1, 1, 3.0), wish=wish)
    spec = result_chart(drawn)
    assert "$schema" not in spec
    picture = vl_convert.vegalite_to_svg({**spec, "data": {"name": DATA, "values": list(drawn["items"].values())}})
    with_intervals = "fares" not in str(wish)
    count = 2 if drawn["form"] == "line" and wish.x is None else 1
    if drawn["form"] == "line":
        assert picture.count('aria-roledescription="area mark"') == (count if with_intervals else 0)
    else:
        assert picture.count('aria-roledescription="rule mark"') == len(drawn["items"])
        assert picture.count('aria-roledescription="tick"') == 2 * len(drawn["items"])


def test_bars_beside_each_other_have_a_colour_for_each_group() -> None:
    rows = [{"name": name, "zone": zone, "trips": NULLS} for name in "ab" for zone in (1, 2)]
    found = result((NAME, ZONE, TRIPS), ("name", "zone"), rows)
    layout = layout_of(found.columns, found.keys, Wish(x="name"))
    drawn = page_of(found, layout, drawing_of(found, layout))
    spec = result_chart(drawn)
    picture = vl_convert.vegalite_to_svg({**spec, "data": {"name": DATA, "values": list(drawn["items"].values())}})
    assert picture.count('aria-roledescription="bar"') == 4
    assert 'aria-roledescription="tick"' not in picture, "ends that are not known are not drawn"


def test_the_code_is_whole_and_loads_nothing_from_elsewhere() -> None:
    code = bundle("results")
    assert "export{" in code.replace(" ", "")[-200:]
    assert "https://cdn" not in code
    assert "esm.sh" not in code
