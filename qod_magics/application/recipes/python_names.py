"""The free names of a piece of Python: how a recipe's inputs are found."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_Comprehension = ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp


def names_read(tree: ast.AST) -> frozenset[str]:
    """The free names of a module, by its order of evaluation, builtins included.

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
    """Names that a function's body assigns, so that they are local in all of it; not `global` ones."""
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
