"""The dashboard's half in the kernel: what is sent, when, and to whom. Its other half is seen in a browser."""

from __future__ import annotations

import time

import pytest

from qod_magics.controller import DecisionLog
from qod_magics.recordings.frame import frame, frames
from qod_widgets.charts import specs
from qod_widgets.dashboard import HISTORY_S, Dashboard
from qod_widgets.watched import bundle
from tests.recordings.taxi_drives import records, taxi_drives

RECORDS = records(taxi_drives())
FRAMES = [frame(record, RECORDS[0].at) for record in RECORDS]


class Watched(Dashboard):
    """A dashboard whose messages are kept."""

    def __init__(self, *args):
        super().__init__(*args)
        self.sent = []

    def send(self, content, buffers=None):
        self.sent.append(content)

    def until(self, count):
        deadline = time.monotonic() + 20
        while len(self.sent) < count and time.monotonic() < deadline:
            time.sleep(0.01)
        return self.sent

    def tell(self, kind, view="a"):
        self._heard(self, {"kind": kind, "view": view}, [])


@pytest.fixture
def dashboard():
    made = Watched("run", FRAMES[:3])
    yield made
    made.close()


def test_nothing_is_sent_while_nobody_looks(dashboard):
    dashboard.feed(FRAMES[3])
    time.sleep(0.4)
    assert dashboard.sent == []
    assert dashboard._thread is None


def test_who_opens_it_gets_the_history_and_then_what_is_new(dashboard):
    dashboard.tell("open")
    first = dashboard.until(1)[0]
    assert first["fresh"]
    assert [each["t"] for each in first["frames"]] == [each["t"] for each in FRAMES[:3]]
    assert first["specs"].keys() == {"cpu", "accuracy", "latency", "throughput", "lag", "dropped", "slices"}
    dashboard.feed(FRAMES[3])
    second = dashboard.until(2)[1]
    assert not second["fresh"]
    assert "specs" not in second
    assert second["frames"] == [FRAMES[3]]


def test_frames_that_come_fast_go_together(dashboard):
    dashboard.tell("open")
    dashboard.until(1)
    for each in FRAMES[3:23]:
        dashboard.feed(each)
    deadline = time.monotonic() + 20
    while sum(len(m["frames"]) for m in dashboard.sent[1:]) < 20 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert [each["t"] for message in dashboard.sent[1:] for each in message["frames"]] == [f["t"] for f in FRAMES[3:23]]
    assert len(dashboard.sent) <= 5


def test_another_application_brings_other_charts(dashboard):
    dashboard.tell("open")
    dashboard.until(1)
    other = {**FRAMES[3], "tasks": FRAMES[3]["tasks"][:2], "edges": FRAMES[3]["edges"][:2]}
    dashboard.feed(other)
    message = dashboard.until(2)[1]
    assert message["fresh"]
    assert "specs" in message


def test_what_stages_do_and_how_wide_tasks_are_is_sent_with_each_cycle(dashboard):
    dashboard.tell("open")
    dashboard.until(1)
    first, second = taxi_drives()[3:5]
    for line, count in ((first, 4), (second, 5)):
        line["policy"] = "auto"
        line["snapshot"]["tasks"][-1]["max_parallelism"] = count
    second["events"] = [{"kind": "stage-paused", "stage": "judge"}]
    for each in frames(records([first, second]), RECORDS[0].at, DecisionLog()):
        dashboard.feed(each)
        dashboard.until(len(dashboard.sent) + 1)
    sent = [each for message in dashboard.sent[1:] for each in message["frames"]]
    assert [each["tasks"][-1]["max_parallelism"] for each in sent] == [4, 5]
    assert [[s["stage"] for s in each["stages"] if s["paused"]] for each in sent] == [[], ["judge"]]
    assert not any("specs" in message for message in dashboard.sent[1:]), "the charts stay"


def test_a_cycle_without_a_frame_says_why_until_the_next_frame(dashboard):
    why = {"t": 16.0, "cycle": 4, "words": "no task manager is up", "log": [{"t": 16.0, "kind": "x", "words": "gone"}]}
    dashboard.tell("open")
    dashboard.until(1)
    dashboard.skip(why)
    assert dashboard.until(2)[1] == {"kind": "skipped", **why}
    dashboard.tell("open", "b")
    assert [each["kind"] for each in dashboard.until(4)[2:]] == ["frames", "skipped"], "who comes later sees it, too"
    dashboard.feed(FRAMES[3])
    dashboard.until(5)
    dashboard.tell("open", "c")
    dashboard.until(6)
    dashboard.skip(why)
    dashboard.rewind(FRAMES[:2])
    time.sleep(0.4)
    assert [each["kind"] for each in dashboard.sent[4:]] == ["frames"] * 3


def test_after_the_last_view_closed_nothing_is_sent(dashboard):
    dashboard.tell("open")
    dashboard.tell("open", "b")
    dashboard.until(1)
    dashboard.tell("close")
    assert dashboard.watched
    dashboard.tell("close", "b")
    assert not dashboard.watched
    count = len(dashboard.sent)
    dashboard.feed(FRAMES[3])
    time.sleep(0.4)
    assert len(dashboard.sent) == count


def test_the_history_reaches_back_ten_minutes():
    long = [{**FRAMES[0], "t": float(t)} for t in range(0, 2000, 5)]
    dashboard = Watched("long", long)
    assert next(each["t"] for each in dashboard._history()) == long[-1]["t"] - HISTORY_S
    dashboard.close()


def test_its_thread_ends_with_it(dashboard):
    dashboard.tell("open")
    dashboard.until(1)
    thread = dashboard._thread
    dashboard.end()
    thread.join(5)
    assert not thread.is_alive()
    assert dashboard.ended


def test_who_opens_it_after_its_end_gets_the_history(dashboard):
    """As with "Run All" where what views say waits for the last cell, which ends the session."""
    dashboard.end()
    dashboard.tell("open")
    (first,) = dashboard.until(1)
    assert first["fresh"]
    assert [each["t"] for each in first["frames"]] == [each["t"] for each in FRAMES[:3]]
    dashboard.tell("open", "b")
    assert dashboard.until(2)[1] == first
    assert without_thread(dashboard)


def test_views_that_open_while_it_ends_are_all_answered(dashboard):
    for number in range(100):
        dashboard.tell("open", str(number))
        dashboard.end()
        assert without_thread(dashboard)
        assert dashboard.sent[-1]["fresh"]
        dashboard.sent.clear()


def without_thread(dashboard):
    """Whether its thread has ended, soon."""
    deadline = time.monotonic() + 20
    while dashboard._thread is not None and time.monotonic() < deadline:
        time.sleep(0.001)
    return dashboard._thread is None


def test_the_code_is_whole_and_loads_nothing_from_elsewhere():
    code = bundle("dashboard")
    assert "export{" in code.replace(" ", "")[-200:]
    assert "https://cdn" not in code
    assert "esm.sh" not in code


@pytest.mark.parametrize("tasks", [(), ("a",), tuple(f"t{i}" for i in range(50))])
def test_charts_have_one_data_set_of_their_own_name(tasks):
    for name, spec in specs(tasks, tasks).items():
        assert spec["data"] == {"name": name}
        assert "$schema" not in spec
