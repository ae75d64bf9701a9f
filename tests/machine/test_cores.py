"""Cores: quotas of containers, and which task manager gets which."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from qod_magics.errors import UsageProblem
from qod_magics.machine import cores
from qod_magics.machine.cores import MemoryLimit, cpu_quota, memory_limit
from tests.machine.fakes import FakeMachine, on


def files(root: Path, **contents: str) -> Path:
    for name, text in contents.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize(
    ("contents", "quota"),
    [
        ({}, None),
        ({"proc/self/cgroup": "0::/\n"}, None),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, None),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "150000 100000\n"}, 1.5),
        ({"proc/self/cgroup": "0::/pod/a\n", "sys/fs/cgroup/pod/a/cpu.max": "50000 100000\n"}, 0.5),
        (
            {
                "proc/self/cgroup": "0::/pod/a\n",
                "sys/fs/cgroup/pod/cpu.max": "200000 100000\n",
                "sys/fs/cgroup/pod/a/cpu.max": "max 100000\n",
            },
            2.0,
        ),
        (
            {
                "proc/self/cgroup": "4:memory:/a\n3:cpu,cpuacct:/docker/a\n",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "400000\n",  # in the container the top is its own
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
            },
            4.0,
        ),
        (
            {
                "proc/self/cgroup": "1:cpu:/\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            None,
        ),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "broken\n"}, None),
    ],
)
def test_the_least_of_all_groups_counts(tmp_path: Path, contents: dict[str, str], quota: float | None) -> None:
    assert cpu_quota(files(tmp_path, **contents)) == quota


@pytest.fixture
def group() -> Iterator[tuple[Path, str]]:
    """A real control group with a quota of 1.5 CPUs, and the file that takes processes in."""
    name = f"qod-test-{os.getpid()}"
    tried = []
    for top, takes in ((Path("/sys/fs/cgroup/cpu"), "tasks"), (Path("/sys/fs/cgroup"), "cgroup.procs")):
        made = top / name
        try:
            made.mkdir()
            if (made / "cpu.cfs_quota_us").exists():
                (made / "cpu.cfs_quota_us").write_text("150000")
                (made / "cpu.cfs_period_us").write_text("100000")
            else:
                (made / "cpu.max").write_text("150000 100000")
        except OSError as error:
            tried.append(f"{top}: {error}")
            with suppress(OSError):
                made.rmdir()
            continue
        yield made, takes
        made.rmdir()
        return
    pytest.skip(f"no control group can be made here: {'; '.join(tried)}")


def test_a_real_quota_is_found(group: tuple[Path, str]) -> None:
    made, takes = group
    ask = "from qod_magics.machine.cores import cpu_quota; print(cpu_quota())"
    command = ["sh", "-c", f'echo $$ > {made / takes} && exec "$0" -c "$1"', sys.executable, ask]
    assert float(subprocess.run(command, check=True, capture_output=True, text=True).stdout) <= 1.5


V1_UNLIMITED = "9223372036854771712\n"


@pytest.mark.parametrize(
    ("contents", "limit"),
    [
        ({}, None),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"}, None),
        (
            {
                "proc/self/cgroup": "0::/pod/a\n",
                "sys/fs/cgroup/pod/memory.max": "2000\n",
                "sys/fs/cgroup/pod/memory.current": "1900\n",
                "sys/fs/cgroup/pod/a/memory.max": "1000\n",
                "sys/fs/cgroup/pod/a/memory.current": "300\n",
            },
            MemoryLimit(2000, 100),
        ),
        (
            {
                "proc/self/cgroup": "4:memory:/a\n3:cpu,cpuacct:/a\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "1000\n",
                "sys/fs/cgroup/memory/memory.usage_in_bytes": "1200\n",
            },
            MemoryLimit(1000, 0),
        ),
        (
            {
                "proc/self/cgroup": "4:memory:/\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": V1_UNLIMITED,
                "sys/fs/cgroup/memory/memory.usage_in_bytes": "1200\n",
            },
            None,
        ),
    ],
)
def test_the_memory_limit_is_that_of_the_group_with_the_least_left(
    tmp_path: Path, contents: dict[str, str], limit: MemoryLimit | None
) -> None:
    assert memory_limit(files(tmp_path, **contents)) == limit


@pytest.mark.parametrize(("quota", "limited"), [(None, False), (1.5, True), (63.5, False), (64.0, False), (63.0, True)])
def test_a_quota_of_fewer_cpus_than_cores_is_for_any_of_them(
    quota: float | None, limited: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    on(FakeMachine(range(64), quota), monkeypatch)
    assert cores.is_limited() == limited


def test_a_quota_bounds_what_is_planned_with(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = on(FakeMachine(range(64), 1.5), monkeypatch)
    assert cores.core_sets(2, None) == [frozenset({0}), frozenset({1})]
    assert [cores.planned_cpus(n) for n in (1, 2, 64)] == [0.75, 1.5, 1.5]
    for ask in (lambda: cores.core_sets(1, 3), lambda: cores.free_cores(3, ())):
        with pytest.raises(UsageProblem) as caught:
            ask()
        assert (caught.value.value, caught.value.rule) == (3, "at most 2")
    cores.check_cores({40})  # named by hand
    machine.quota_now = 0.25
    assert cores.usable_cores() == [0]
    assert cores.planned_cpus(1) == 0.25
    machine.quota_now = None
    assert cores.planned_cpus(3) == 3.0


@pytest.fixture(autouse=True)
def four_cores(monkeypatch):
    on(FakeMachine(), monkeypatch)


def test_task_managers_share_cores_only_when_there_are_too_few():
    assert cores.core_sets(2, None) == [frozenset({0, 1}), frozenset({2, 5})]
    assert cores.core_sets(2, 1) == [frozenset({0}), frozenset({1})]
    assert cores.core_sets(3, 2) == [frozenset({0, 1}), frozenset({2, 5}), frozenset({0, 1})]
    assert cores.core_sets(0, None) == []


def test_one_more_gets_free_cores_first_then_the_last_ones():
    assert cores.free_cores(None, {0, 1}) == frozenset({2, 5})
    assert cores.free_cores(1, {0, 1, 2, 5}) == frozenset({5})
    assert cores.free_cores(None, {0, 1, 2, 5}) == frozenset({5})
    assert cores.free_cores(2, {0, 1, 2}) == frozenset({2, 5})


def test_of_shared_ones_those_that_the_fewest_have_come_first():
    assert cores.free_cores(1, [0, 1, 2, 5, 5]) == frozenset({2})
    assert cores.free_cores(2, [0, 1, 1, 2, 2, 5, 5]) == frozenset({0, 5})


@pytest.mark.parametrize("ask", [lambda: cores.core_sets(1, 5), lambda: cores.core_sets(1, 0)])
def test_more_cores_than_there_are_or_none_is_one_line(ask):
    with pytest.raises(UsageProblem):
        ask()


@pytest.mark.parametrize("count", [0, 5])
def test_one_more_is_refused_cores_that_are_not_there(count):
    with pytest.raises(UsageProblem) as caught:
        cores.free_cores(count, ())
    assert (caught.value.value, caught.value.rule) == (count, "at most 4")


@pytest.mark.parametrize("cpus", [{3}, {0, 9}, set()])
def test_cores_that_are_not_there_are_named(cpus):
    with pytest.raises(UsageProblem) as caught:
        cores.check_cores(cpus)
    assert (caught.value.value, caught.value.rule) == (sorted(cpus - {0}), "cores of this machine")
