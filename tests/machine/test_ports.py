"""Ports for servers that listen only seconds later: nobody else may be given them meanwhile."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from qod_magics.machine import java
from qod_magics.machine.java import HOST, free_ports


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """What the system says of its own range."""

    def says(words: str) -> None:
        (tmp_path / "range").write_text(words)
        monkeypatch.setattr(java, "_RANGE", tmp_path / "range")

    return says


def test_they_are_different_and_free() -> None:
    found = free_ports(50)
    assert len(set(found)) == 50
    for port in found:
        with socket.socket() as one:
            one.bind((HOST, port))


def test_they_are_not_of_those_that_the_system_gives_out(system: Callable[[str], None]) -> None:
    system("20000\t60999\n")
    assert all(15_000 <= port < 20_000 for port in free_ports(50))


@pytest.mark.parametrize("words", ["1024 65535", "15000 65535"])
def test_they_are_of_those_where_there_are_no_others(system: Callable[[str], None], words: str) -> None:
    system(words)
    assert all(port >= 1024 for port in free_ports(10))


def test_a_system_that_does_not_tell_has_the_common_range(system: Callable[[str], None]) -> None:
    system("")
    assert all(15_000 <= port < 32_768 for port in free_ports(50))


def test_those_that_somebody_listens_on_are_left_out(system: Callable[[str], None]) -> None:
    system("16100 65535")
    taken = []
    try:
        for _ in range(600):  # of 1,100
            (port,) = free_ports(1)
            one = socket.socket()
            one.bind((HOST, port))
            one.listen()
            taken.append(one)
        held = {one.getsockname()[1] for one in taken}
        assert len(held) == 600
        assert not held & set(free_ports(100))
    finally:
        for one in taken:
            one.close()
