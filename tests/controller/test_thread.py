"""The loop on its thread. Most run in virtual time, where waiting is instant; none asserts an absolute time."""

from __future__ import annotations

import threading
from concurrent.futures import wait

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qod_magics.controller import Controller, ControllerThread, InlineWorker, StoppedError, SystemClock
from qod_magics.controller.thread import BusyError, next_deadline
from qod_magics.errors import UsageProblem
from tests.controller.looping import LONG_S, until
from tests.controller.scripted import FixedPolicy, ScriptedRuntime, VirtualWorkers, bench, seen
from tests.raising import breaks
from tests.texts import tells


def real_controller(runtime=None, **options):
    """A controller on the machine's clock, whose period never ends within a test."""
    clock = SystemClock()
    runtime = runtime or ScriptedRuntime([seen()], VirtualWorkers(clock))
    return Controller(runtime, FixedPolicy(), period_s=1000.0, **options)


def first_cycle(loop: ControllerThread):
    """Waits until the loop is idle after its first cycle."""
    ready = threading.Event()
    loop.subscribe(lambda _: ready.set())
    loop.start()
    assert ready.wait(LONG_S)


@given(st.floats(0, 1e6), st.floats(0, 1e4), st.floats(0.01, 100))
def test_deadlines_stay_on_the_grid_and_are_never_in_the_past(last, late, period_s):
    deadline, skipped = next_deadline(last, last + late, period_s)
    assert deadline >= last + late - 1e-6 * (1 + abs(last))
    assert deadline == last + (skipped + 1) * period_s
    assert skipped == 0 or last + skipped * period_s < last + late + 1e-6


def test_cycles_come_once_a_period_without_drift():
    b = bench(seen())
    cycles = until(ControllerThread(b.controller), 50)
    assert [(c.at - cycles[0].at).total_seconds() for c in cycles] == [5.0 * n for n in range(50)]


def test_a_late_cycle_skips_and_never_bursts():
    b = bench(policy=FixedPolicy())
    took = iter([0.0, 12.0, 0.0, 0.0])
    b.controller.subscribe(lambda _: b.clock.advance(next(took, 0.0)))
    cycles = until(ControllerThread(b.controller), 4)
    assert [(c.at - cycles[0].at).total_seconds() for c in cycles] == [0.0, 5.0, 20.0, 25.0]
    (entry,) = b.controller.log.entries(kind="cycle-late")
    assert tells(entry.words, "12.0 s", 2)


def test_the_period_can_change_while_it_runs():
    b = bench(seen())
    loop = ControllerThread(b.controller)

    def faster(cycle):
        if cycle.number == 2:
            loop.period_s = 2.0

    b.controller.subscribe(faster)
    cycles = until(loop, 4)
    assert [(c.at - cycles[0].at).total_seconds() for c in cycles] == [0.0, 5.0, 7.0, 9.0]
    with pytest.raises(UsageProblem):
        loop.period_s = 0.0


def test_a_shorter_period_wakes_an_idle_loop():
    controller = real_controller()
    loop = ControllerThread(controller)
    first_cycle(loop)
    again = threading.Event()
    loop.subscribe(lambda cycle: again.set())
    loop.period_s = 0.001
    assert again.wait(LONG_S)
    loop.stop()


def test_commands_run_at_once_when_the_loop_is_idle_and_on_its_thread():
    with ControllerThread(real_controller()) as loop:
        names = [loop.submit(lambda: threading.current_thread().name) for _ in range(3)]
        assert [name.result(LONG_S) for name in names] == ["qod-controller"] * 3


def test_a_command_object_is_given_the_controller():
    class Annotate:
        def run(self, controller):
            controller.annotate(phase="overload")
            return controller

    with ControllerThread(real_controller()) as loop:
        assert loop.submit(Annotate()).result(LONG_S) is loop.controller


def test_what_a_command_raises_goes_to_who_asked():
    with ControllerThread(real_controller()) as loop:
        with pytest.raises(ZeroDivisionError):
            loop.submit(lambda: 1 / 0).result(LONG_S)
        assert loop.submit(lambda: 7).result(LONG_S) == 7


def test_who_asks_waits_for_the_cycle_under_way():
    loop = ControllerThread(real_controller())
    entered, leave = threading.Event(), threading.Event()
    loop.subscribe(lambda _: entered.set() or leave.wait(LONG_S))
    loop.start()
    try:
        assert entered.wait(LONG_S)
        threading.Timer(0.1, leave.set).start()
        assert loop.ask(threading.current_thread, "not asked").name == "qod-controller"
        with pytest.raises(KeyError, match="x"):
            loop.ask(lambda: {}["x"], "not asked")
        with pytest.raises(TimeoutError):
            loop.ask(lambda: (_ for _ in ()).throw(TimeoutError("its own")).__next__(), "not asked")
    finally:
        leave.set()
        loop.stop()


def test_a_loop_that_is_busy_for_too_long_is_told_of_in_one_line_and_does_not_do_it_later():
    loop = ControllerThread(real_controller())
    entered, leave = threading.Event(), threading.Event()
    loop.subscribe(lambda _: entered.set() or leave.wait(LONG_S))
    loop.start()
    done = []
    try:
        assert entered.wait(LONG_S)
        with pytest.raises(BusyError, check=breaks("waiting")) as told:
            loop.ask(lambda: done.append(1), "the door is not open", timeout_s=0.05)
        assert "\n" not in str(told.value)
        leave.set()
        assert loop.ask(lambda: len(done), "not asked") == 0
        hold = threading.Event()
        with pytest.raises(BusyError, check=breaks("under way")):
            loop.ask(lambda: hold.wait(LONG_S), "the door is not open", timeout_s=0.5)
        hold.set()
    finally:
        leave.set()
        loop.stop()


def test_a_cancelled_command_is_not_run():
    loop = ControllerThread(real_controller())
    ran = []
    future = loop.submit(lambda: ran.append(1))
    assert future.cancel()
    with loop:
        loop.submit(lambda: None).result(LONG_S)
    assert ran == []


def test_commands_from_many_threads_run_one_at_a_time_and_none_is_lost():
    done = []
    with ControllerThread(real_controller()) as loop:
        futures = []
        threads = [
            threading.Thread(target=lambda k=k: futures.append(loop.submit(lambda: done.append(k)))) for k in range(50)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        wait(futures, LONG_S)
    assert sorted(done) == list(range(50))


def test_commands_that_a_stopped_loop_will_not_run_are_refused():
    loop = ControllerThread(real_controller())
    early = loop.submit(lambda: 1)
    loop.stop()
    with pytest.raises(StoppedError, check=breaks("running")):
        early.result(0)
    with pytest.raises(StoppedError):
        loop.submit(lambda: 1).result(0)
    with loop:
        assert loop.submit(lambda: 1).result(LONG_S) == 1
    with pytest.raises(StoppedError):
        loop.submit(lambda: 1).result(0)


class FailingOnce:
    """A controller whose second cycle has a bug."""

    def __init__(self, controller):
        self._controller, self._calls = controller, 0

    def __getattr__(self, name):
        return getattr(self._controller, name)

    def step(self, *given):
        self._calls += 1
        if self._calls == 2:
            raise AssertionError("a bug")
        return self._controller.step(*given)


def test_a_fault_of_a_cycle_itself_does_not_end_the_loop():
    b = bench()
    assert len(until(ControllerThread(FailingOnce(b.controller)), 3)) == 3
    assert tells(b.controller.log.entries(kind="controller-failed")[0].words, "AssertionError: a bug")


def test_pause_and_resume_act_from_the_next_cycle():
    b = bench()
    loop = ControllerThread(b.controller)

    def turn(cycle):
        if cycle.number == 1:
            loop.pause()
        elif cycle.number == 3:
            loop.resume()

    b.controller.subscribe(turn)
    assert [c.applied for c in until(loop, 5)] == [True, False, False, True, True]


class Hangs(ScriptedRuntime):
    """Observes until it is let go."""

    def __init__(self):
        super().__init__([seen()], VirtualWorkers(SystemClock()))
        self.entered, self.let_go = threading.Event(), threading.Event()

    def observe(self):
        self.entered.set()
        assert self.let_go.wait(LONG_S)
        return super().observe()


def test_stop_does_not_wait_for_an_observe_that_hangs():
    runtime = Hangs()
    loop = ControllerThread(real_controller(runtime, observe_timeout_s=1000.0))
    loop.start()
    assert runtime.entered.wait(LONG_S)
    loop.stop(join=True, timeout_s=LONG_S)
    assert not loop.alive
    assert loop.controller.last.skipped
    assert not loop.controller.log.entries(kind="observe-slow")
    runtime.let_go.set()


def test_no_thread_is_left_behind_and_the_loop_can_start_again():
    before = set(threading.enumerate())
    loop = ControllerThread(real_controller())
    for _ in range(3):
        first_cycle(loop)
        loop.stop()
        assert not loop.alive
        assert set(threading.enumerate()) <= before


def test_starting_and_stopping_twice_is_harmless():
    loop = ControllerThread(real_controller(worker=InlineWorker))
    loop.stop()
    loop.start()
    loop.start()
    loop.stop()
    loop.stop()
    assert not loop.alive


def test_a_stop_too_many_does_not_spoil_the_next_start():
    loop = ControllerThread(real_controller())
    first_cycle(loop)
    loop.stop()
    loop.stop()
    first_cycle(loop)
    assert loop.controller.last.skipped is None
    loop.stop()


def test_the_loop_can_be_stopped_from_its_own_thread():
    loop = ControllerThread(real_controller())
    loop.subscribe(lambda _: loop.stop())
    loop.start()
    loop._thread.join(LONG_S)
    assert not loop.alive


def test_nothing_is_printed(capfd):
    runtime = ScriptedRuntime([RuntimeError("boom")], VirtualWorkers(SystemClock()))
    loop = ControllerThread(real_controller(runtime))
    first_cycle(loop)
    loop.stop()
    assert capfd.readouterr() == ("", "")
