"""The state of a query, carried to a checkpoint of another query with the same stateful operators.

Spark keeps state by the number of its operator in the plan and the number of the batch, apart from the offsets of the
sources: a new checkpoint with the last batch's state goes on exactly there, from the offsets that are written into it.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from qod_magics.errors import TaskManagerError
from qod_magics.spark.queries.checkpoints import local_path

#: By topic and partition: the next offset to read.
Offsets = Mapping[str, Mapping[int, int]]


def why_not_transplanted(checkpoints: str) -> str:
    """Why state in checkpoints at this location can't be carried to another one, as one clause; "" if it can."""
    return "" if local_path(checkpoints) is not None else f"its state is at {checkpoints}, which is no local path"


def transplant(source: str, target: str, at: Offsets, to: Offsets | None = None) -> bool:
    """Let the checkpoint `target`, which does not exist, go on after the last ended batch of `source`. Without one,
    there is no state to carry: nothing is done, and the result is False.

    Args:
        source: a checkpoint whose query does not run; it stays as it is.
        target: where the new one is to be.
        at: its offsets after that batch.
        to: the offsets at which the new one goes on, of one topic; None: the same.

    Raises:
        TaskManagerError: `source` is at other offsets, not at a local path, or can't be copied.

    """
    before, after = local_path(source), local_path(target)
    if before is None or after is None:
        raise TaskManagerError(f"{why_not_transplanted(source if before is None else target)}.")
    try:
        ended = max((int(each.name) for each in (before / "commits").iterdir() if each.name.isdigit()), default=None)
    except FileNotFoundError:
        ended = None
    if ended is None:
        return False
    try:
        logs = {ended: _rewritten((before / "offsets" / str(ended)).read_text("utf-8"), at, to)}
        previous = before / "offsets" / str(ended - 1)
        if previous.exists():  # Spark asks for it; of the offsets there, none is read again
            last, lines = logs[ended].splitlines(), previous.read_text("utf-8").splitlines()
            logs[ended - 1] = "\n".join((*lines[:2], *(lines if to is None else last)[2:]))
        for name in ("offsets", "commits"):
            (after / name).mkdir(parents=True)
        shutil.copytree(before / "state", after / "state", copy_function=_linked)
        shutil.copy2(before / "metadata", after / "metadata")
        for batch, log in logs.items():
            (after / "offsets" / str(batch)).write_text(log, "utf-8")
            if (before / "commits" / str(batch)).exists():
                shutil.copy2(before / "commits" / str(batch), after / "commits" / str(batch))
    except (OSError, ValueError, shutil.Error) as error:
        raise TaskManagerError(f"The state of {source} can't be copied to {target}: {error}.") from error
    return True


def _rewritten(log: str, at: Offsets, to: Offsets | None) -> str:
    """The entry of a batch in an offset log, "v1" and a line of JSON for the batch and for each source, with other
    offsets. Raises ValueError if it does not hold those expected."""
    version, batch, *sources = log.splitlines()
    if version != "v1":
        raise ValueError(f"its offset log has version {version}")
    read = [json.loads(line) for line in sources]
    if not all(isinstance(offsets, dict) for offsets in read):
        raise ValueError("it reads a source that is no topic")
    found = {topic: there for offsets in read for topic, there in offsets.items()}
    if found != {topic: _as_text(there) for topic, there in at.items()}:
        raise ValueError(f"it is at offsets {found}, and not at {dict(at)} as booked")
    if to is not None:
        if len(sources) != 1:
            raise ValueError(f"it has {len(sources)} sources, and one is to be replaced")
        sources = [json.dumps({topic: _as_text(there) for topic, there in to.items()}, separators=(",", ":"))]
    return "\n".join((version, batch, *sources))


def _as_text(offsets: Mapping[int, int]) -> dict[str, int]:
    return {str(partition): offset for partition, offset in sorted(offsets.items())}


def _linked(source: str, target: str) -> str:
    """Link a file, whose content never changes, or copy it where links are impossible."""
    with suppress(OSError):
        os.link(source, target)
        return target
    return str(shutil.copy2(Path(source), target))
