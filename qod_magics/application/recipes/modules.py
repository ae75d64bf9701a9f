"""Modules of the notebook's author, such as a helpers.py beside it, that functions of recipes need in Python workers.

A worker imports a module once, and keeps it: it would not see an edit that the notebook has reloaded. So a function is
sent with what it reads of such modules, as cloudpickle does with the notebook's own names. What can't be sent so, and
what a function imports when it runs, the worker finds by its path: that of the notebook on servers that were started
here; to others the sources go with the function. (Spark's artifacts are no way: streaming queries don't find them.)
"""

from __future__ import annotations

import dis
import importlib
import importlib.util
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from qod_magics.application.recipes.capture import names_of, parts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Bytes of a pickled module up to which it is sent as a value where a function reads the module itself.
LARGEST = 1 << 20
_INSTALLED = ("site-packages", "dist-packages")
_OTHERS = ("qod_magics", "qod_widgets", "pyspark")
_LIBRARY = tuple(Path(sysconfig.get_path(each)).resolve() for each in ("stdlib", "platstdlib"))

#: Connect sessions on servers whose workers have the notebook's path.
with_our_path: WeakSet[Any] = WeakSet()
#: Attribute of functions that carry sources.
CARRIED = "__qod_sources__"
#: What a worker runs when it gets `SOURCES`, by module name: it imports these modules from there, the newest of each.
_INSTALL = """
import importlib.abc, importlib.util, sys
class QodSources(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self):
        self.sources = {}
    def find_spec(self, name, path=None, target=None):
        return importlib.util.spec_from_loader(name, self) if name in self.sources else None
    def create_module(self, spec):
        return None
    def exec_module(self, module):
        exec(compile(self.sources[module.__name__], f"{module.__name__}.py", "exec"), module.__dict__)
finder = next((each for each in sys.meta_path if type(each).__name__ == "QodSources"), None)
if finder is None:
    finder = QodSources()
    sys.meta_path.insert(0, finder)
for name, source in SOURCES.items():
    if finder.sources.get(name) != source:
        finder.sources[name] = source
        sys.modules.pop(name, None)
"""
#: By module name: the module and its globals when it was tried, and whether it goes as a value.
_tried: dict[str, tuple[tuple[object, ...], bool]] = {}


class Modules:
    """The author's modules that some values need.

    Args:
        values: what a recipe takes of the notebook.
        bodies: code of the recipe itself, which will run here.

    Attributes:
        read: modules whose names functions and classes read.
        imported: files of those that functions import when they run.

    """

    def __init__(self, values: Iterable[Any], bodies: Iterable[CodeType] = ()) -> None:
        self.read: dict[str, ModuleType] = {}
        self.imported: set[Path] = set()
        self._functions: list[FunctionType] = []
        self._met: dict[int, Any] = {}
        waiting = list(values)
        for body in bodies:
            self.imported |= set(_files_imported(body))
            waiting += _imported_by(body)
        while waiting:
            value = waiting.pop()
            if id(value) not in self._met:
                self._met[id(value)] = value  # kept, so that no other value has its id
                waiting += self._behind(value)
        del self._met

    def send(self, spark: SparkSession) -> Sources | None:
        """Have the functions carry what workers of this session need to find all of them.

        Returns it for the functions that the recipe itself will define: as `__file__` of their name space, since
        cloudpickle sends that first; None where workers have the notebook's path, or need nothing.
        """
        by_name = [module for module in self.read.values() if not _as_value(module)]
        files = self.imported | {Path(str(module.__file__)) for module in by_name if _is_one_file(module)}
        here = spark in with_our_path
        sources = Sources(files) if files else None
        for function in self._functions:
            # what was sent elsewhere before carries them here, too: another thread may be sending it just now
            if sources is not None and (not here or CARRIED in vars(function)):
                setattr(function, CARRIED, sources)
        return None if here else sources

    def _behind(self, value: Any) -> Iterator[Any]:
        if isinstance(value, ModuleType):
            if is_authors(value):
                self.read[value.__name__] = value
                yield from (each for each in vars(value).values() if isinstance(each, FunctionType | type | ModuleType))
            return
        if isinstance(value, FunctionType | type):
            module = sys.modules.get(value.__module__ or "")
            ours = module is not None and is_authors(module)
            if ours and module is not None:
                self.read[module.__name__] = module
            if not ours and value.__module__ != "__main__" and not _holds_more(value):
                return
        if isinstance(value, FunctionType):
            self._functions.append(value)
            for name in names_of(value):
                if name in value.__globals__:
                    yield value.__globals__[name]
            self.imported |= set(_files_imported(value.__code__))
        elif isinstance(value, type):
            yield from (each for each in vars(value).values() if isinstance(each, FunctionType))
            yield from value.__bases__
        yield from parts(value)


class Sources:
    """Sources of modules, which a worker imports from once it has unpickled this."""

    def __init__(self, files: Iterable[Path]) -> None:
        """Read these files, and those of the author's modules that they import."""
        self.by_name: dict[str, str] = {}
        waiting = list(files)
        while waiting:
            file = waiting.pop()
            if file.stem not in self.by_name:
                source = self.by_name[file.stem] = importlib.util.decode_source(file.read_bytes())
                with suppress(SyntaxError):  # the worker says so
                    waiting += _files_imported(compile(source, str(file), "exec"))

    def __reduce__(self) -> tuple[Any, ...]:
        return exec, (_INSTALL, {"SOURCES": self.by_name})


def is_authors(module: ModuleType) -> bool:
    """Tell whether a module is a file of the notebook's author: not installed, and not Python's or Spark's."""
    file = getattr(module, "__file__", None)
    if not isinstance(file, str) or module.__name__ == "__main__" or module.__name__.partition(".")[0] in _OTHERS:
        return False
    return _is_authors_file(Path(file))


def _is_one_file(module: ModuleType) -> bool:
    """Tell whether a module is a file, and neither a package nor a part of one: these are sent as values only."""
    return "." not in module.__name__ and not hasattr(module, "__path__")


def _is_authors_file(file: Path) -> bool:
    path = file.resolve()
    if path.suffix != ".py" or any(each in path.parts for each in _INSTALLED):
        return False
    return not any(path.is_relative_to(place) for place in _LIBRARY)


def _holds_more(value: FunctionType | type) -> bool:
    """Tell whether a function that is not the author's holds values that may be, as the wrapper of a UDF does."""
    return isinstance(value, FunctionType) and bool(value.__closure__)


def _files_imported(code: CodeType) -> Iterator[Path]:
    """Yield the files of the author's modules that a function imports when it runs."""
    for step in dis.get_instructions(code):
        if step.opname == "IMPORT_NAME" and isinstance(step.argval, str):
            file = _found(step.argval.partition(".")[0])
            if file is not None:
                yield file
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _files_imported(constant)


def _imported_by(body: CodeType) -> Iterator[ModuleType]:
    """Import the author's modules that a recipe's own lines import, and yield them."""
    for step in dis.get_instructions(body):
        if step.opname == "IMPORT_NAME" and _found(str(step.argval).partition(".")[0]) is not None:
            with suppress(Exception):  # the recipe says so
                yield importlib.import_module(str(step.argval))


def _found(name: str) -> Path | None:
    """Return the author's file behind a module's name; None for other modules."""
    if name in _OTHERS or name in sys.builtin_module_names:
        return None
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
    if spec is None or spec.origin is None or spec.submodule_search_locations is not None:
        return None
    return Path(spec.origin) if _is_authors_file(Path(spec.origin)) else None


def _as_value(module: ModuleType) -> bool:
    """Have cloudpickle send what functions read of this module as values; False where the module can't be."""
    from pyspark import cloudpickle

    state = module, *map(id, vars(module).values())  # another one once it is reloaded
    if _tried.get(module.__name__, ((), False))[0] != state:
        try:
            cloudpickle.register_pickle_by_value(module)
            can = len(cloudpickle.dumps(module)) <= LARGEST
        except Exception:  # a lock, a connection, a session in it
            can = False
        if not can and module.__name__ in cloudpickle.list_registry_pickle_by_value():
            cloudpickle.unregister_pickle_by_value(module)
        _tried[module.__name__] = state, can
    return _tried[module.__name__][1]
