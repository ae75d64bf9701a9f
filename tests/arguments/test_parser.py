"""Commands and the rows of their options, apart from any magic."""

from __future__ import annotations

import pytest

from qod_magics.arguments.option import Option, cores, duration, or_none, pairs
from qod_magics.arguments.parser import Command, wants_help
from qod_magics.errors import UsageProblem

COMMAND = Command(
    "%it",
    "Do it.",
    (
        Option("name", "a name"),
        Option("[second]", "a number", float),
        Option("-p, --priority N", "a number", int, default=7),
        Option("--share F", "100 % at most", float),
        Option("--from A B", "some names", default=(), several=True, name="upstream"),
        Option("--extra NAME=VALUE", "may be repeated", default=[], repeats=True),
        Option("--connect URL", "may be repeated, and takes several", default=[], several=True, repeats=True),
        Option("--no-fuse", "alone", name="fuse", default=True),
        Option("--form", "a shape", choices=("line", "bar")),
    ),
)


def refusal(words: str) -> UsageProblem:
    with pytest.raises(UsageProblem) as caught:
        COMMAND.read(words.split())
    assert len(str(caught.value).splitlines()) == 1
    return caught.value


def test_what_is_not_given_has_its_default() -> None:
    assert vars(COMMAND.read(["x"], {"share": 0.5, "no_such": 1})) == {
        "name": "x",
        "second": None,
        "priority": 7,
        "share": 0.5,
        "upstream": (),
        "extra": [],
        "connect": [],
        "fuse": True,
        "form": None,
    }


@pytest.mark.parametrize(
    ("words", "name", "value"),
    [
        ("x -p 2", "priority", 2),
        ("x -p2", "priority", 2),
        ("x -p=2", "priority", 2),
        ("-p -2 x", "priority", -2),
        ("x --share -1e-3", "share", -0.001),
        ("x --share=-inf", "share", float("-inf")),
        ("x 2.5", "second", 2.5),
        ("x -2.5", "second", -2.5),
        ("x --from a b", "upstream", ("a", "b")),
        ("x --from=a b", "upstream", ("a", "b")),
        ("x --extra a=-1 --extra b", "extra", ["a=-1", "b"]),
        ("x --connect a b --connect c", "connect", ["a", "b", "c"]),
        ("--no-fuse x", "fuse", False),
        ("x --form bar", "form", "bar"),
    ],
)
def test_values_as_people_write_them(words: str, name: str, value: object) -> None:
    assert getattr(COMMAND.read(words.split()), name) == value
    assert COMMAND.given(words.split())[0].keys() == {"name", name}


@pytest.mark.parametrize(
    ("words", "option"),
    [
        ("", None),
        ("x 1 y", None),
        ("x --prio 1", "--prio"),
        ("x -priority 1", "-priority"),
        ("x -- y", "--"),
        ("x -p", "--priority"),
        ("x -p --no-fuse", "--priority"),
        ("x -p --share=1", "--priority"),
        ("x --from", "--from"),
        ("x -p 1 --priority=2", "--priority"),
        ("x -p two", "--priority"),
        ("x --no-fuse=1", "--no-fuse"),
        ("x --form pie", "--form"),
    ],
)
def test_what_is_wrong_is_said_of_its_option_in_one_line(words: str, option: str | None) -> None:
    assert refusal(words).option == option


def test_a_hint_names_the_nearest_option() -> None:
    assert "'--priority'" in str(refusal("x -priority 1"))


def test_help_has_each_option_once_and_these_defaults() -> None:
    text = COMMAND.help({"priority": 9})
    assert all(row.usage in text for row in COMMAND.options)
    assert "-p, --priority N" in text
    assert "(default: 9)" in text
    assert "100 % at most" in text


@pytest.mark.parametrize("line", ["x --help", "-h", "a b -?", "--schema 'id INT --help", "up -h # all"])
def test_help_is_asked_for_by_a_word(line: str) -> None:
    assert wants_help(line)


@pytest.mark.parametrize("line", ["helper --from help", "x # --help", "x '--a -h'"])
def test_and_by_nothing_else(line: str) -> None:
    assert not wants_help(line)


def test_readers() -> None:
    assert (duration("2s"), duration("500ms"), cores("0,1"), pairs(["a=b", "c=d=e"])) == (
        2.0,
        0.5,
        {0, 1},
        {"a": "b", "c": "d=e"},
    )
    assert or_none(duration)("none") == float("inf")
