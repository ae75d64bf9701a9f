from __future__ import annotations

import pytest

from qod_magics import errors
from qod_magics.errors import MOST_NAMES, QodError, lacking, nearest


def test_a_close_name_is_suggested_alone() -> None:
    assert nearest("trps", ["trips", "zones", "taxis"]) == " Did you mean 'trips'?"


def test_few_names_are_all_told_in_order() -> None:
    assert nearest("x", ["trips", "busy"]) == " There are: busy, trips."
    assert nearest("x", []) == ""


@pytest.mark.parametrize("count", [MOST_NAMES + 1, 500])
def test_of_many_names_the_first_are_told_and_all_are_counted(count: int) -> None:
    names = [f"trips{number:03}" for number in reversed(range(count))]
    hint = nearest("x", names)
    assert hint == f" There are: {', '.join(sorted(names)[:MOST_NAMES])} ... ({count} in all)."
    assert nearest("x", names[:MOST_NAMES]).endswith(f"{max(names[:MOST_NAMES])}.")


def test_every_error_is_one_of_ours_and_one_line_in_a_notebook() -> None:
    kinds = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, Exception)]
    assert len(kinds) > 5
    for kind in kinds:
        assert issubclass(kind, QodError)
        assert kind("no topic 'x'")._render_traceback_() == [f"{kind.__name__}: no topic 'x'"]


@pytest.mark.parametrize(("name", "names"), [("pyspark", True), ("confluent_kafka.admin", True), ("json5", False)])
def test_what_an_extra_brings_is_named(name: str, names: bool) -> None:
    found = lacking(ModuleNotFoundError(f"No module named {name!r}", name=name), "it")
    assert (found is not None) is names
    if found is not None:
        assert (found.name, found.rule) == (name.partition(".")[0], "installed")
