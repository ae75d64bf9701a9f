"""A second `%qod up` or `%qod attach`."""

from __future__ import annotations

from typing import Any

import pytest

from qod_magics.errors import UsageProblem
from qod_magics.notebook.commands import Begun, already_up
from tests.raising import breaks
from tests.texts import tells

DEFAULTS = {"task_managers": 1, "period_s": 5.0, "memory": "1g", "connect": []}


def up(**options: Any) -> Begun:
    return Begun("up", {**DEFAULTS, **options}, DEFAULTS)


@pytest.mark.parametrize("options", [{}, {"task_managers": 2, "connect": ["sc://a:1"]}])
def test_the_same_options_are_up_already(options: dict[str, Any]) -> None:
    assert already_up(up(**options), up(**options)) == "already up"


def test_options_that_are_left_out_are_told() -> None:
    assert tells(already_up(up(period_s=2.0, memory="2g"), up(memory="2g")), "--period 2.0")


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"period_s": 2.0}, "--period is 5.0, not 2.0 (%qod period"),
        ({"task_managers": 2}, "--task-managers is 1, not 2 (%qod add-tm"),
        ({"memory": "2g"}, "--memory is 1g, not 2g (%qod down"),
        ({"connect": ["sc://a:1"]}, "--connect is none, not sc://a:1 (%qod add-tm"),
    ],
)
def test_other_options_are_refused_with_what_changes_them(asked: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageProblem) as caught:
        already_up(up(), up(**asked))
    assert says in str(caught.value)


def test_no_password_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = {
        "ui_headers": ["A=s3cret"],
        "kafka_options": ["sasl.password=s3cret"],
        "connect": ["sc://a/;token=s3cret"],
    }
    nothing: dict[str, Any] = {name: [] for name in secrets}
    monkeypatch.setitem(DEFAULTS, "ui_headers", [])
    monkeypatch.setitem(DEFAULTS, "kafka_options", [])
    for before, now in ((nothing, secrets), ({**secrets, "connect": []}, {**secrets, "ui_headers": ["A=other"]})):
        with pytest.raises(UsageProblem) as caught:
            already_up(up(**before), up(**now))
        assert "s3cret" not in str(caught.value)
    assert "s3cret" not in already_up(up(**secrets), up(**nothing))


def test_a_session_begun_otherwise_has_to_end_first() -> None:
    for before in (None, Begun("attach", {"name": "spark"}, {"name": "spark"})):
        with pytest.raises(UsageProblem, check=breaks("one session")):
            already_up(before, up())
