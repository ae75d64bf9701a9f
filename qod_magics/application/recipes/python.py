"""The recipe in the body of a Python cell: its last expression is the stream."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import InitVar, dataclass, field
from types import CodeType, MappingProxyType
from typing import TYPE_CHECKING, Any

from qod_magics.application.recipes.building import (
    advice,
    analysis_errors_unprinted,
    first_line,
    raise_unless_connection,
)
from qod_magics.application.recipes.capture import Capture, on_session, same
from qod_magics.application.recipes.modules import Modules
from qod_magics.application.recipes.recipe import has_name, mentions, streaming
from qod_magics.errors import ApplicationError, QodError
from qod_magics.estimate.formulas import WEIGHT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


# --- Free names -------------------------------------------------------------------------------------------------------

_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_Comprehension = ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp


def names_read(tree: ast.AST) -> frozenset[str]:
    """Return the free names of a module, by its order of evaluation, builtins included.

    `trips = trips.filter(...)` reads `trips`; a name assigned before it is read does not count. Function bodies are
    assumed to run after everything else. A name assigned in one branch only counts as assigned.
    """
    reader = _Reader()
    reader.visit(tree)
    reader.run_functions()
    return frozenset(reader.read)


class _Reader(ast.NodeVisitor):
    def __init__(self) -> None:
        self.read: set[str] = set()
        self._scopes: list[set[str]] = [set()]  #: names assigned so far, innermost last
        self._comprehensions = 0  #: how many of the innermost scopes belong to comprehensions
        self._later: list[tuple[_Function, list[set[str]]]] = []

    def run_functions(self) -> None:
        """Visit the bodies of the functions met so far, each in the scopes around its definition."""
        while self._later:
            function, scopes = self._later.pop(0)
            body: Iterable[ast.AST] = [function.body] if isinstance(function, ast.Lambda) else function.body
            local = set(_parameters(function.args)) | _stored(body)
            self._scopes, self._comprehensions = [*scopes, local], 0
            for node in body:
                self.visit(node)

    def _bind(self, name: str) -> None:
        self._scopes[-1].add(name)

    def _use(self, name: str) -> None:
        if not any(name in scope for scope in self._scopes):
            self.read.add(name)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self._use(node.id)
        else:
            self._bind(node.id)

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit(node.value)
        for target in node.targets:
            self.visit(target)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self.visit(node.annotation)
        if node.value is not None:
            self.visit(node.value)
            self.visit(node.target)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name):
            self._use(node.target.id)
        self.visit(node.value)
        self.visit(node.target)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.visit(node.value)
        self._scopes[-1 - self._comprehensions].add(node.target.id)

    def visit_For(self, node: ast.For) -> None:
        self.visit(node.iter)
        self.visit(node.target)
        for part in (*node.body, *node.orelse):
            self.visit(part)

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            self._bind(alias.asname or alias.name.partition(".")[0])

    visit_ImportFrom = visit_Import

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.name is not None:
            self._bind(node.name)
        self.generic_visit(node)

    def visit_MatchAs(self, node: ast.MatchAs | ast.MatchStar) -> None:
        if node.name is not None:
            self._bind(node.name)
        self.generic_visit(node)

    visit_MatchStar = visit_MatchAs

    def visit_MatchMapping(self, node: ast.MatchMapping) -> None:
        if node.rest is not None:
            self._bind(node.rest)
        self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        annotations = [argument.annotation for argument in _arguments(node.args)]
        for part in (*node.decorator_list, *_defaults(node.args), *annotations, node.returns):
            if part is not None:
                self.visit(part)
        self._bind(node.name)
        self._later.append((node, list(self._scopes)))

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node: ast.Lambda) -> None:
        for part in _defaults(node.args):
            self.visit(part)
        self._later.append((node, list(self._scopes)))

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for part in (*node.decorator_list, *node.bases, *(word.value for word in node.keywords)):
            self.visit(part)
        self._scopes.append(set())
        for statement in node.body:
            self.visit(statement)
        self._scopes.pop()
        self._bind(node.name)

    def _visit_comprehension(self, node: _Comprehension) -> None:
        self.visit(node.generators[0].iter)
        with self._comprehension_scope():
            for index, generator in enumerate(node.generators):
                if index:
                    self.visit(generator.iter)
                self.visit(generator.target)
                for condition in generator.ifs:
                    self.visit(condition)
            results = (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,)
            for result in results:
                self.visit(result)

    visit_ListComp = visit_SetComp = visit_GeneratorExp = visit_DictComp = _visit_comprehension

    @contextmanager
    def _comprehension_scope(self) -> Iterator[None]:
        self._scopes.append(set())
        self._comprehensions += 1
        yield
        self._comprehensions -= 1
        self._scopes.pop()


def _arguments(arguments: ast.arguments) -> list[ast.arg]:
    several = [argument for argument in (arguments.vararg, arguments.kwarg) if argument is not None]
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *several]


def _parameters(arguments: ast.arguments) -> Iterator[str]:
    return (argument.arg for argument in _arguments(arguments))


def _defaults(arguments: ast.arguments) -> list[ast.expr]:
    return [*arguments.defaults, *(default for default in arguments.kw_defaults if default is not None)]


def _stored(body: Iterable[ast.AST]) -> set[str]:
    """Return names that a function's body assigns, so that they are local in all of it; not `global` ones."""
    stored: set[str] = set()
    outer: set[str] = set()
    waiting = list(body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            stored.add(node.id)
        elif isinstance(node, ast.Global | ast.Nonlocal):
            outer.update(node.names)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            stored.update(alias.asname or alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            stored.add(node.name)
            continue
        elif isinstance(node, ast.Lambda | ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp):
            continue
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name is not None:
            stored.add(node.name)
        waiting.extend(ast.iter_child_nodes(node))
    return stored - outer


_FILE = "<recipe>"


@dataclass(frozen=True, eq=False)
class PythonRecipe:
    """Python source whose last expression is the stream; an empty one passes its only input through.

    Compiled once. It runs in a name space of its own: the names of `namespace` that it reads, captured when the recipe
    was created (see `Capture`: functions of the notebook with the names that these read in turn), then `spark`, its
    inputs by name, and `F` for pyspark.sql.functions unless the name space has another `F`.

    Two recipes are equal when their texts are, and their captured names are the same (see `same`).
    Raises ApplicationError, with the line, for source that does not compile or does not end with an expression.
    """

    source_text: str
    namespace: InitVar[Mapping[str, Any]] = MappingProxyType({})
    names: frozenset[str] = field(init=False)  #: names it reads and does not define
    captured: Mapping[str, Any] = field(init=False, repr=False)
    #: what captured functions read, when it was created, by name space and name
    behind: Mapping[tuple[int, str], Any] = field(init=False, repr=False)
    _body: CodeType = field(init=False, repr=False)
    _result: CodeType | None = field(init=False, repr=False)

    def __post_init__(self, namespace: Mapping[str, Any]) -> None:
        tree = _parse(self.source_text)
        read = names_read(tree)
        capture = Capture()
        captured = {name: capture.of(namespace[name]) for name in sorted(read) if name in namespace and name != "spark"}
        body, result = _compile(tree, self.source_text)
        found = {"names": read, "captured": captured, "behind": capture.behind, "_body": body, "_result": result}
        for attribute, value in found.items():
            object.__setattr__(self, attribute, value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PythonRecipe):
            return NotImplemented
        return self.source_text == other.source_text and same(self.captured, other.captured)

    def __hash__(self) -> int:
        return hash(self.source_text)

    @property
    def passes_through(self) -> bool:
        """Return whether it is empty."""
        return self._result is None

    @property
    def text(self) -> str:
        """Return the source."""
        return self.source_text

    @property
    def weighs(self) -> bool:
        """Return whether it names `_weight`, or a function of the notebook that it calls does."""
        codes = (getattr(each, "__code__", None) for each in (*self.captured.values(), *self.behind.values()))
        return has_name(self.source_text, WEIGHT) or any(code is not None and mentions(code, WEIGHT) for code in codes)

    def missing(self, inputs: tuple[str, ...]) -> tuple[str, ...]:
        """Return inputs whose names do not occur in the source."""
        return () if self.passes_through else tuple(name for name in inputs if name not in self.names)

    @contextmanager
    def opened(self, spark: SparkSession, inputs: Mapping[str, DataFrame]) -> Iterator[DataFrame]:
        """Build it, as `Recipe.opened` says; needs no context of its own."""
        yield self.build(spark, inputs)

    def build(self, spark: SparkSession, inputs: Mapping[str, DataFrame]) -> DataFrame:
        """Return the value of the last expression, in a fresh copy of the name space."""
        if self._result is None:
            return self._only(inputs)
        scope = self._scope(spark, inputs)
        try:
            with analysis_errors_unprinted():
                exec(self._body, scope)
                return streaming(eval(self._result, scope), "the recipe", inputs.values())
        except QodError:
            raise
        except Exception as error:
            raise_unless_connection(error)
            message = f"{self._place(error)}: {type(error).__name__}: {first_line(error)}{advice(error)}"
            raise ApplicationError(message) from error

    def _scope(self, spark: SparkSession, inputs: Mapping[str, DataFrame]) -> dict[str, Any]:
        used = on_session({name: value for name, value in self.captured.items() if name not in inputs}, spark)
        bodies = [code for code in (self._body, self._result) if code is not None]
        sources = Modules(used.values(), bodies).send(spark)
        # functions of __main__ are pickled by value for Python workers
        scope: dict[str, Any] = {"__name__": "__main__", **used, "spark": spark, **inputs}
        if sources is not None:
            scope["__file__"] = sources
        if "F" in self.names and "F" not in scope:
            from pyspark.sql import functions

            scope["F"] = functions
        return scope

    def _only(self, inputs: Mapping[str, DataFrame]) -> DataFrame:
        frames = list({id(frame): frame for frame in inputs.values()}.values())
        if len(frames) != 1:
            raise ApplicationError(
                f"an empty recipe passes its only input through, but there are {len(frames)}: end with an expression"
            )
        return streaming(frames[0], "the input", frames)

    def _place(self, error: Exception) -> str:
        line, trace = 0, error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == _FILE:
                line = trace.tb_lineno
            trace = trace.tb_next
        return _line(self.source_text, line)


def _parse(source: str) -> ast.Module:
    try:
        tree = ast.parse(source, _FILE)
        compile(tree, _FILE, "exec")  # finds what the parser alone lets pass, such as a return outside a function
    except (SyntaxError, ValueError) as error:
        place = _line(source, getattr(error, "lineno", None) or 1)
        raise ApplicationError(f"{place}: {getattr(error, 'msg', error)}") from error
    return tree


def _compile(tree: ast.Module, source: str) -> tuple[CodeType, CodeType | None]:
    """Return the statements, and the last expression; None if the source is empty."""
    if not tree.body:
        return compile(tree, _FILE, "exec"), None
    *statements, last = tree.body
    body = compile(ast.Module(statements, type_ignores=[]), _FILE, "exec")
    if not isinstance(last, ast.Expr):
        place = _line(source, last.lineno)
        raise ApplicationError(f"{place}: the last line must be an expression: the DataFrame of the stream")
    return body, compile(ast.Expression(last.value), _FILE, "eval")


def _line(source: str, number: int) -> str:
    """Return where something is wrong; line 0: it shows only when Spark looks at the result."""
    if number == 0:
        return "the recipe"
    lines = source.splitlines()
    text = lines[number - 1].strip() if 0 < number <= len(lines) else ""
    return f"line {number} of the recipe" + (f" ({text if len(text) <= 60 else text[:57] + '...'})" if text else "")
