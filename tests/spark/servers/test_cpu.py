"""CPU as the operating system counts it: of cores, and of a process with all below it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from qod_magics.machine.cores import every_core
from qod_magics.spark.servers.cpu import CoreMeter, CpuMeter, ProcessMeter, PythonMeter, System, core_seconds


class Machine(System):
    """Processes below number 1 and two cores, without /proc, with a clock that the test turns."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.spent = {1: 0.0}  #: CPU seconds by process
        self.busy = [0.0, 0.0]  #: seconds by core
        self.worker = "python3"  #: name of the processes below number 1
        self.stat = Path("nowhere")

    def now(self) -> float:
        return self.seconds

    def tick_s(self) -> float:
        return 0.01

    def process(self, pid: int) -> Any:
        if pid not in self.spent:
            raise psutil.NoSuchProcess(pid)
        return SimpleNamespace(
            pid=pid,
            name=lambda: "java" if pid == 1 else self.worker,
            cpu_times=lambda: SimpleNamespace(user=self.spent[pid], system=0.0),
            children=lambda recursive: [self.process(other) for other in self.spent if other != pid],
        )

    def cores(self) -> list[Any]:
        class Times(tuple[float, ...]):
            idle = property(lambda self: self[1])

        return [Times((busy, self.seconds - busy)) for busy in self.busy]

    def after(self, seconds: float, meter: CpuMeter) -> None:
        self.seconds += seconds
        meter.sample()


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.mark.parametrize(
    "made", [lambda here: CoreMeter((0, 1), here), lambda here: ProcessMeter(1, 2, here)], ids=["cores", "process"]
)
def test_nothing_is_known_before_two_samples(machine: Machine, made: Callable[[Machine], CpuMeter]) -> None:
    meter = made(machine)
    assert meter.cores == 2
    assert meter.mean(0.0, 1.0) is None
    meter.sample()
    assert meter.mean(0.0, 1.0) is None
    machine.after(1.0, meter)
    assert meter.mean(0.0, 1.0) == 0.0


def test_cores_are_busy_with_whoever_uses_them(machine: Machine) -> None:
    meter = CoreMeter((1,), machine)
    machine.after(0.0, meter)
    machine.busy = [1.0, 1.5]
    machine.after(2.0, meter)
    assert meter.mean(0.0, 2.0) == pytest.approx(75.0)


#: user, nice, system, idle, iowait, irq, softirq, steal, guest, guest_nice; ticks
STAT = """\
cpu  9 9 9 9 9 9 9 9 9 9
cpu0 100 0 0 0 0 0 0 0 0 0
cpu2 {} 5 30 900 800 10 10 5 40 5
intr 7 0 0
ctxt 7
"""


def test_a_core_is_found_by_its_number_where_one_before_it_is_offline(machine: Machine, tmp_path: Path) -> None:
    machine.stat = stat = tmp_path / "stat"
    stat.write_text(STAT.format(40))
    assert core_seconds(machine) == {0: pytest.approx(1.0), 2: pytest.approx(1.0)}  # guests are in the first two
    meter = CoreMeter((2,), machine)
    machine.after(0.0, meter)
    stat.write_text(STAT.format(140))
    machine.after(2.0, meter)
    assert meter.mean(0.0, 2.0) == pytest.approx(50.0)
    stat.write_text(STAT.replace("cpu2", "cpu3").format(0))
    machine.after(2.0, meter)
    assert meter.mean(2.0, 4.0) == 0.0


def test_this_machine_counts_the_cores_that_this_process_may_use() -> None:
    seconds = core_seconds()
    assert len(seconds) >= len(every_core())
    assert min(seconds.values()) > 0.0


def test_a_process_counts_with_all_below_it_and_may_use_more_than_its_share(machine: Machine) -> None:
    meter = ProcessMeter(1, 1, machine)
    machine.spent = {1: 100.0}  # before anybody looked
    machine.after(0.0, meter)
    machine.spent = {1: 101.0, 2: 0.5}
    machine.after(1.0, meter)
    machine.spent = {1: 101.5, 2: 1.0}
    machine.after(1.0, meter)
    assert meter.mean(0.0, 1.0) == pytest.approx(150.0)
    assert meter.mean(1.0, 2.0) == pytest.approx(100.0)
    assert meter.mean(0.0, 2.0) == pytest.approx(125.0)


def test_a_worker_that_ends_takes_nothing_back(machine: Machine) -> None:
    meter = ProcessMeter(1, 1, machine)
    machine.spent = {1: 1.0, 2: 50.0}
    machine.after(0.0, meter)
    machine.spent = {1: 1.5}
    machine.after(1.0, meter)
    assert meter.mean(0.0, 1.0) == pytest.approx(50.0)


def test_a_process_that_is_gone_uses_nothing_more(machine: Machine) -> None:
    meter = ProcessMeter(1, 1, machine)
    machine.after(0.0, meter)
    machine.spent = {}
    machine.after(1.0, meter)
    assert meter.mean(0.0, 1.0) == 0.0


@pytest.mark.parametrize("name", ["python3", "python3.11", "Python"])  # the last is what macOS says
def test_python_workers_are_told_by_their_name(machine: Machine, name: str) -> None:
    machine.worker = name
    meter = PythonMeter(1, machine)
    machine.spent = {1: 5.0, 2: 1.0}
    assert meter.read() == (0.0, 0.0)
    machine.seconds, machine.spent = 2.0, {1: 7.0, 2: 1.5}
    assert meter.read() == (pytest.approx(25.0), 2.0)


def test_the_work_of_a_real_process_is_seen() -> None:
    meter = ProcessMeter(psutil.Process().pid, 1)
    meter.sample()
    begun, used = time.monotonic(), time.process_time()
    while time.process_time() - used < 0.3:
        pass
    meter.sample()
    end = time.monotonic()
    mean = meter.mean(begun, end)
    assert mean is not None
    assert mean * (end - begun) / 100.0 == pytest.approx(0.3, abs=0.15)
