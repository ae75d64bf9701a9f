"""The body of a cell as it was written: its language, and its indentation."""

from __future__ import annotations

import ast
import re

_COMMENTS = re.compile(r"(?:\s|\(|--[^\n]*(?:\n|$)|/\*.*?\*/|#[^\n]*(?:\n|$))*", re.DOTALL)
#: How an SQL text begins; of statements that are no queries, too: the error is then one about SQL.
_SQL = re.compile(
    r"SELECT\b(?!\s*[=.,:)])|VALUES\s*\("
    r"|(?:INSERT|CREATE|UPDATE|DELETE|MERGE|DROP|ALTER|SHOW|DESCRIBE|EXPLAIN)\s+\w"
    r"|FROM\s+(?![\w.]+\s+import\b)[`\w(]"
    r"|WITH\s+(?:RECURSIVE\s+)?[`\w]+\s*(?:\([^)]*\)\s*)?(?:MAX\s+RECURSION\s+LEVEL\s+\d+\s+)?AS\s*\(",
    re.IGNORECASE,
)


def is_sql(body: str) -> bool:
    """Tell whether the body of a cell is SQL: it is no Python, and begins as SQL does, after comments."""
    start = _COMMENTS.match(body)
    assert start is not None
    return _SQL.match(body, start.end()) is not None and not _is_python(body)


def dedented(body: str) -> str:
    """Return the body without the indentation of its first line of code, as IPython does with cells."""
    code = (line for line in body.splitlines() if line.strip() and not line.lstrip().startswith("#"))
    first = next(code, "")
    indentation = first[: len(first) - len(first.lstrip())]
    if not indentation:
        return body
    return "".join(line.removeprefix(indentation) for line in body.splitlines(keepends=True))


def _is_python(body: str) -> bool:
    try:
        ast.parse(dedented(body))
    except (SyntaxError, ValueError):
        return False
    return True
