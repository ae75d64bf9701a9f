"""Run the control loop on a thread of its own: one cycle per period, and queued commands between cycles."""

from __future__ import annotations

import math
import queue
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from types import TracebackType
from typing import Any, Protocol, TypeVar, cast

from qod_magics.controller.controller import Controller, Subscriber
from qod_magics.controller.journal import describe
from qod_magics.errors import QodError

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


#: Time that `ask` allows for the command itself, seconds.
COMMAND_S = 30.0


class StoppedError(QodError, RuntimeError):
    """A command was given to a loop that does not run."""


class BusyError(QodError, RuntimeError):
    """The loop did not complete a command in time."""


class Command(Protocol[T_co]):
    """Something to do with the controller between two cycles."""

    def run(self, controller: Controller) -> T_co:
        """Do it, on the controller's thread."""
        ...


def next_deadline(last: float, now: float, period_s: float) -> tuple[float, int]:
    """Return the first instant `last + k * period_s`, k >= 1, that lies ahead, and how many earlier ones were skipped.

    Deadlines stay on the grid of the first one, so periods do not drift. Skipped cycles are not made up for.
    """
    periods = max(math.ceil((now - last) / period_s - 1e-9), 1)
    return last + periods * period_s, periods - 1


class ControllerThread:
    """Runs a controller on a daemon thread.

    At any given time at most one thread steps the controller. All methods are safe from any thread; only `ask` and
    `stop(join=True)` wait for a cycle. Usable as a context manager.
    """

    def __init__(self, controller: Controller) -> None:
        self.controller = controller
        self._commands: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = queue.SimpleQueue()
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._ended = False
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"{self.controller!r}, on a thread that {'runs' if self.alive else 'does not run'}"

    def start(self) -> None:
        """Start the loop: the first cycle begins at once. Does nothing while it runs.

        Raises StoppedError while a loop that was told to stop has not ended.
        """
        with self._lock:
            if self._thread is not None and self._thread.is_alive():
                if self._stopping.is_set():
                    raise StoppedError("the loop is still stopping; wait for it with stop(join=True), then start again")
                return
            self._stopping.clear()
            self._ended = False
            self._thread = threading.Thread(target=self._run, name="qod-controller", daemon=True)
            self._thread.start()

    def stop(self, join: bool = True, timeout_s: float | None = None) -> None:
        """End after the cycle under way, which stops waiting for the runtime. Commands not yet run are refused.

        With `join`, wait for the end, for at most `timeout_s` seconds (not when called on the loop's own thread).
        """
        with self._lock:
            self._stopping.set()
            self._wake.set()
            thread = self._thread
            if thread is None or self._ended:
                self._refuse()
            else:
                self.controller.interrupt()  # before the loop's own `close`, which ends it
        if join and thread is not None and thread is not threading.current_thread():
            thread.join(timeout_s)

    @property
    def alive(self) -> bool:
        """Return whether the loop runs."""
        thread = self._thread
        return thread is not None and thread.is_alive()

    def submit(self, command: Callable[[], T] | Command[T]) -> Future[T]:
        """Run `command` between two cycles, on the controller's thread; at once when the loop is idle.

        A callable is called without arguments; anything with a `run` is given the controller. The future has the
        result or what was raised, or StoppedError when the loop ends or ended before. Commands given before `start`
        wait for it. Don't wait for the future on the controller's own thread.
        """
        future: Future[T] = Future()
        run = getattr(command, "run", None)
        call = (lambda: run(self.controller)) if callable(run) else cast("Callable[[], T]", command)
        with self._lock:
            if self._ended or self._stopping.is_set():
                future.set_exception(_stopped())
                return future
            self._commands.put((call, future))
        self._wake.set()
        return future

    def ask(self, command: Callable[[], T] | Command[T], what: str, timeout_s: float | None = None) -> T:
        """Run a command as `submit` does, and wait for its result: for `timeout_s` seconds, or by default for a cycle's
        longest wait and `COMMAND_S`.

        Raises what the command raises, StoppedError, and BusyError when it did not end in time: one that had not begun
        is cancelled. `what` begins that error's message: "the recording was not changed".
        """
        future = self.submit(command)
        patience_s = COMMAND_S + self.controller.longest_wait_s if timeout_s is None else timeout_s
        ended, _ = wait((future,), patience_s)
        if ended:
            return future.result()
        late = f"the controller was busy for {patience_s:g} s"
        if future.cancel():
            raise BusyError(
                f"{what}: {late} with one cycle; ask again once %qod status shows a new one", rule="waiting"
            )
        raise BusyError(f"{what} yet: {late} and is still at it; %qod status shows when it is done", rule="under way")

    def pause(self) -> None:
        """Recommend only: plans are made, logged and recorded, but not applied."""
        self.controller.pause()

    def resume(self) -> None:
        """Apply plans again, from the next cycle on."""
        self.controller.resume()

    @property
    def period_s(self) -> float:
        """Length of a cycle, seconds. A change counts from the beginning of the last cycle."""
        return self.controller.period_s

    @period_s.setter
    def period_s(self, seconds: float) -> None:
        self.controller.period_s = seconds
        self._wake.set()

    def subscribe(self, callback: Subscriber) -> Callable[[], None]:
        """Call `callback` with each finished cycle, on the controller's thread. Returns a function to unsubscribe."""
        return self.controller.subscribe(callback)

    def __enter__(self) -> ControllerThread:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def _run(self) -> None:
        try:
            self._loop()
        finally:
            with self._lock:
                self._ended = True
                self._refuse()
            self.controller.close()

    def _loop(self) -> None:
        clock = self.controller.clock
        begun, deadline, period_s = -math.inf, clock.monotonic(), self.controller.period_s
        again = math.inf  #: when to make one more cycle, before the deadline
        rates: Mapping[str, float] = {}  #: input rates that the next cycle is for, in place of means
        early = was_early = False  #: for a rise: whether the next cycle is, and the last one was; one on time follows
        while True:
            self._wake.clear()  # before the queue is looked at: whatever is added later wakes the wait
            self._run_commands()
            if self._stopping.is_set():
                return
            if self.controller.period_s != period_s:
                period_s = self.controller.period_s
                deadline = max(begun + period_s, clock.monotonic())
            at = min(again, deadline)
            rest, check_s = at - clock.monotonic(), self.controller.check_s
            if rest > 0:
                if check_s is None:
                    clock.wait(rest, self._wake)
                elif not clock.wait(min(check_s, rest), self._wake) and rest > check_s / 2:  # not twice at once
                    stepped, rises = self.controller.stepped_rates(), self.controller.rises
                    if stepped and not (rises and was_early):
                        early = rises and deadline - clock.monotonic() > check_s / 2
                        deadline, again, rates = clock.monotonic(), math.inf, stepped
                continue
            self._step(rates)
            now = clock.monotonic()
            if at < deadline:
                again = self._again(at, deadline)
                continue
            begun = deadline
            was_early, early, rates = early, False, {}
            deadline, skipped = next_deadline(begun, now, period_s)
            again = self._again(begun, deadline)
            if skipped:
                self.controller.note(
                    "cycle-late", f"the cycle took {now - begun:.1f} s, so {skipped} were skipped", skipped=skipped
                )

    def _again(self, begun: float, deadline: float) -> float:
        """Return when to make a cycle beside those on time; never, if the next one on time is not later."""
        again_s = self.controller.again_s
        return begun + again_s if again_s is not None and begun + again_s < deadline else math.inf

    def _step(self, rates: Mapping[str, float]) -> None:
        try:
            self.controller.step(rates)
        except Exception as error:  # a fault of ours must not leave the streams without a controller
            self.controller.note("controller-failed", f"a cycle broke off: {describe(error)}")

    def _run_commands(self) -> None:
        while not self._stopping.is_set():
            try:
                call, future = self._commands.get_nowait()
            except queue.Empty:
                return
            if not future.set_running_or_notify_cancel():
                continue
            try:
                result = call()
            except BaseException as error:  # for the caller
                future.set_exception(error)
            else:
                future.set_result(result)

    def _refuse(self) -> None:
        while not self._commands.empty():
            _, future = self._commands.get_nowait()
            if future.set_running_or_notify_cancel():
                future.set_exception(_stopped())


def _stopped() -> StoppedError:
    return StoppedError(
        "the controller is stopped, so nobody will run this command; start it again first", rule="running"
    )
