"""Where checkpoints lie: a URL that every task manager reaches, or a path of this machine."""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import urlsplit

_SCHEME = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]+:")


def checkpoint_root(place: str | os.PathLike[str]) -> str:
    """A URL as it is; a path made absolute, for each task manager has a working directory of its own."""
    text = os.fspath(place)
    return text if _SCHEME.match(text) else str(Path(text).expanduser().absolute())


def local_path(root: str) -> Path | None:
    """The directory of this machine that a `checkpoint_root` names; None for a URL of another kind. A URL's path is
    taken by the letter, as in Spark."""
    if not _SCHEME.match(root):
        return Path(root)
    parts = urlsplit(root)
    return Path(parts.path) if parts.scheme == "file" and parts.netloc in ("", "localhost") else None
