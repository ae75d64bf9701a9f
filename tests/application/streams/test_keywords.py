"""The keywords of the Python API agree with the table of options."""

from __future__ import annotations

import pytest

from qod_magics.application.streams.keywords import RestrictionKeywords, StreamKeywords, keywords
from qod_magics.application.streams.options import IN_PYTHON, RESTRICTIONS
from qod_magics.arguments.option import Option


@pytest.mark.parametrize(("typed", "rows"), [(StreamKeywords, IN_PYTHON), (RestrictionKeywords, RESTRICTIONS)])
def test_type_checkers_know_the_options_of_the_table(typed: type, rows: tuple[Option, ...]) -> None:
    found = {name: each.__forward_arg__ for name, each in typed.__annotations__.items()}
    assert found == {each.name: each.annotation for each in keywords(rows)}
    assert not typed.__required_keys__  # type: ignore[attr-defined]
