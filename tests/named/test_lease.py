"""One kernel at a time writes a session's checkpoints."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import msgspec
import psutil
import pytest

from qod_magics.errors import SetupError, TaskManagerError, UsageProblem
from qod_magics.named.lease import DEAD_S, FILE, Holder, Lease
from tests.raising import breaks


def holder(path: Path) -> Holder:
    return msgspec.json.decode((path / FILE).read_bytes(), type=Holder)


def gone() -> tuple[int, float]:
    """A process that has ended: its id and when it began."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        began = psutil.Process(process.pid).create_time()
    return process.pid, began


def test_the_first_holder_has_epoch_1_and_each_later_one_the_next(tmp_path: Path) -> None:
    first = Lease(tmp_path, "trips")
    assert first.take() == ""
    assert first.epoch == holder(tmp_path).epoch == 1
    first.release()
    second = Lease(tmp_path, "trips")
    assert second.take() == ""
    assert second.epoch == 2


def test_a_second_kernel_is_refused_and_told_who_holds_it(tmp_path: Path) -> None:
    Lease(tmp_path, "trips").take()
    with pytest.raises(UsageProblem, check=breaks("one holder", name="trips", value=os.getpid())):
        Lease(tmp_path, "trips").take()
    assert holder(tmp_path).epoch == 1


def test_a_holder_whose_process_has_ended_is_no_holder(tmp_path: Path) -> None:
    Lease(tmp_path, "trips").take()
    pid, began = gone()
    dead = msgspec.structs.replace(holder(tmp_path), pid=pid, process_began=began)
    (tmp_path / FILE).write_bytes(msgspec.json.encode(dead))
    assert Lease(tmp_path, "trips").take() == ""


def test_another_process_with_the_id_of_the_holder_is_not_the_holder(tmp_path: Path) -> None:
    Lease(tmp_path, "trips").take()
    earlier = msgspec.structs.replace(holder(tmp_path), process_began=psutil.Process().create_time() - 100)
    (tmp_path / FILE).write_bytes(msgspec.json.encode(earlier))
    assert Lease(tmp_path, "trips").take() == ""


@pytest.mark.parametrize(("silent_s", "is_held"), [(DEAD_S - 1, True), (DEAD_S + 1, False)])
def test_on_another_machine_a_holder_lives_while_it_renews(tmp_path: Path, silent_s: float, is_held: bool) -> None:
    Lease(tmp_path, "trips", wall=lambda: 1000.0, host="there").take()
    here = Lease(tmp_path, "trips", wall=lambda: 1000.0 + silent_s, host="here")
    if is_held:
        with pytest.raises(UsageProblem, check=breaks("one holder")):
            here.take()
    else:
        assert here.take() == ""


def test_renewing_keeps_the_epoch(tmp_path: Path) -> None:
    now = [1000.0]
    lease = Lease(tmp_path, "trips", wall=lambda: now[0], host="there")
    lease.take()
    now[0] += 20
    lease.renew()
    assert (holder(tmp_path).renewed, holder(tmp_path).epoch) == (1020.0, 1)


def test_whoever_is_taken_over_may_start_nothing_and_says_when_it_has_ended(tmp_path: Path) -> None:
    before, after = Lease(tmp_path, "trips"), Lease(tmp_path, "trips")
    before.take()
    before.check()
    took: list[str] = []
    taking = threading.Thread(target=lambda: took.append(after.take(take_over=True)))
    taking.start()
    deadline = time.monotonic() + 10
    while before.taker() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    with pytest.raises(TaskManagerError, check=breaks("held", name="trips")):
        before.check()
    before.renew()  # changes nothing
    assert holder(tmp_path).epoch == 2
    assert taking.is_alive(), "it does not wait for the end of the holder's queries"
    before.release()
    taking.join(10)
    assert took
    assert "has ended" in took[0]
    after.check()
    assert holder(tmp_path).epoch == 2


def test_taking_over_waits_no_longer_than_it_says(tmp_path: Path) -> None:
    Lease(tmp_path, "trips").take()
    assert Lease(tmp_path, "trips").take(take_over=True, wait_s=0.3)


def test_a_lease_that_cannot_be_read_is_an_error_and_stays(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("no json")
    with pytest.raises(SetupError):
        Lease(tmp_path, "trips").take()
    assert (tmp_path / FILE).read_text() == "no json"
