"""Rules as they are written, and what is said of rows that break them."""

from __future__ import annotations

import pytest

from qod_magics.application.streams.options import parse_stream_line
from qod_magics.application.streams.rules import Rule, as_rules, broken_text, rule
from qod_magics.errors import ApplicationError, UsageProblem
from tests.application.frames import stream
from tests.texts import tells


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("fare > 0", Rule("fare > 0", "warn")),
        ("fare > 0:drop", Rule("fare > 0", "drop")),
        (" fare > 0 : fail ", Rule("fare > 0", "fail")),
        ("note <> 'a:b'", Rule("note <> 'a:b'", "warn")),
        ("payload:zone > 3", Rule("payload:zone > 3", "warn")),
        ("payload:zone IS NOT NULL:drop", Rule("payload:zone IS NOT NULL", "drop")),
        ("payload:drop", Rule("payload", "drop")),
    ],
)
def test_a_rule_is_a_condition_and_what_is_done(text: str, found: Rule) -> None:
    assert rule(text) == found
    assert as_rules(text) == (found,)


@pytest.mark.parametrize("text", ["", "  ", ":drop"])
def test_a_rule_has_a_condition(text: str) -> None:
    with pytest.raises(ApplicationError) as caught:
        rule(text)
    assert caught.value.option == "--expect"


def test_a_cell_may_have_several() -> None:
    options = parse_stream_line('q --from a --expect "fare > 0:drop" "zone < 264" -p 1')
    assert options.expect == (Rule("fare > 0", "drop"), Rule("zone < 264"))
    with pytest.raises(UsageProblem) as caught:
        parse_stream_line('q --from a --expect ":drop"')
    assert caught.value.option == "--expect"


def test_a_rule_stands_once() -> None:
    with pytest.raises(ApplicationError) as caught:
        stream("q", topic="t", expect=(Rule("a > 0"), Rule("a > 0", "drop")))
    assert caught.value.option == "--expect"


def test_the_text_says_how_many_and_what_was_done() -> None:
    assert tells(broken_text(Rule("a > 0", "drop"), 1), 1, "a > 0", "dropped")
    assert tells(broken_text(Rule("a > 0"), 2000), "2,000", "a > 0", "kept")
