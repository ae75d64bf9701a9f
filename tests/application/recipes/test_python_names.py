"""Names that Python source reads without having set them."""

from __future__ import annotations

import ast

import pytest

from qod_magics.application.recipes.python import names_read


@pytest.mark.parametrize(
    ("source", "read"),
    [
        ("a.join(b, 'k')", "a b"),
        ("a = a.filter('x')\na", "a"),
        ("b = a\nb.filter(b.x)", "a"),
        ("a += 1", "a"),
        ("x: int = a\nx", "a int"),
        ("[x for x in a if x > b]", "a b"),
        ("{k: f(v) for k, v in a}", "a f"),
        ("[y for x in a for y in x]", "a"),
        ("[(z := x) for x in a]\nz", "a"),
        ("lambda x, y=a: x + y + b", "a b"),
        ("def f(x, y=a):\n    z = x\n    return z + b\nf(1)", "a b"),
        ("def f():\n    return g()\ndef g():\n    return a\nf()", "a"),
        ("def f():\n    a = 1\n    return a\nf()", ""),
        ("def f():\n    global a\n    a += 1\n    return a\nf()", "a"),
        ("def f():\n    def g():\n        return x + a\n    x = 1\n    return g\nf()", "a"),
        ("def f():\n    import a.b, c as d\n    return a, d, c", "c"),
        ("import a.b\nfrom c import d as e\na, e, d", "d"),
        ("for x in a:\n    x\nelse:\n    x", "a"),
        ("with a as b:\n    b", "a"),
        ("try:\n    a\nexcept E as e:\n    e", "E a"),
        ("match a:\n    case {'k': v, **rest}:\n        v, rest\n    case [x, *more]:\n        x, more", "a"),
        ("class C(a):\n    b = 1\n    c = b\nC", "a"),
        ("@a\ndef f(x: b) -> c:\n    return x\nf", "a b c"),
        ("f'{a} {b!r:>{c}}'", "a b c"),
        ("del a", ""),
        ("a.b.c.d(e=f)", "a f"),
        ("", ""),
    ],
)
def test_names_read(source: str, read: str) -> None:
    assert names_read(ast.parse(source)) == frozenset(read.split())
