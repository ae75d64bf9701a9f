"""Checkpoint locations: a URL that every task manager can reach, or a local path."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlsplit

from qod_magics.application.streams.path import absolute, is_url


def checkpoint_root(place: str | os.PathLike[str]) -> str:
    """A URL unchanged; a path made absolute, as each task manager has its own working directory."""
    return absolute(os.fspath(place))


def local_path(root: str) -> Path | None:
    """The local directory that a `checkpoint_root` names; None for a remote URL. A URL's path is not percent-decoded,
    as in Spark."""
    if not is_url(root):
        return Path(root)
    parts = urlsplit(root)
    return Path(parts.path) if parts.scheme == "file" and parts.netloc in ("", "localhost") else None
