"""Ports for servers that listen only seconds later: nobody else may be given them meanwhile."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from qod_magics.machine.java import HOST, free_ports


@pytest.fixture
def system(tmp_path: Path) -> Callable[[str], Path]:
    """What the system says of its own range."""

    def says(words: str) -> Path:
        file = tmp_path / "range"
        file.write_text(words)
        return file

    return says


def test_they_are_different_and_free() -> None:
    found = free_ports(50)
    assert len(set(found)) == 50
    for port in found:
        with socket.socket() as one:
            one.bind((HOST, port))


def test_they_are_not_of_those_that_the_system_gives_out(system: Callable[[str], Path]) -> None:
    told = system("20000\t60999\n")
    assert all(15_000 <= port < 20_000 for port in free_ports(50, told))


@pytest.mark.parametrize("words", ["1024 65535", "15000 65535"])
def test_they_are_of_those_where_there_are_no_others(system: Callable[[str], Path], words: str) -> None:
    told = system(words)
    assert all(port >= 1024 for port in free_ports(10, told))


def test_a_system_that_does_not_tell_has_the_common_range(system: Callable[[str], Path]) -> None:
    told = system("")
    assert all(15_000 <= port < 32_768 for port in free_ports(50, told))


def test_those_that_somebody_listens_on_are_left_out(system: Callable[[str], Path]) -> None:
    told = system("16100 65535")
    taken = []
    try:
        for _ in range(600):  # of 1,100
            (port,) = free_ports(1, told)
            one = socket.socket()
            one.bind((HOST, port))
            one.listen()
            taken.append(one)
        held = {one.getsockname()[1] for one in taken}
        assert len(held) == 600
        assert not held & set(free_ports(100, told))
    finally:
        for one in taken:
            one.close()
