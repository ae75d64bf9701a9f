"""The live view of a session whose controller follows a script; nothing is drawn here."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from qod_magics.controller import Recording
from qod_magics.controller.log import Cycle
from qod_magics.controller.record import RecordingError, Records
from qod_magics.core.runtime import Event
from qod_magics.errors import TaskManagerError
from qod_magics.recordings.reading import load
from qod_magics.results.slices import Kept
from qod_magics.session.live_view import View
from qod_magics.session.results import report_so_far
from tests.controller.scripted import Bench, bench, chain, seen
from tests.raising import breaks
from tests.texts import tells

NONE_UP = TaskManagerError("No task manager is up: `%qod add-tm` adds one.")
SKIPPED = f"observe() failed: {NONE_UP}"


class Made:
    """In the place of a session, as far as its view looks."""

    id = "a1b2c3"

    def __init__(self, loop: Bench, path: Path) -> None:
        self.controller, self.began = loop.controller, loop.clock.wall()
        self.recording_path = path / "run.jsonl"
        self.controller.record(Recording(self.recording_path))
        self.runtime = SimpleNamespace(deployment=SimpleNamespace(specs={}))
        self.slices = SimpleNamespace(kept=lambda: self.copies)
        self.copies: tuple[Kept, ...] = ()

    @property
    def last(self) -> Cycle | None:
        return self.controller.last


@pytest.fixture
def loop() -> Bench:
    """A cycle, two without a task manager, and further ones."""
    lost = Event("task-manager-lost", {"task_manager": "tm1", "why": "its process ended"})
    return bench(seen(), NONE_UP, NONE_UP, seen(chain(), lost))


@pytest.fixture
def made(loop: Bench, tmp_path: Path) -> Iterator[Made]:
    session = Made(loop, tmp_path)
    yield session
    session.controller.close()


def viewed(made: Made, monkeypatch: pytest.MonkeyPatch) -> tuple[View, list[dict[str, Any]]]:
    """A view, and the messages that its dashboard gets for skipped cycles."""
    told: list[dict[str, Any]] = []
    monkeypatch.setattr("qod_widgets.dashboard.Dashboard.skip", lambda _, why: told.append({**why}))
    return View(made), told  # type: ignore[arg-type]


def kinds(log: list[dict[str, Any]]) -> list[str]:
    return [entry["kind"] for entry in log]


def test_cycles_without_a_decision_say_why_and_the_next_frame_has_their_entries(
    made: Made, loop: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    view, told = viewed(made, monkeypatch)
    loop.cycles(1)
    assert (len(view.frames), told) == (1, [])
    made.controller.note("policy", "another decides from now on")
    loop.cycles(2)
    assert [(each["cycle"], each["t"], each["words"]) for each in told] == [(2, 5.0, SKIPPED), (3, 10.0, SKIPPED)]
    assert [kinds(each["log"]) for each in told] == [["policy", "observe-failed"]] * 2
    loop.cycles(1)
    entries = view.frames[-1]["log"]
    assert kinds(entries)[:4] == ["policy", "observe-failed", "observe-failed-over", "task-manager-lost"]
    assert [entry["t"] for entry in entries][:4] == [5.0, 5.0, 15.0, 15.0]
    loop.cycles(1)
    assert "observe-failed" not in kinds(view.frames[-1]["log"])
    view.close()


def test_a_view_that_is_made_meanwhile_says_why_too(made: Made, loop: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    loop.cycles(3)
    view, told = viewed(made, monkeypatch)
    assert len(view.frames) == 1
    (why,) = told
    assert (why["cycle"], kinds(why["log"])) == (3, ["observe-failed"])
    view.close()


@pytest.fixture
def continued(loop: Bench, tmp_path: Path) -> Iterator[Made]:
    """A session after its first cycle, which appends to the recording of an earlier one with two."""
    earlier = Made(loop, tmp_path)
    loop.runtime.script = [seen()]
    loop.cycles(2)
    earlier.controller.close()
    later = bench(seen())
    later.clock.advance(60.00001)
    session = Made(later, tmp_path)
    later.cycles(1)
    yield session
    session.controller.close()


def test_a_view_and_a_report_are_of_the_session_whatever_its_recording_had_before(
    continued: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(continued.recording_path.read_text().splitlines()) == 3
    assert len(load(continued.recording_path)) == 1
    view = View(continued)  # type: ignore[arg-type]
    assert [(each["cycle"], each["t"]) for each in view.frames] == [(1, 0.0)]
    assert tells(repr(view._picture()), "1 cycles")
    view.close()
    written: list[Records] = []
    note = lambda _, records, *__: written.append(records)  # noqa: E731
    report_so_far(continued.recording_path, Path("report.html"), continued.began, note)
    assert [record.number for record in written[0]] == [1]


def test_before_its_first_cycle_there_is_nothing_to_report(continued: Made) -> None:
    later = continued.began + timedelta(seconds=1)
    with pytest.raises(RecordingError, check=breaks("has a cycle")):
        report_so_far(continued.recording_path, Path("report.html"), later)


def test_the_end_of_a_session_leaves_its_last_picture(made: Made, loop: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    view, told = viewed(made, monkeypatch)
    loop.cycles(1)
    made.controller.interrupt()
    monkeypatch.setattr("qod_magics.controller.runtime_calls.BoundedCall.call", lambda *_: None)
    assert made.controller.step().skipped
    assert told == []
    view.close()


def test_at_the_end_of_a_session_its_picture_comes_last(
    made: Made, loop: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    view, _ = viewed(made, monkeypatch)
    loop.cycles(1)
    ended: list[Any] = []
    view._pictures.append(SimpleNamespace(update=lambda _: ended.append((view.dashboard.ended, view.panel.said.value))))
    view.close()
    ((is_over, said),) = ended
    assert (is_over, "status" in said) == (True, True)


def test_slices_with_copies_are_shown_from_the_first_one_on(made: Made, loop: Bench) -> None:
    view = View(made)  # type: ignore[arg-type]
    loop.cycles(1)
    loop.runtime.script = [seen()]
    made.copies = (Kept("totals", 1e9, {"tm1": 2_500_000, "tm2": None}),)
    loop.cycles(1)
    made.copies = ()
    loop.cycles(1)
    before, copies, after = [each["slices"] for each in list(view.frames)[-3:]]
    assert (before, after) == (None, [])
    (told,) = copies
    assert (told["query"], told["mb"]) == ("totals", {"tm1": 2.5, "tm2": None})
    view.close()
