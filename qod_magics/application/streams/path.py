"""Paths that task managers open."""

from __future__ import annotations

import os
import re

_SCHEME = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]+:")


def absolute(path: str) -> str:
    """A URL unchanged; a path made absolute, with `~`, as each task manager has its own working directory. `..` is
    removed as Hadoop does, whatever is a symbolic link."""
    return path if is_url(path) else os.path.abspath(os.path.expanduser(path))


def is_url(path: str) -> bool:
    """Whether it has a scheme, such as `s3a:` or `file:`."""
    return _SCHEME.match(path) is not None
