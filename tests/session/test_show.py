"""Results as they are shown: read again and again, kept in a file, and what is said where they can't be read."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from weakref import WeakSet

import pytest

from qod_magics.application.streams.sink import Console, ForEachBatch, KafkaTopic, Parquet
from qod_magics.application.tasks import tasks
from qod_magics.errors import ApplicationError, KafkaError, QodError, UsageProblem
from qod_magics.kafka.reading import News, Record
from qod_magics.lifecycle.events import State
from qod_magics.lifecycle.query import QueryLife
from qod_magics.results.drawing import ANY, Wish
from qod_magics.results.result import Result
from qod_magics.session.handle import StreamHandle
from qod_magics.session.results import LAST_S, QueryResults, Views
from qod_magics.session.show import ShownResults, read_sample, show_sample, write_sample
from qod_magics.spark.cluster.books import Incomplete
from qod_magics.spark.cluster.deployment import Deployment
from tests.application.frames import application, stream
from tests.raising import breaks
from tests.results.rows import PER_ZONE, per_zone, result
from tests.texts import tells

KEYS = ("w", "zone")


class Following:
    """In the place of a query: what is read of it, one thing after the other."""

    def __init__(self, *found: Result | Exception) -> None:
        self.found: list[Result | Exception] = list(found)
        self.reads = self.left = 0

    def read(self, last: bool = False) -> Result:
        self.reads += 1
        found = self.found.pop(0) if len(self.found) > 1 else self.found[0]
        if isinstance(found, Exception):
            raise found
        return found

    def leave(self) -> None:
        self.left += 1


def of(*rows: tuple[int, int, float]) -> Result:
    return result(PER_ZONE, KEYS, [per_zone(*row) for row in rows])


FIRST, SECOND = of((0, 1, 5.0)), of((0, 1, 5.0), (1, 1, 7.0))


def values(page: dict[str, Any]) -> list[float]:
    return [item["value"] for item in page["items"].values()]


def test_a_page_follows_what_is_read() -> None:
    shown = ShownResults("per_zone", Following(FIRST, SECOND))
    assert values(shown.look()) == [5.0]
    page = shown.look()
    assert values(page) == [5.0, 7.0]
    assert (page["state"], page["ended"]) == ("", False)


def test_what_can_not_be_read_for_the_moment_leaves_the_page_as_it_is() -> None:
    shown = ShownResults("per_zone", Following(KafkaError("Kafka is\naway"), FIRST, KafkaError("away"), SECOND))
    page = shown.look()
    assert (values(page), page["ended"]) == ([], False)
    assert tells(page["state"], "Kafka is away")
    shown.look()
    page = shown.look()
    assert (values(page), page["ended"]) == ([5.0], False)
    assert tells(page["state"], "away")
    assert shown.look()["state"] == ""


def test_a_page_says_why_its_query_writes_nothing_and_goes_on() -> None:
    stopped = replace(FIRST, state="per_zone is given up (no such column)")
    shown = ShownResults("per_zone", Following(stopped, stopped, SECOND))
    page = shown.look()
    assert (values(page), page["state"], page["ended"]) == ([5.0], stopped.state, False)
    assert repr(shown).endswith(f"\n{stopped.state}")
    assert shown.look()["state"] == ""


@pytest.mark.parametrize("error", [ApplicationError("there is no 'per_zone'"), UsageProblem("there is no 'per_zone'")])
def test_a_query_that_is_gone_ends_the_page_with_what_it_had(error: QodError) -> None:
    shown = ShownResults("per_zone", Following(FIRST, error))
    shown.look()
    page = shown.look()
    assert (values(page), page["ended"]) == ([5.0], True)
    assert tells(page["state"], "ended", "'per_zone'")
    assert repr(shown).endswith(f"\nper_zone: {error}")
    assert "5 [4, 6]" in repr(shown)


def test_a_wish_that_a_new_recipe_can_not_fulfil_ends_the_page() -> None:
    shown = ShownResults("per_zone", Following(FIRST), Wish(y="fare"))
    assert tells(shown.look()["state"], "ended", "--y fare", "'fares'")
    with pytest.raises(UsageProblem):
        shown.read()


def test_outside_of_a_notebook_it_is_a_table() -> None:
    shown = ShownResults("per_zone", Following(SECOND), Wish("bar", rows=1))
    assert shown._repr_mimebundle_() == {"text/plain": repr(shown)}
    assert "7 [6, 8]" in repr(shown)
    assert "5 [4, 6]" not in repr(shown)


def test_a_picture_of_the_last_results_is_left() -> None:
    shown = ShownResults("per_zone", Following(FIRST, SECOND), save=None)
    shown.read()
    updated: list[Any] = []
    shown._pictures.append(SimpleNamespace(update=updated.append))
    shown.end()
    (picture,) = updated
    assert picture._repr_html_().count("<svg") == 1
    assert "<p>accuracy: measured 62.0%, planned 60.0%, minimum 40.0%</p>" in picture._repr_html_()
    assert "7 [6, 8]" in repr(picture)
    table = ShownResults("per_zone", Following(SECOND), Wish("table"))
    table._pictures.append(SimpleNamespace(update=updated.append))
    table.end()
    assert updated[-1]._repr_html_() == f"<pre>{updated[-1]!r}</pre>"
    gone = ShownResults("per_zone", Following(KafkaError("away")))
    gone._pictures.append(SimpleNamespace(update=updated.append))
    gone.end()
    assert tells(repr(updated[-1]), "per_zone")


def pictured(shown: ShownResults) -> list[Any]:
    """The pictures that a cell gets which displays it."""
    updated: list[Any] = []
    shown._pictures.append(SimpleNamespace(update=updated.append))
    return updated


def test_a_value_that_can_not_be_drawn_leaves_a_table() -> None:
    huge = of((0, 1, 10.0**30 + 2.0**70), (0, 2, 1.0))
    huge = replace(huge, rows={key: {**row, "trips": {"value": 10**30}} for key, row in huge.rows.items()})
    shown = ShownResults("per_zone", Following(huge), Wish("bar", x="zone"))
    shown.read()
    updated = pictured(shown)
    shown.end()
    (picture,) = updated
    assert picture._repr_html_().startswith("<pre>")
    assert "per_zone, read at" in repr(picture)


def test_once_its_views_have_closed_only_what_is_on_show_is_kept() -> None:
    following = Following(SECOND, KafkaError("away"))
    shown = ShownResults("per_zone", following, Wish(rows=1))
    page, words = shown.look(), shown._text(shown._shown)  # type: ignore[arg-type]
    shown.view._heard(shown.view, {"kind": "open", "view": "a"}, [])
    shown.view._heard(shown.view, {"kind": "close", "view": "a"}, [])
    until(lambda: following.left)
    until(lambda: shown._shown is not None and shown._shown.words is not None)
    assert shown._shown is not None
    assert shown._shown.result.rows == {}
    assert {**shown.look(), "state": ""} == page
    assert words in repr(shown)
    updated, reads = pictured(shown), following.reads
    shown.end()
    assert following.reads == reads, "nobody sees what would be read"
    assert updated[0]._repr_html_().count("<svg") == 1
    assert repr(updated[0]) == words


def until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_what_is_open_at_the_end_is_read_once_more_before_its_rows_are_dropped() -> None:
    following = Following(FIRST)
    shown = ShownResults("per_zone", following)
    view, updated = shown.view, pictured(shown)
    view._heard(view, {"kind": "open", "view": "a"}, [])
    until(lambda: following.reads)
    following.found = [ApplicationError("its session has ended")]  # until the last reading
    view._wake.set()
    until(lambda: view.ended)

    def last(last: bool = False) -> Result:
        assert not (last and following.left)
        return SECOND if last else Following.read(following, last)

    following.read = last  # type: ignore[method-assign]
    shown.end()
    assert following.left == 1
    assert "7 [6, 8]" in repr(updated[0])


def test_after_the_deadline_nothing_is_read_or_waited_for() -> None:
    following = Following(FIRST, SECOND)
    shown = ShownResults("per_zone", following)
    shown.read()
    updated = pictured(shown)
    shown.end(until=0.0)
    assert following.reads == 1
    assert "5 [4, 6]" in repr(updated[0])


def test_views_end_whatever_becomes_of_the_others_first_the_dashboard() -> None:
    ended: list[Any] = []

    def breaks(*given: Any) -> None:
        ended.append(given)
        raise ValueError("number out of range")

    views = Views(SimpleNamespace())  # type: ignore[arg-type]
    views._dashboard = SimpleNamespace(close=lambda: breaks("dashboard"))  # type: ignore[assignment]
    shows = [SimpleShow(closed, breaks) for closed in (True, False)]
    views._shows = WeakSet(shows)  # type: ignore[arg-type]
    views.close()
    assert [given[0] for given in ended] == ["dashboard", False, True]
    assert ended[1][1] == ended[2][1] <= time.monotonic() + LAST_S, "one deadline for all"


class SimpleShow:
    """In the place of results on show."""

    def __init__(self, closed: bool, ending: Callable[..., None]) -> None:
        self.closed, self._ending = closed, ending

    def end(self, until: float) -> None:
        self._ending(self.closed, until)


# -- files -------------------------------------------------------------------------------------------------------------


def test_a_file_has_what_is_on_show(tmp_path: Path) -> None:
    path = tmp_path / "shown.jsonl"
    shown = ShownResults("per_zone", Following(FIRST, SECOND), Wish(rows=1), save=path)
    shown.read()
    assert list(read_sample(path).rows.values()) == [per_zone(0, 1, 5.0)]
    shown.read()
    again = read_sample(path)
    assert list(again.rows.values()) == [per_zone(1, 1, 7.0)], "one window is shown"
    assert replace(again, rows=SECOND.rows) == SECOND
    assert json.loads(path.read_text("utf-8").splitlines()[0])["accuracy"] == {
        "measured": 0.62,
        "desired": 0.6,
        "minimum": 0.4,
    }
    assert list(tmp_path.iterdir()) == [path]


def test_it_stays_where_it_was_meant_to_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    views = Views(SimpleNamespace(), lambda *_: Following(FIRST, SECOND))  # type: ignore[arg-type, return-value]
    shown, at_home = views.show("per_zone", ANY, "rows.jsonl"), views.show("per_zone", ANY, "~/home.jsonl")
    shown.read()
    (tmp_path / "data").mkdir()
    monkeypatch.chdir("data")
    shown.read()
    at_home.read()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "home.jsonl", "rows.jsonl"]
    assert not list(Path().iterdir())
    assert len(read_sample(tmp_path / "rows.jsonl").rows) == 2
    assert read_sample(tmp_path / "home.jsonl").rows


def test_it_is_written_only_when_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "shown.jsonl"
    shown = ShownResults("per_zone", Following(FIRST, FIRST, SECOND), save=path)
    shown.read()
    path.unlink()
    shown.read()
    assert not path.exists()
    shown.read()
    assert path.exists()


def test_a_file_is_shown_again_as_it_was_or_otherwise(tmp_path: Path) -> None:
    path = tmp_path / "shown.jsonl"
    write_sample(path, SECOND, list(SECOND.rows.values()))
    page = show_sample(path, ANY).look()
    assert (page["form"], values(page), page["ended"]) == ("line", [5.0, 7.0], True)
    assert page["state"] == "from shown.jsonl, saved at 2026-11-21 12:00:00 UTC"
    page = show_sample(path, Wish("bar")).look()
    assert (page["form"], values(page)) == ("bar", [7.0])
    assert "accuracy: measured 62.0%" in repr(show_sample(path, ANY))
    with pytest.raises(UsageProblem, check=breaks("exists")):
        show_sample(path, Wish(x="zones"))


@pytest.mark.parametrize(
    "lines",
    [[], ["no json"], ["[]"], ["1"], ["{}"], ['{"query": "q"}'], ['{"query": "q", "columns": {"a": "no kind"}}']],
)
def test_other_files_are_refused_in_a_line(tmp_path: Path, lines: Sequence[str]) -> None:
    path = tmp_path / "other.jsonl"
    path.write_text("\n".join(lines))
    with pytest.raises(UsageProblem, check=breaks("saved results")):
        show_sample(path, ANY)


def test_files_that_are_not_there_are_said(tmp_path: Path) -> None:
    with pytest.raises(UsageProblem, check=breaks("readable")):
        show_sample(tmp_path / "none.jsonl", ANY)
    with pytest.raises(UsageProblem, check=breaks("writable")):
        ShownResults("q", Following(FIRST), save=tmp_path / "no" / "such.jsonl").read()


# -- what has no results -----------------------------------------------------------------------------------------------


class Session:
    """In the place of a session with these streams, of which none runs."""

    alive = True

    def __init__(self) -> None:
        sinks = {
            "filed": Parquet("/out"),
            "told": Console(),
            "given": ForEachBatch(print),
            "sent": KafkaTopic("out"),
        }
        queries = [stream(name, "trips", priority=1, sink=sink) for name, sink in sinks.items()]
        self.application = application(
            stream("trips", topic="trips"),
            *queries,
            stream("alone", topic="trips"),
            stream("query", "trips", priority=1),
        )
        self.runtime = SimpleNamespace(deployment=Deployment(None, "s"), instances={})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        (
            "filed",
            "spark.read.format('parquet').load('/out')",
        ),
        ("told", "console"),
        ("given", "foreachBatch:print"),
        ("trips", "show filed"),
        ("alone", "alone"),
        ("quer", "'query'"),
        ("query", "query"),
        ("sent", "sent"),
    ],
)
def test_what_can_not_be_shown_is_said_with_what_to_do(name: str, says: str) -> None:
    with pytest.raises(QodError) as caught:
        QueryResults(Session(), name)  # type: ignore[arg-type]
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


class Topic:
    """In the place of a topic's tail: what has been written so far, which each tail reads once."""

    written: list[bytes]
    made = 0

    def __init__(self, *_: Any) -> None:
        type(self).made += 1
        self._at = 0

    def read(self) -> News:
        records = tuple(Record(0, value) for value in self.written[self._at :])
        self._at = len(self.written)
        return News(records)

    def close(self) -> None:
        pass


class Running(Session):
    """In the place of a session whose query runs, or is about to."""

    last = None
    kafka = None

    def __init__(self) -> None:
        super().__init__()
        (spec,) = (each for each in tasks(self.application) if each.id == "query")
        schema = SimpleNamespace(jsonValue=lambda: {"fields": [{"name": "n", "type": "long"}]})
        self.instance = SimpleNamespace(
            job=SimpleNamespace(task="query"),
            state=State.RUNNING,
            failure=None,
            task_manager=None,
            life=QueryLife(State.RUNNING),
        )
        self.asked = 0
        deployment = SimpleNamespace(
            specs={"query": spec},
            checked=SimpleNamespace(whole={}, schemas={"query": schema}, labels={}),
            results={"query": "qod.out"},
            sinks={},
            instances=lambda _: 1,
            specs_with=lambda _: [spec],
            result_keys=self._keys,
            apart=lambda *_: False,
            kafka_of=lambda _: None,
        )
        self.runtime = SimpleNamespace(
            kafka=None,
            incomplete=Incomplete(),
            deployment=deployment,
            instances={"query.1": self.instance},
            workshop=lambda: None,
        )

    def _keys(self, *_: Any) -> tuple[str, ...]:
        self.asked += 1
        return ("n",)


@pytest.fixture
def running() -> Running:
    Topic.written, Topic.made = [b'{"n": 1}', b'{"n": 2}'], 0
    return Running()


def test_its_rows_are_dropped_when_nobody_looks_and_read_again(running: Running) -> None:
    results = QueryResults(running, "query", Topic)  # type: ignore[arg-type]
    assert [*results.read().rows.values()] == [{"n": 1}, {"n": 2}]
    results.leave()
    assert len(results._newest.rows) == 0
    Topic.written.append(b'{"n": 3}')
    assert [*results.read().rows.values()] == [{"n": 1}, {"n": 2}, {"n": 3}]
    assert (Topic.made, running.asked) == (2, 1), "its plan is known"


def test_why_it_does_not_run_is_its_state(running: Running) -> None:
    results = QueryResults(running, "query", Topic)  # type: ignore[arg-type]
    assert results.read().state == ""
    running.instance.state, running.instance.failure = State.GAVE_UP, "no such column"
    assert tells(results.read().state, "query", State.GAVE_UP.value, "no such column")
    running.instance.state, running.instance.failure = State.WAITING, None
    assert tells(results.read().state, "query", State.WAITING.value)


def test_after_the_session_there_is_nothing() -> None:
    session = Session()
    session.alive = False
    with pytest.raises(ApplicationError, check=breaks("running")):
        QueryResults(session, "query", Topic)  # type: ignore[arg-type]


def test_outside_of_a_notebook_a_handle_is_its_state_in_words() -> None:
    handle = StreamHandle(Session(), "alone")  # type: ignore[arg-type]
    assert handle._repr_mimebundle_() == {"text/plain": repr(handle)}
