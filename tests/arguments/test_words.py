"""Magic lines: comments, quotes, and lines that go on below."""

from __future__ import annotations

import pytest

from qod_magics.arguments.parser import continued, joined, without_comment, words_of
from qod_magics.errors import UsageProblem
from tests.raising import breaks


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("up -n 2 # two task managers, don't ask", ["up", "-n", "2"]),
        ("# nothing else", []),
        ("q --topic t#1 --schema 'a # b INT'", ["q", "--topic", "t#1", "--schema", "a # b INT"]),
        ('q --schema "a \\" # b"', ["q", "--schema", 'a " # b']),
        ("q --topic \\# x", ["q", "--topic", "#", "x"]),
    ],
)
def test_a_comment_begins_with_a_word_outside_quotes(line: str, words: list[str]) -> None:
    assert words_of(line) == words


@pytest.mark.parametrize(("line", "missing"), [('a "b', '"'), ("a 'b", "'"), ("a \\", "\\")])
def test_an_open_line_is_refused_in_one_line(line: str, missing: str) -> None:
    with pytest.raises(UsageProblem, check=breaks("closed", value=missing)):
        words_of(line)


@pytest.mark.parametrize(
    ("cell", "words", "body"),
    [
        ("a --topic t \\\n  -p 1\nsource", ["a", "--topic", "t", "-p", "1"], "source"),
        ("a \\\n--topic t \\  \n -p 1 # why\nsource\n", ["a", "--topic", "t", "-p", "1"], "source\n"),
        ("a --topic t \\  # of the city\n -p 1\nsource", ["a", "--topic", "t", "-p", "1"], "source"),
        ('a --schema "x INT,\n    y INT" \\\n-p 1\nsource', ["a", "--schema", "x INT, y INT", "-p", "1"], "source"),
        ('a --schema "x INT, \\\n    y INT"\nsource', ["a", "--schema", "x INT,      y INT"], "source"),
        ("a -p 1\nx = 1 + \\\n 2\nsource", ["a", "-p", "1"], "x = 1 + \\\n 2\nsource"),
    ],
)
def test_a_line_goes_on_after_a_backslash_and_within_quotes(cell: str, words: list[str], body: str) -> None:
    first, _, below = cell.partition("\n")
    line, rest = joined(first, below)
    assert (words_of(line), rest) == (words, body)


@pytest.mark.parametrize("body", ['source.where("x > 3")', 'y = "a"\nsource', 'F.lit("")', "source"])
def test_a_quote_left_open_by_mistake_takes_nothing_of_the_body(body: str) -> None:
    assert joined('a --schema "x INT', body) == ('a --schema "x INT', body)


def test_what_is_without_a_comment_or_a_backslash_stays() -> None:
    assert without_comment("a --schema 'x # y'") == "a --schema 'x # y'"
    assert continued("a -p 1") is None
    assert continued("a -p 1 \\ # one") == "a -p 1 "
