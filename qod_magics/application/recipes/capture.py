"""What recipes take of the notebook: values as they are when a cell runs, functions over such values, and whether two
of them make the same."""

from __future__ import annotations

import copy
import dis
import functools
import importlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any

from qod_magics.errors import ApplicationError

_PLAIN = (bool, int, float, complex, str, bytes, type(None))
#: Builtins by which a function reads names that its code does not tell.
_LOOKUPS = frozenset({"globals", "eval", "exec"})
_NAME = re.compile(r"[^\W\d]\w*")
#: What Python itself reads in globals.
_SPACE = ("__name__", "__builtins__")


class Capture:
    """Takes values as they are now. A value that is taken twice is one, in functions that share it, too.

    Collections of plain values are copied. Functions of the notebook are built again over the present values of the
    globals that they read, and so is what holds such functions: decorated and partial functions, UDFs, closures,
    defaults, lists, tuples and dictionaries. All else is referenced: functions of modules, classes, other objects, and
    functions that look names up with `globals()` or `eval()`. UDFs that were made before this process was in Connect
    mode become Connect's.

    Args:
        spark: where given, Spark sessions become this one, and batch DataFrames of other sessions are read on it: what
            was captured, for the task manager on which a recipe is built. Raises ApplicationError in `of` for
            DataFrames that can't be.

    """

    def __init__(self, spark: Any = None) -> None:
        self._spark = spark
        self._made: dict[int, Any] = {}  # by id of the original, which its owner keeps alive
        self._cells: dict[int, CellType] = {}  # of closures
        self._spaces: dict[int, dict[str, Any]] = {}  # globals

    @property
    def behind(self) -> dict[tuple[int, str], Any]:
        """Return what the functions read, by name space and name."""
        spaces = enumerate(self._spaces.values())
        return {(i, name): value for i, space in spaces for name, value in space.items() if name not in _SPACE}

    def of(self, value: Any) -> Any:
        """Return a value as it is now."""
        if id(value) not in self._made:
            self._made[id(value)] = self._rebuilt(value) if self._is_to_change(value) else _copied(value)
        return self._made[id(value)]

    def _is_to_change(self, value: Any) -> bool:
        """Tell whether a value is, or holds, what is rebuilt."""
        return _holds(
            value,
            lambda each: (
                (isinstance(each, FunctionType) and _is_of_notebook(each))
                or (_is_udf(each) and _kind_of_now(each) is not type(each))
                or (self._spark is not None and (is_session(each) or _is_frame(each)))
            ),
        )

    def _rebuilt(self, value: Any) -> Any:
        if is_session(value):
            return self._spark
        if _is_frame(value):
            return _on(self._spark, value)
        if isinstance(value, FunctionType):
            return self._function(value)
        if isinstance(value, tuple):
            return tuple(map(self.of, value))
        if isinstance(value, functools.partial):
            named = {name: self.of(each) for name, each in value.keywords.items()}
            return functools.partial(self.of(value.func), *map(self.of, value.args), **named)
        if isinstance(value, functools._lru_cache_wrapper):
            return functools.lru_cache(**value.cache_parameters())(self.of(value.__wrapped__))
        # what follows may hold itself
        if isinstance(value, list):
            items: list[Any] = []
            self._made[id(value)] = items
            items += map(self.of, value)
            return items
        if isinstance(value, dict):
            entries: dict[Any, Any] = {}
            self._made[id(value)] = entries
            entries.update((key, self.of(each)) for key, each in value.items())
            return entries
        kind = _kind_of_now(value)
        udf = copy.copy(value)
        if kind is not type(value):
            udf = kind(value.func, value._returnType, value._name, value.evalType, value.deterministic)
        self._made[id(value)] = udf
        udf.func = self.of(value.func)
        udf._judf_placeholder = None  # the JVM's object, made of the function before
        return udf

    def _function(self, value: FunctionType) -> FunctionType:
        ours = _is_of_notebook(value)
        space = self._space(value.__globals__) if ours else value.__globals__
        closure = value.__closure__ or ()
        new = [cell for cell in closure if id(cell) not in self._cells]
        self._cells |= {id(cell): CellType() for cell in new}
        cells = tuple(self._cells[id(cell)] for cell in closure)
        made = FunctionType(value.__code__, space, value.__name__, None, cells or None)
        self._made[id(value)] = made
        functools.update_wrapper(made, value, updated=())
        del made.__wrapped__  # type: ignore[attr-defined]
        vars(made).update(self.of(vars(value)))
        made.__defaults__, made.__kwdefaults__ = self.of(value.__defaults__), self.of(value.__kwdefaults__)
        for cell in new:
            for content in _contents(cell):
                self._cells[id(cell)].cell_contents = self.of(content)
        for name in names_of(value) if ours else ():
            if name in value.__globals__ and name not in space:
                space[name] = self.of(value.__globals__[name])
        return made

    def _space(self, of: dict[str, Any]) -> dict[str, Any]:
        """Return the globals of rebuilt functions, in place of these."""
        return self._spaces.setdefault(id(of), {name: of[name] for name in _SPACE if name in of})


def on_session(captured: Mapping[str, Any], spark: Any) -> dict[str, Any]:
    """Return what was captured, for recipes that are built on this session: see `Capture`. Raises ApplicationError."""
    capture, found = Capture(spark), {}
    for name, value in captured.items():
        try:
            found[name] = capture.of(value)
        except ApplicationError as error:
            raise ApplicationError(f"{name}: {error}") from None
    return found


def same(one: Any, other: Any, met: set[tuple[int, int]] | None = None) -> bool:
    """Return whether two captured values are equal: plain ones by value, functions by their code and what
    they read, collections by their elements, all else by identity. `met`: pairs that are being compared."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    met = set() if met is None else met
    pair = id(one), id(other)
    if pair in met:
        return True
    met.add(pair)
    if isinstance(one, FunctionType):
        return _same_function(one, other, met)
    if type(one) in (list, tuple):
        return _all_same(one, other, met)
    if type(one) is dict:
        return _all_same(one, other, met) and _all_same(one.values(), other.values(), met)
    if type(one) is functools.partial:
        ours, theirs = (one.func, one.args, one.keywords), (other.func, other.args, other.keywords)
        return _all_same(ours, theirs, met)
    if isinstance(one, functools._lru_cache_wrapper):
        return one.cache_parameters() == other.cache_parameters() and same(one.__wrapped__, other.__wrapped__, met)
    if isinstance(one, MethodType):
        return same(one.__func__, other.__func__, met) and same(one.__self__, other.__self__, met)
    if _is_udf(one):
        settings = all(
            getattr(one, name) == getattr(other, name) for name in ("_name", "_returnType", "evalType", "deterministic")
        )
        return settings and same(one.func, other.func, met)
    return (_is_plain(one) or _is_type(one)) and bool(one == other)


def _same_function(one: FunctionType, other: FunctionType, met: set[tuple[int, int]]) -> bool:
    ours, theirs = one.__closure__ or (), other.__closure__ or ()
    return (
        one.__name__ == other.__name__
        and _unplaced(one.__code__) == _unplaced(other.__code__)
        and same(one.__defaults__, other.__defaults__, met)
        and same(one.__kwdefaults__, other.__kwdefaults__, met)
        and same(one.__annotations__, other.__annotations__, met)
        and same(vars(one), vars(other), met)
        and all(_all_same(_contents(a), _contents(b), met) for a, b in zip(ours, theirs, strict=True))
        and _same_globals(one, other, met)
    )


def _same_globals(one: FunctionType, other: FunctionType, met: set[tuple[int, int]]) -> bool:
    ours, theirs = one.__globals__, other.__globals__
    if ours is theirs:
        return True
    if not (_is_of_notebook(one) and _is_of_notebook(other)):
        return False
    names = names_of(one)
    return all((name in ours) == (name in theirs) for name in names) and all(
        same(ours[name], theirs[name], met) for name in names if name in ours
    )


def _all_same(one: Iterable[Any], other: Iterable[Any], met: set[tuple[int, int]]) -> bool:
    ours, theirs = list(one), list(other)
    return len(ours) == len(theirs) and all(same(a, b, met) for a, b in zip(ours, theirs, strict=True))


def _unplaced(code: CodeType) -> CodeType:
    """Return the code of a function, wherever in a cell it stands."""
    constants = tuple(_unplaced(each) if isinstance(each, CodeType) else each for each in code.co_consts)
    return code.replace(co_firstlineno=1, co_linetable=b"", co_consts=constants)


def _holds(value: Any, wanted: Callable[[Any], bool]) -> bool:
    """Tell whether a value is wanted, or holds one that is."""
    seen: set[int] = set()
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if wanted(each):
            return True
        waiting += parts(each)
    return False


def parts(value: Any) -> Iterator[Any]:
    """Return the parts of a value that can be rebuilt."""
    if isinstance(value, FunctionType):
        for cell in value.__closure__ or ():
            yield from _contents(cell)
        yield from (value.__defaults__, value.__kwdefaults__, vars(value))
    elif type(value) in (list, tuple):
        yield from value
    elif type(value) is dict:
        yield from value.values()
    elif type(value) is functools.partial:
        yield from (value.func, value.args, value.keywords)
    elif isinstance(value, functools._lru_cache_wrapper):
        yield value.__wrapped__
    elif _is_udf(value):
        yield value.func


def _is_of_notebook(function: FunctionType) -> bool:
    """Return whether it was defined in the notebook, and its code tells which names it reads."""
    return function.__globals__.get("__name__") == "__main__" and _LOOKUPS.isdisjoint(names_of(function))


def _is_of_spark(value: object, name: str) -> bool:
    """Tell whether it is of Spark's class of this name, classic or Connect."""
    kind = type(value)
    return kind.__name__ == name and kind.__module__.startswith("pyspark.sql.")


def _is_udf(value: object) -> bool:
    return _is_of_spark(value, "UserDefinedFunction")


def _kind_of_now(udf: Any) -> type[Any]:
    """Return the class of UDFs in this process's present mode, classic or Connect: a UDF keeps that of its making."""
    from pyspark.sql.utils import is_remote

    module = "pyspark.sql.connect.udf" if is_remote() else "pyspark.sql.udf"
    kind: type[Any] = importlib.import_module(module).UserDefinedFunction
    return kind


def is_session(value: object) -> bool:
    """Tell whether it is a Spark session."""
    return _is_of_spark(value, "SparkSession")


def _is_frame(value: object) -> bool:
    return _is_of_spark(value, "DataFrame")


#: Plans whose rows are on the server of one session alone.
_KEPT = frozenset({"CachedLocalRelation", "ChunkedCachedLocalRelation", "CachedRemoteRelation"})


def _on(spark: Any, frame: Any) -> Any:
    """Return a batch DataFrame of another session as one of this session. Raises ApplicationError: it can't be."""
    session = spark.range(0).sparkSession  # `spark` may be a wrapper around the session
    if frame.sparkSession is session:
        return frame
    connected = type(frame).__module__.startswith("pyspark.sql.connect.")
    plans = list(_plans(frame._plan)) if connected else []
    if any(getattr(plan, "_is_streaming", False) for plan in plans) or (not connected and frame.isStreaming):
        raise ApplicationError(
            "a streaming DataFrame must be made inside the recipe, got one of the notebook: its rows could be neither "
            "counted nor dropped"
        )
    if any(type(plan).__name__ in _KEPT for plan in plans):
        raise ApplicationError(
            "a DataFrame of the notebook must be read from files, tables or less than 1 MiB of rows, got one that only "
            "its session has; write it to Parquet and read that inside the recipe"
        )
    if connected:
        return type(frame)(frame._plan, session)
    datasets = session._jvm.org.apache.spark.sql.classic.Dataset
    return type(frame)(datasets.ofRows(session._jsparkSession, frame._jdf.logicalPlan()), session)


def _plans(plan: Any) -> Iterator[Any]:
    """Yield a plan of Spark Connect, and those that it reads."""
    yield plan
    for each in vars(plan).values():
        for one in each if isinstance(each, list | tuple) else (each,):
            if hasattr(one, "to_proto"):
                yield from _plans(one)


def _is_type(value: object) -> bool:
    """Return whether it is a type of Spark's, such as a UDF's result has."""
    kind = type(value)
    return kind.__module__ == "pyspark.sql.types" and kind.__name__.endswith("Type")


def names_of(function: FunctionType) -> frozenset[str]:
    """Return the global names that a function reads, also in its annotations and in the functions within it."""
    written = [each for each in function.__annotations__.values() if isinstance(each, str)]
    return frozenset(_globals_of(function.__code__)) | frozenset(_NAME.findall(" ".join(written)))


def _globals_of(code: CodeType) -> Iterator[str]:
    for step in dis.get_instructions(code):
        if "GLOBAL" in step.opname or step.opname == "LOAD_NAME":
            yield step.argval
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _globals_of(constant)


def _contents(cell: CellType) -> tuple[Any, ...]:
    """Return the value of a closure's variable, if it has one."""
    try:
        return (cell.cell_contents,)
    except ValueError:
        return ()


def _is_plain(value: object) -> bool:
    if isinstance(value, dict):
        return type(value) is dict and all(_is_plain(key) and _is_plain(item) for key, item in value.items())
    if type(value) in (list, tuple, set, frozenset):
        return all(_is_plain(item) for item in value)  # type: ignore[attr-defined]
    return type(value) in _PLAIN


def _copied(value: Any) -> Any:
    return copy.deepcopy(value) if _is_plain(value) else value
