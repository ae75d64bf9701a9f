"""SHA-256 of the jars that this release was tested with, so that no repository, mirror or cache can swap one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path

CHECKSUMS = Path(__file__).with_name("checksums.json")


@cache
def released() -> Mapping[str, str]:
    """SHA-256 in hexadecimal, by file name."""
    found: Mapping[str, str] = json.loads(CHECKSUMS.read_text("utf-8"))
    return found


def sha256(file: Path) -> str:
    """Of a file's content, in hexadecimal. Raises OSError when it can't be read."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
