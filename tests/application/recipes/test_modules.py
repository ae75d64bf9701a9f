"""Modules beside a notebook: which ones the functions of a recipe need, and how Python workers get them."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql.types import StringType
from pyspark.sql.udf import UserDefinedFunction

from qod_magics.application.recipes.modules import CARRIED, Modules, is_authors, with_our_path
from qod_magics.application.recipes.python import PythonRecipe

HELPERS = """
import inside
LIMIT = 10
def clean(x): return f"{inside.half(x)} of {LIMIT}"
class Cleaner:
    def __call__(self, x): return clean(x)
"""
LOCKED = "import threading\nLOCK = threading.Lock()\ndef locked(x): return x\n"


class Server:
    """A session on a server elsewhere."""


@pytest.fixture
def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """`helpers`, imported, with other modules beside it."""
    (tmp_path / "helpers.py").write_text(HELPERS)
    (tmp_path / "inside.py").write_text("def half(x): return x // 2\n")
    (tmp_path / "late.py").write_text("def late(x): return x\n")
    (tmp_path / "locked.py").write_text(LOCKED)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("helpers")
    for name in ("helpers", "inside", "late", "locked"):
        module = sys.modules.pop(name, None)
        if module is not None and name in cloudpickle.list_registry_pickle_by_value():
            cloudpickle.unregister_pickle_by_value(module)


def defined(text: str, **names: Any) -> dict[str, Any]:
    """The names of a notebook after a cell."""
    space = {"__name__": "__main__", **names}
    exec(text, space)
    return space


def elsewhere(value: Any, call: str) -> str:
    """What a Python that has none of these modules makes of a pickled value."""
    program = f"import pickle, sys; f = pickle.loads(sys.stdin.buffer.read()); print({call})"
    pickled = cloudpickle.dumps(value)
    done = subprocess.run([sys.executable, "-I", "-c", program], input=pickled, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().strip()


def test_installed_modules_are_not_the_authors(beside: ModuleType) -> None:
    assert is_authors(beside)
    assert not any(map(is_authors, (sys, importlib, pytest, cloudpickle, sys.modules["qod_magics.errors"])))


@pytest.mark.parametrize(
    ("cell", "call"),
    [
        ("from helpers import clean as f", "f(9)"),
        ("import helpers\ndef f(x): return helpers.clean(x)", "f(9)"),
        ("from helpers import Cleaner as f", "f()(9)"),
        ("import helpers\nf = lambda x: [helpers.Cleaner()(x)][0]", "f(9)"),
        ("from helpers import clean\ndef g(x): return clean(x)\ndef f(x): return g(x)", "f(9)"),
        ("import functools, helpers\nf = functools.partial(helpers.clean, 9)", "f()"),
    ],
)
def test_functions_are_sent_with_what_they_read_of_modules(beside: ModuleType, cell: str, call: str) -> None:
    value = defined(cell)["f"]
    assert Modules([value]).send(Server()) is None  # type: ignore[arg-type]
    assert elsewhere(value, call) == "4 of 10"


def test_an_edit_that_was_reloaded_is_sent(beside: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "helpers.py").write_text(HELPERS.replace("of", "out of"))
    importlib.reload(beside)
    Modules([beside.clean]).send(Server())  # type: ignore[arg-type]
    assert elsewhere(beside.clean, "f(9)") == "4 out of 10"


def test_udfs_and_the_lines_of_a_recipe_are_looked_through(beside: ModuleType) -> None:
    udf = UserDefinedFunction(beside.clean, StringType())._wrapped()
    assert set(Modules([udf]).read) == {"helpers", "inside"}
    assert set(Modules([{"a": [udf]}]).read) == {"helpers", "inside"}
    body = PythonRecipe("import helpers\nhelpers")._body
    assert set(Modules([], [body]).read) == {"helpers", "inside"}


IMPORTS = "def f(x):\n    import late, json\n    return late.late(x)"


def test_what_is_imported_later_goes_with_functions_to_servers_elsewhere(beside: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "late.py").write_text("import inside\ndef late(x): return inside.half(x)\n")
    function = defined(IMPORTS)["f"]
    Modules([function]).send(Server())  # type: ignore[arg-type]
    assert elsewhere(function, "f(9)") == "4"
    assert elsewhere(lambda x: function(x), "f(9)") == "4"


def test_servers_that_have_the_notebooks_path_need_no_sources(beside: ModuleType, tmp_path: Path) -> None:
    """A function that carries them to another server keeps them, the newest."""
    function, far, here = defined(IMPORTS)["f"], Server(), Server()
    with_our_path.add(here)
    assert Modules([function]).send(here) is None  # type: ignore[arg-type]
    assert not hasattr(function, CARRIED)
    assert Modules([function]).send(far) is not None  # type: ignore[arg-type]
    (tmp_path / "late.py").write_text("def late(x): return -x\n")
    assert Modules([function]).send(here) is None  # type: ignore[arg-type]
    assert elsewhere(function, "f(9)") == "-9"


def test_sources_are_read_in_their_own_encoding(beside: ModuleType, tmp_path: Path) -> None:
    text = "# -*- coding: latin-1 -*-\ndef late(x): return '\xe9'\n"
    (tmp_path / "late.py").write_bytes(text.encode("latin-1"))
    function = defined(IMPORTS)["f"]
    Modules([function]).send(Server())  # type: ignore[arg-type]
    assert elsewhere(function, "ascii(f(9))") == "'\\xe9'"


def test_functions_of_a_recipe_itself_carry_what_they_import(beside: ModuleType) -> None:
    recipe = PythonRecipe(f"{IMPORTS}\nlambda x: f(x)")
    scope = recipe._scope(Server(), {})  # type: ignore[arg-type]
    exec(recipe._body, scope)
    assert elsewhere(eval(recipe._result, scope), "f(9)") == "9"  # type: ignore[arg-type]


def test_a_module_that_can_not_be_pickled_goes_as_its_source(beside: ModuleType) -> None:
    locked = importlib.import_module("locked")
    function = defined("def f(x): return locked.locked(x)", locked=locked)["f"]
    Modules([function]).send(Server())  # type: ignore[arg-type]
    assert elsewhere(function, "f(9)") == "9"
    assert "locked" not in cloudpickle.list_registry_pickle_by_value()


def test_the_newest_source_counts(beside: ModuleType, tmp_path: Path) -> None:
    """A worker that has imported a module imports it again once its source has changed."""
    function = defined(IMPORTS)["f"]
    Modules([function]).send(Server())  # type: ignore[arg-type]
    before = cloudpickle.dumps(function)
    (tmp_path / "late.py").write_text("def late(x): return -x\n")
    Modules([function]).send(Server())  # type: ignore[arg-type]
    call = f"pickle.loads({before!r})(9), pickle.loads({cloudpickle.dumps(function)!r})(9)"
    assert elsewhere(None, call) == "9 -9"


def test_parts_of_packages_are_sent_as_values_only(beside: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__init__.py").write_text(LOCKED)
    (tmp_path / "pack" / "part.py").write_text("def part(x): return x\n")
    part = importlib.import_module("pack.part")
    space = defined("def f(x):\n    import pack\n    return part.part(pack.locked(x))", part=part)
    sources = Modules([space["f"], sys.modules["pack"]]).send(Server())  # type: ignore[arg-type]
    assert sources is None
    cloudpickle.unregister_pickle_by_value(part)
    for name in ("pack", "pack.part"):
        del sys.modules[name]


def test_a_classic_session_is_sent_nothing(beside: ModuleType) -> None:
    Modules([defined("def f(x):\n    import late\n    return late.late(x)")["f"]]).send(SimpleNamespace())  # type: ignore[arg-type]
