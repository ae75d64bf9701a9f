"""Checkpoint locations: a URL that every task manager can reach, or a local path."""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import urlsplit

_SCHEME = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]+:")


def checkpoint_root(place: str | os.PathLike[str]) -> str:
    """A URL unchanged; a path made absolute, as each task manager has its own working directory."""
    text = os.fspath(place)
    return text if _SCHEME.match(text) else str(Path(text).expanduser().absolute())


def local_path(root: str) -> Path | None:
    """The local directory that a `checkpoint_root` names; None for a remote URL. A URL's path is not percent-decoded,
    as in Spark."""
    if not _SCHEME.match(root):
        return Path(root)
    parts = urlsplit(root)
    return Path(parts.path) if parts.scheme == "file" and parts.netloc in ("", "localhost") else None
