"""Checkpoint locations: a URL that every task manager can reach, or a local path."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from qod_magics.application.streams.sink import absolute, is_url
from qod_magics.errors import TaskManagerError
from qod_magics.spark.servers.connection import reason
from qod_magics.spark.servers.cpu import setting
from qod_magics.spark.servers.task_manager import TaskManager

#: How long writing and reading the files of a probe may take, seconds.
PROBE_S = 60.0


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


def check_shared(manager: TaskManager, checkpoints: str) -> None:
    """Let the executors of a task manager write a few files below `checkpoints`, its driver list them and executors
    read them. A driver that works itself (`local[N]`) shares its files with itself, and is asked nothing.

    Raises:
        TaskManagerError: they do not come back: at the second batch, a query would find none of its state.

    """
    if (setting(manager.spark, "spark.master") or "local").startswith("local"):
        return
    place, count = f"{checkpoints}/probe.{manager.id}", max(round(manager.cores), 2)

    def there_and_back() -> int:
        manager.spark.range(0, count, 1, count).selectExpr("CAST(id AS STRING) AS value").write.text(place)
        came_back: int = manager.spark.read.schema("value STRING").text(place).count()
        return came_back

    try:
        found = manager.ask(there_and_back, "its checkpoints", PROBE_S)
        why = f"got {found} of {count} files back"
    except Exception as error:
        found, why = None, f"got: {reason(error)}"
    finally:
        if (local := local_path(place)) is not None:
            shutil.rmtree(local, ignore_errors=True)
            with suppress(OSError):  # it holds checkpoints
                local.parent.rmdir()
    if found != count:
        raise TaskManagerError(
            f"checkpoints at {checkpoints} must be where driver and executors of {manager.id} read and write the same "
            f"files, {why}; name such a place with --checkpoints URL",
            name=manager.id,
            rule="shared files",
        )
