"""The commands of the Makefile: what documents and CI name is there, and each test belongs to one of them."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest
from _pytest.mark.expression import Expression

from tests.test_documents import documents

ROOT = Path(__file__).parent.parent
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")
TARGETS = frozenset(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))
#: by name of a run of pytest: what it asks of a test's markers
RUNS = dict(re.findall(r'^(run-[a-z-]+) = .* -m "([^"]+)"$', MAKEFILE, re.MULTILINE))
MARKERS = ("smoke", "alone", "slow")


def runs_of(target: str) -> list[str]:
    """The runs of pytest that a target makes."""
    (recipe,) = re.findall(rf"^{target}: [^=\n]*\n\t(.*)$", MAKEFILE, re.MULTILINE)
    (names,) = re.findall(r"call each,([a-z -]+)\)", recipe)
    return names.split()


def taking(runs: list[str], has: set[str]) -> list[str]:
    """Those of these runs that take a test with these markers."""
    asked = [(name, RUNS[name]) for name in runs if name in RUNS]
    return [name for name, words in asked if Expression.compile(words).evaluate(lambda marker, **_: marker in has)]


def marked(values: tuple[bool, ...]) -> set[str]:
    return {name for name, value in zip(MARKERS, values, strict=True) if value}


@pytest.mark.parametrize("values", list(product([False, True], repeat=3)), ids=str)
def test_each_live_test_is_run_once_by_test_or_test_live_and_once_by_test_all(values: tuple[bool, ...]) -> None:
    has = {"live", *marked(values)}
    if "alone" in has:
        has.add("slow")  # by tests/conftest.py
    live = [run for run in runs_of("test") + runs_of("test-live") if run not in ("run-pure", "run-kernels")]
    assert len(live) == 2
    assert len(taking(live, has)) == (0 if "slow" in has else 1)
    everything = [run for run in runs_of("test-all") if "pure" not in run]
    assert len(taking(everything, has)) == 1


@pytest.mark.parametrize("slow", [False, True])
def test_make_test_runs_all_pure_tests_but_slow_ones_and_those_in_kernels(slow: bool) -> None:
    has = {"slow"} if slow else set()
    assert taking(runs_of("test"), has | {"closed_loop"}) == ([] if slow else ["run-pure"])
    assert ("run-kernels" in taking(runs_of("test-live"), has | {"kernel"})) is not slow
    assert taking(runs_of("test"), has | {"kernel"}) == []
    for more in ("kernel", "closed_loop"):
        assert taking(runs_of("test-all"), has | {more})[:1] == ["run-pure-all"]


def test_test_all_runs_the_tests_in_a_browser_too() -> None:
    assert "run-browser" in runs_of("test-all")


def test_what_documents_and_ci_call_is_there() -> None:
    texts = {str(path.relative_to(ROOT)): path.read_text("utf-8") for path in documents()}
    texts.pop("CHANGELOG.md", None)
    texts[".ci/run"] = (ROOT / ".ci" / "run").read_text("utf-8")
    called = {
        (name, target)
        for name, text in texts.items()
        for line in re.findall(r"(?m)`([^`\n]*)`|^\s*((?:make|step) .*)$", text)
        for target in re.findall(r"(?:^|\s)make ([a-z-]+)", " ".join(line))
    }
    assert {target for name, target in called if name == ".ci/run"} >= {"demo", "test", "test-live", "check-wheel"}
    assert {(name, target) for name, target in called if target not in TARGETS} == set()
