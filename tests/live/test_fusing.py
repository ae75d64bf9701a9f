"""Fusing of neighbouring tasks while rows flow, and the reverse: none is lost, none twice, the books stay exact."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame

from qod_magics.application.streams.stream import Mode
from qod_magics.core.plan import Action, Fuse, Plan, Unfuse
from qod_magics.core.runtime import Count, Dials
from qod_magics.errors import QodError
from qod_magics.session.session import Session
from tests.live.applications import observed, rows, written
from tests.live.conftest import eventually
from tests.live.steady import SCHEMA, Steady
from tests.live.watching import Events, by_window, counted, home, running, settled
from tests.texts import tells


def declare(session: Session, topic: str, mode: str = "microbatch") -> None:
    """src, mid and q, which pass rows on, as one query."""
    session.stream("src", topic=topic, schema=SCHEMA, starting="earliest", mode=mode)  # type: ignore[arg-type]
    session.stream("mid", lambda src: src.where("n >= 0"), from_="src", mode=mode)  # type: ignore[arg-type]
    session.stream("q", lambda mid: mid, from_="mid", priority=1, mode=mode)  # type: ignore[arg-type]


def tasks(session: Session) -> dict[str, tuple[str, ...]]:
    """What each task reads, as the next snapshot has it."""
    return {task.id: task.upstream for task in observed(session).snapshot.tasks}


def counts(session: Session) -> dict[str, Count]:
    """The books now."""
    return dict(observed(session).measured.counts)


def ask(session: Session, action: Action) -> None:
    """Have a plan ask for this."""
    session.runtime.apply(Plan({}, {}, (action,)), Dials({}, {}))


def more(session: Session, name: str) -> None:
    """Wait for results after those of now."""
    had = written(session, name)
    eventually(lambda: written(session, name) > had, what=lambda: f"results beyond {had}\n{session.status()}")


@pytest.mark.parametrize(
    "mode", [pytest.param("microbatch", marks=pytest.mark.smoke), pytest.param("realtime", marks=pytest.mark.slow)]
)
def test_a_chain_is_parted_and_fused_while_rows_flow(brief: Session, topic: str, mode: str) -> None:
    session = brief
    with Steady(session, topic) as steady, Events(session) as events:
        declare(session, topic, mode)
        eventually(lambda: written(session, "q") > 0, what="first results")
        assert tasks(session) == {"q": ()}

        session.unfuse("mid", "q")
        session.unfuse("src", "mid")
        assert tasks(session) == {"src": (), "mid": ("src",), "q": ("mid",)}
        assert len({home(session, id) for id in ("src.1", "mid.1", "q.1")}) == 1
        more(session, "q")

        session.fuse("mid", "q")
        assert tasks(session) == {"src": (), "q": ("src",)}  # which goes on in the topic that mid has read
        eventually(lambda: running(session), what=session.status)
        more(session, "q")
        ask(session, Fuse(("src", "q"), "a reason"))
        done = events.first("fuse", task="q", why="a reason")
        assert (done["from"], done["to"]) == ("src", "mid")
        assert done["took_s"] > 0
        assert tasks(session) == {"q": ()}
        more(session, "q")

        run = session.runtime.instances["q.1"].run_id
        session.set("q", priority=2)  # what is declared is what runs
        assert session.runtime.instances["q.1"].run_id == run
        ask(session, Unfuse(("src", "mid"), "another"))
        events.first("unfuse", task="q", why="another")
        passed = counts(session)["src>q"].arrived
        more(session, "q")

        sent = steady.stop()
        found = settled(session, "src", sent, "src>q")
        assert events.of("query-failed") == events.of("query-restarted") == events.of("action-refused") == []
    source, stream = found["src"], found["src>q"]
    assert (source.processed, source.dropped, source.unreported) == (sent, 0, 0)
    assert passed > 0
    assert passed <= stream.arrived
    assert (stream.processed, stream.dropped, stream.unreported) == (stream.arrived, 0, 0)
    results = Counter(row["n"] for row in rows(session, "q"))
    assert set(results) == set(range(sent))
    if mode == "microbatch":
        assert stream.arrived <= sent
        assert set(results.values()) == {1}
    assert max(results.values()) <= 2  # batches that were cut off are read again


@pytest.mark.parametrize(
    ("keeps", "mode"),
    [("first", "microbatch"), ("second", "microbatch"), pytest.param("second", "realtime", marks=pytest.mark.slow)],
)
def test_the_state_of_a_fused_task_goes_on(brief: Session, topic: str, keeps: str, mode: Mode) -> None:
    """Rows are counted by window and key, before or after a task without state."""
    session = brief
    with Steady(session, topic) as steady, Events(session) as events:
        session.stream("src", topic=topic, schema=SCHEMA, starting="earliest", mode=mode)
        recipes = (by_window, lambda mid: mid) if keeps == "first" else (lambda src: src, _counts)
        session.stream("mid", recipes[0], from_="src", mode=mode)  # type: ignore[arg-type]
        session.stream("counts", recipes[1], from_="mid", priority=1, sink="memory", mode=mode)  # type: ignore[arg-type]
        eventually(lambda: counted(session) > 0, what="first counts")
        for change in (session.unfuse, session.fuse, session.unfuse):
            change("mid", "counts")
            had = counted(session)
            eventually(lambda had=had: counted(session) > had, what=session.status)  # type: ignore[misc]
        sent = steady.stop()
        settled(session, "mid", sent)
        eventually(lambda: counted(session) >= sent, what=lambda: f"{sent} rows counted: {counted(session)}")
        assert events.of("query-failed") == events.of("query-restarted") == []
    assert counted(session) == sent


def _counts(mid: DataFrame) -> DataFrame:
    return by_window(mid)


def test_what_can_t_be_fused_is_refused_in_one_line(brief: Session, topic: str) -> None:
    session = brief

    def refusal(call: Callable[[str, str], object], *names: str) -> str:
        with pytest.raises(QodError) as caught:
            call(*names)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    session.stream("src", topic=topic, schema=SCHEMA, starting="earliest")
    session.stream("alone", lambda src: src, from_="src", fuse=False)
    session.stream("sums", lambda alone: by_window(alone), from_="alone", priority=1)
    assert tells(refusal(session.fuse, "src", "alone"), "alone", "--no-fuse")
    assert tells(refusal(session.fuse, "src", "sums"), "sums", "src")
    assert "'sums'" in refusal(session.fuse, "alone", "sum")
    assert "stream" in refusal(session.unfuse, "src", "sums")
    ask(session, Fuse(("src", "alone")))
    told = [event.detail for event in observed(session).events if event.kind == "action-refused"]
    assert [(each["action"], each["stream"]) for each in told] in ([], [("Fuse", "src>alone")])  # a cycle may have it
    session.stream("alone", lambda src: src, from_="src")
    session.stream("sums", lambda alone: by_window(alone), from_="alone", priority=1)
    assert set(tasks(session)) == {"src", "alone", "sums"}  # streams in use stay topics
    there = "tm2" if home(session, "alone.1") == "tm1" else "tm1"
    session.move("sums.1", there)
    eventually(lambda: running(session), what=session.status)
    assert tells(refusal(session.fuse, "alone", "sums"), "sums.1", there)
