"""What all tests share: the `live` marker, the order, the leak check, the profiles of hypothesis."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests import leaks

LIVE = Path(__file__).parent / "live"
LIVE_TIMEOUT_S = 900
BROWSER = Path(__file__).parent / "browser"
BROWSER_TIMEOUT_S = 600
#: Live tests that take minutes together: `make test-all` runs them, `make test` and `make test-live` do not.
LONG = frozenset({"test_contract.py", "test_standalone.py"})
#: Live tests about what is done in which time, and that take minutes.
TIMED = frozenset({"test_evaluation.py", "test_notebooks.py"})
#: Modules that begin first where several run side by side, so that none of them is left alone with the last one.
FIRST = (
    "test_soak.py",
    "test_lost_task_managers.py",
    "test_task_managers.py",
    "test_applications.py",
    "test_queries.py",
    "test_endings.py",
    "test_attach.py",
)

#: Modules whose smoke tests start servers of their own, and need none of the shared cluster's.
BESIDE = frozenset({"test_headless.py", "test_magics.py"})

settings.register_profile(
    "default",
    deadline=None,
    max_examples=25,  # the same ones each time; `make test-all` draws 300 others
    derandomize=True,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("many", settings.get_profile("default"), max_examples=300, derandomize=False, print_blob=True)
settings.register_profile("thorough", settings.get_profile("default"), max_examples=2000, derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or "default")

_stack = ExitStack()
_open: list[_Check] = []  #: the leak checks under way, the session's first


class _Check:
    """One open leak check; fixtures of a wider scope may add what is theirs to `before`."""

    def __init__(self, scope: str) -> None:
        self.scope = scope
        self.before = leaks.look()

    def close(self) -> None:
        left = leaks.leaks(self.before).lines()
        if left:
            pytest.fail(f"left behind by this {self.scope}:\n  " + "\n  ".join(left), pytrace=False)


def pytest_configure(config: pytest.Config) -> None:
    gc.disable()  # while modules are imported, which leaves hardly any garbage
    # jsonschema, which Altair and nbformat import, would build 39 parsers of IRIs for a second; nothing here has one
    sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
    leaks.mark_environment()
    _stack.enter_context(leaks.private_temp_dir())


def pytest_unconfigure(config: pytest.Config) -> None:
    _stack.close()


@cache
def _kind(folder: Path) -> tuple[bool, bool]:
    """Whether tests of this folder are live, and whether they are in a browser."""
    return folder.is_relative_to(LIVE), folder.is_relative_to(BROWSER)


@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark what is in tests/live/ and tests/browser/ as soon as it is known, so that `-m` can leave it out."""
    live, browser = _kind(item.path.parent)
    if browser:
        item.add_marker("browser")
        item.add_marker("alone")
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(BROWSER_TIMEOUT_S))
    if live:
        item.add_marker("live")
        if item.path.name in LONG:
            item.add_marker("slow")
        if item.path.name in TIMED:
            item.add_marker("alone")
            item.add_marker("slow")
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(LIVE_TIMEOUT_S))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """With `--dist loadgroup`, tests on the shared cluster are one group, and each module beside them is another; one
    process runs all of a group."""
    from xdist.scheduler import LoadScopeScheduling

    class Groups(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            path = nodeid.partition("::")[0]
            return path if Path(path).name in BESIDE else "cluster"

    return Groups(config, log) if config.getvalue("dist") == "loadgroup" else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests in a browser after the pure ones, and the live ones last, whatever order was drawn; what is both
    comes between them, before the cluster is up that the live ones share. Side by side, long modules begin first."""
    beside = "PYTEST_XDIST_WORKER" in os.environ

    def order(item: pytest.Item) -> tuple[bool, bool, int]:
        live, browser = (item.get_closest_marker(name) is not None for name in ("live", "browser"))
        first = FIRST.index(item.path.name) if beside and item.path.name in FIRST else len(FIRST)
        return live, live != browser, first

    items.sort(key=order)


def pytest_collection_finish() -> None:
    """Leave all that was imported out of later garbage collections, each of which would look through it."""
    gc.freeze()
    gc.enable()


_SCOPES = ("function", "class", "module", "package", "session")


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[object]) -> Generator[None, object, object]:
    """What a fixture starts may stay for as long as the fixture: the checks of narrower scopes are told."""
    narrower = [check for check in _open if _SCOPES.index(check.scope) < _SCOPES.index(fixturedef.scope)]
    if not narrower:
        return (yield)
    before = leaks.look()
    try:
        return (yield)
    finally:
        started = leaks.look().beyond(before)
        for check in narrower:
            check.before |= started


@pytest.fixture
def handing_on() -> Callable[[], AbstractContextManager[None]]:
    """What a test starts within `with handing_on():` takes the place of something that a wider fixture ends."""

    @contextmanager
    def handing() -> Iterator[None]:
        before = leaks.look()
        yield
        started = leaks.look().beyond(before)
        for check in _open:
            if check.scope == "function":
                check.before |= started

    return handing


def _checked(scope: str) -> Iterator[None]:
    check = _Check(scope)
    _open.append(check)
    try:
        yield
    finally:
        _open.remove(check)
    check.close()


@pytest.fixture(scope="session", autouse=True)
def _session_leaves_nothing() -> Iterator[None]:
    """After the last test everything that any of them started is gone."""
    yield from _checked("session")


@pytest.fixture(autouse=True)
def _test_leaves_nothing(request: pytest.FixtureRequest) -> Iterator[None]:
    """After a live test everything is gone that it started itself; what wider fixtures hold may stay."""
    if request.node.get_closest_marker("live") is None:
        yield
    else:
        yield from _checked("function")
