"""Checkpoint locations: a URL that every task manager can reach, or a local path."""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from qod_magics.application.streams.sink import absolute, is_url
from qod_magics.errors import TaskManagerError
from qod_magics.sources.source import matching
from qod_magics.spark.servers.conf import SHUFFLE
from qod_magics.spark.servers.connection import reason
from qod_magics.spark.servers.cpu import setting
from qod_magics.spark.servers.task_manager import TaskManager

#: By topic and partition: the next offset to read.
Offsets = Mapping[str, Mapping[int, int]]
#: How long writing and reading the files of a probe may take, seconds.
PROBE_S = 60.0


def checkpoint_root(place: str | os.PathLike[str]) -> str:
    """Return a URL as it is, and a path made absolute, as each task manager has its own working directory."""
    return absolute(os.fspath(place))


def local_path(root: str) -> Path | None:
    """Return the local directory that a `checkpoint_root` names; None for a remote URL. A URL's path is not
    percent-decoded, as in Spark."""
    if not is_url(root):
        return Path(root)
    parts = urlsplit(root)
    return Path(parts.path) if parts.scheme == "file" and parts.netloc in ("", "localhost") else None


def check_shared(manager: TaskManager, checkpoints: str) -> None:
    """Check that the files of a checkpoint reach all executors of a task manager and its driver: some write them, its
    driver lists them, and others read them. A driver that works itself (`local[N]`) shares its files with itself, and
    is not checked.

    Raises:
        TaskManagerError: they do not. A query would find none of its state at its second batch.

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


# --- How far a checkpoint is ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reached:
    """The offsets of a checkpoint."""

    ended: Offsets  #: after its last ended batch; {} before the first
    planned: Offsets  #: after the batch that was under way when its query was killed; {}: none was, as far as is known

    def again(self, topic: str, first: Mapping[int, int]) -> int:
        """Return how many offsets of a topic the next run reads again; `first`: where it began."""
        before = self.ended.get(topic, first)
        return sum(end - before.get(p, end) for p, end in self.planned.get(topic, {}).items())


def reached(checkpoint: str) -> Reached | None:
    """Return how far a checkpoint is; None: its path is not local, or it has offsets of another source than topics."""
    place = local_path(checkpoint)
    if place is None:
        return None
    try:
        commits, logs = _numbers(place / "commits"), _numbers(place / "offsets")
        ended = max(commits, default=None)
        planned = max((each for each in logs if ended is None or each > ended), default=None)
        return Reached(
            {} if ended is None else _logged(place / "offsets" / str(ended)),
            {} if planned is None else _logged(place / "offsets" / str(planned)),
        )
    except (OSError, ValueError):
        return None


def is_new(checkpoint: str, *, begun: bool) -> bool:
    """Return whether no batch was planned on a checkpoint; `begun`: what is known of one that is no local path."""
    place = local_path(checkpoint)
    return not begun if place is None else not _numbers(place / "offsets")


def committed_ms(checkpoint: str) -> int | None:
    """Return when the last ended batch of a checkpoint was committed, or the checkpoint was made if none has ended,
    milliseconds since 1970; None: no query has used it, or it is no local path."""
    place = local_path(checkpoint)
    try:
        ended = None if place is None else max(_numbers(place / "commits"), default=None)
        files = () if place is None else (place / "metadata" if ended is None else place / "commits" / str(ended),)
        return max((each.stat().st_mtime_ns // 1_000_000 for each in files), default=None)
    except OSError:
        return None


def shuffle_partitions(checkpoint: str) -> int | None:
    """Return into how many partitions the query of a checkpoint shuffles, and keeps its state in; None: it has planned
    no batch yet, or there is no local checkpoint."""
    place = local_path(checkpoint)
    try:
        planned = None if place is None else max(_numbers(place / "offsets"), default=None)
        if place is None or planned is None:
            return None
        _, batch, *_ = (place / "offsets" / str(planned)).read_text("utf-8").splitlines()
        return int(json.loads(batch)["conf"][SHUFFLE])
    except (OSError, ValueError, KeyError):
        return None


def _numbers(log: Path) -> list[int]:
    """Return the batches in a log; none where there is no log yet."""
    try:
        return [int(each.name) for each in log.iterdir() if each.name.isdigit()]
    except FileNotFoundError:
        return []


def _logged(path: Path) -> Offsets:
    """Return the offsets after a batch. Raises OSError; ValueError: they are of another source."""
    _, _, *sources = path.read_text("utf-8").splitlines()
    read = [json.loads(line) for line in sources]
    if not all(isinstance(each, dict) and all(isinstance(there, dict) for there in each.values()) for each in read):
        raise ValueError("it reads a source that is no topic")
    return {topic: {int(p): int(o) for p, o in there.items()} for each in read for topic, there in each.items()}


# --- Topics of a pattern, which change --------------------------------------------------------------------------------


def read_topics(checkpoint: str, first: Mapping[str, Mapping[int, int]], pattern: str) -> None:
    """Let a query go on from a checkpoint with other topics of a pattern than it has had: with its state, from these
    offsets in those that it has not had, and without those that are left out.

    A log of offsets has a line for each source of the plan, in the order of the plan, and Spark refuses another number
    of sources. A recipe that reads its input several times has the lines of all topics as often. Until the first batch
    has ended, it begins where a file of each source says, by its number: without that, where the plan says.

    Args:
        checkpoint: of a query that does not run.
        first: by topic, in the order of the plan, where it begins if the checkpoint does not have it.
        pattern: of its topics.

    Raises:
        TaskManagerError: the log is not one of topics of the pattern, or can't be written.

    """
    place = local_path(checkpoint)
    if place is None:
        return
    try:
        ended, batches = _last_ended(checkpoint), _numbers(place / "offsets")
        plan_says = not batches
        for batch in batches:
            if ended is None or batch >= ended - 1:  # a batch is read again from the offsets of the one before
                path = place / "offsets" / str(batch)
                log = path.read_text("utf-8")
                if (other := with_topics(log, first, pattern)) != log:
                    _replaced(path, other)
                    plan_says = plan_says or ended is None
        if plan_says:
            shutil.rmtree(place / "sources", ignore_errors=True)
    except (OSError, ValueError) as error:
        raise TaskManagerError(f"The checkpoint {checkpoint} can't take other topics: {error}.") from error


def with_topics(log: str, first: Mapping[str, Mapping[int, int]], pattern: str) -> str:
    """Return the entry of a batch in an offset log with lines for these topics: see `read_topics`. Raises ValueError:
    it is not one of topics of the pattern."""
    version, batch, *sources = log.splitlines()
    if version != "v1":
        raise ValueError(f"its offset log has version {version}")
    read = [json.loads(line) for line in sources]
    if not all(isinstance(each, dict) and len(each) == 1 for each in read):
        raise ValueError("its offset log has other sources than topics")
    topics = [next(iter(each)) for each in read]
    if other := set(topics).difference(first, matching(pattern, topics)):
        raise ValueError(f"its offset log has topics that are not of the pattern: {', '.join(sorted(other))}")
    had = list(dict.fromkeys(topics))
    stay = [topic for topic in first if topic in had]
    times = len(topics) // max(len(had), 1)
    if topics != had * times or [topic for topic in had if topic in first] != stay:
        raise ValueError("its offset log has the topics in another order")
    if not had or had == list(first):
        return log
    lines = []
    for time in range(times):
        known = dict(zip(had, sources[time * len(had) : (time + 1) * len(had)], strict=True))
        for topic, there in first.items():
            new = json.dumps({topic: _as_text(there)}, separators=(",", ":"))
            lines.append(known.get(topic, new))
    return "\n".join((version, batch, *lines))


def _replaced(path: Path, text: str) -> None:
    """Replace a file of a log, and remove the checksum that Hadoop keeps beside it. Raises OSError."""
    (path.parent / f".{path.name}.crc").unlink(missing_ok=True)
    new = path.parent / f".{path.name}.{uuid.uuid4()}.tmp"
    new.write_text(text, "utf-8")
    new.replace(path)


# --- State that moves between checkpoints -----------------------------------------------------------------------------
# The state of a query, carried to a checkpoint of another query with the same stateful operators.
#
# Spark keeps state by the number of its operator in the plan and the number of the batch, apart from the offsets of the
# sources: a new checkpoint with the last batch's state goes on exactly there, from the offsets that are written into
# it.


def why_not_transplanted(checkpoints: str) -> str:
    """Return why state in checkpoints at this location can't be copied to another checkpoint, as one clause; "" if it
    can."""
    return "" if local_path(checkpoints) is not None else f"its state is at {checkpoints}, which is no local path"


def transplant(source: str, target: str, at: Offsets, to: Offsets | None = None) -> bool:
    """Create the checkpoint `target`, which continues after the last ended batch of `source`. Return False, and create
    nothing, if `source` has no ended batch: it has no state then.

    Args:
        source: a checkpoint whose query does not run; it stays as it is.
        target: where the new one is to be.
        at: the offsets of `source` after that batch.
        to: the offsets from which the new one reads, of topics in the order of its plan; None: the same.

    Raises:
        TaskManagerError: `source` is at other offsets, not at a local path, or can't be copied.

    """
    before, after = local_path(source), local_path(target)
    if before is None or after is None:
        raise TaskManagerError(f"{why_not_transplanted(source if before is None else target)}.")
    ended = _last_ended(source)
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


@dataclass(frozen=True, slots=True)
class Left:
    """The checkpoint of an instance that has stopped."""

    checkpoint: str
    at: Offsets  #: by the row accounting


def inherit(sources: Sequence[Left], target: str, to: Offsets, assign: Callable[[str, Sequence[str]], object]) -> bool:
    """Create the checkpoint `target`, which continues after the last ended batches of several others, with state of
    theirs. Return False, and create nothing, if none has an ended batch: there is no state then.

    The state is one batch more. Its watermarks are the lowest: no row is late that waits for the slowest source. They
    are 0 where a source has planned its first batch and not ended it: no row is late in that batch.

    Args:
        sources: checkpoints of queries with the same plan, which don't run; they stay as they are.
        target: where the new one is to be.
        to: the offsets from which it reads, of one topic.
        assign: writes the state of the batch, given the target and, for each source, the number of its last ended batch
            and its location, separated by a space. The target is a copy of the first.

    Raises:
        TaskManagerError: a source is at other offsets, not at a local path, kept by real-time mode, or can't be copied.
            Or whatever `assign` raises.

    """
    begun = [(ended, each) for each in sources if (ended := _last_ended(each.checkpoint)) is not None]
    if not begun:
        return False
    (batch, first), after = begun[0], local_path(target)
    transplant(first.checkpoint, target, first.at, to)
    assert after is not None  # or `transplant` has refused it
    try:
        offsets = [_entry(each.checkpoint, "offsets", ended) for ended, each in begun]
        commits = [_entry(each.checkpoint, "commits", ended) for ended, each in begun]
        for lines, (_, each) in zip(offsets, begun, strict=True):
            _rewritten("\n".join(lines), each.at, None)
        divided = {shuffle_partitions(each.checkpoint) for _, each in begun}
        if len(divided) > 1:
            raise ValueError(f"they have it in {_counts(divided)} shuffle partitions")
        if any(json.loads(lines[1]).get("stateUniqueIds") for lines in commits):
            raise ValueError("real-time mode has written it in another format")
        _, told, *reads = _entry(target, "offsets", batch)
        late, next_one = _lowest(offsets, "batchWatermarkMs"), _lowest(commits, "nextBatchWatermarkMs")
        if any(_first_under_way(each.checkpoint) for each in sources):
            late, next_one = dict.fromkeys(late, 0), dict.fromkeys(next_one, 0)
        moved = {"offsets": ("v1", _with(told, late), *reads), "commits": ("v1", _with(commits[0][1], next_one))}
        for stale in (after / "state").glob(f"*/*/{batch + 2}.*"):  # of a batch that was under way
            stale.unlink()
        (after / "metadata").write_text(json.dumps({"id": str(uuid.uuid4())}), "utf-8")  # several go on at once
    except (OSError, ValueError) as error:
        raise TaskManagerError(f"The state of {first.checkpoint} can't be assigned: {error}.") from error
    assign(target, [f"{ended} {each.checkpoint}" for ended, each in begun])
    for name, entry in moved.items():
        (after / name / str(batch + 1)).write_text("\n".join(entry), "utf-8")
    return True


def why_not_divided(checkpoints: Iterable[str]) -> str:
    """Return why groups of these checkpoints can't be put together, as one clause; "" if they can: Spark finds a group
    in the shuffle partition that its key and their number decide."""
    found = {number for each in checkpoints if (number := shuffle_partitions(each)) is not None}
    if len(found) < 2:
        return ""
    return f"its instances keep it in {_counts(found)} shuffle partitions, as their first task managers had cores"


def _counts(numbers: Iterable[int | None]) -> str:
    return " and ".join(str(each) for each in sorted(each or 0 for each in numbers))


def _last_ended(checkpoint: str) -> int | None:
    """Return the number of the last ended batch; None before the first, and where there is no local checkpoint."""
    place = local_path(checkpoint)
    return None if place is None else max(_numbers(place / "commits"), default=None)


def _entry(checkpoint: str, log: str, batch: int) -> list[str]:
    """Return the lines of a batch in a log of a local checkpoint. Raises OSError."""
    place = local_path(checkpoint)
    assert place is not None
    return (place / log / str(batch)).read_text("utf-8").splitlines()


def _first_under_way(checkpoint: str) -> bool:
    """Return whether a query has planned its first batch and not ended it."""
    if _last_ended(checkpoint) is not None:
        return False
    found = reached(checkpoint)
    return found is None or bool(found.planned)


def _lowest(entries: Sequence[Sequence[str]], name: str) -> dict[str, int]:
    """Return the lowest of these times in entries of a log, by its name. Raises ValueError."""
    return {name: min(int(json.loads(lines[1])[name]) for lines in entries)}


def _with(line: str, times: Mapping[str, int]) -> str:
    """Return a line of JSON with these times."""
    return json.dumps({**json.loads(line), **times}, separators=(",", ":"))


def _rewritten(log: str, at: Offsets, to: Offsets | None) -> str:
    """Return the entry of a batch in an offset log, "v1" and a line of JSON for the batch and for each source, with
    other offsets. Raises ValueError if it does not have the expected ones."""
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
        sources = [json.dumps({topic: _as_text(there)}, separators=(",", ":")) for topic, there in to.items()]
    return "\n".join((version, batch, *sources))


def _as_text(offsets: Mapping[int, int]) -> dict[str, int]:
    return {str(partition): offset for partition, offset in sorted(offsets.items())}


def _linked(source: str, target: str) -> str:
    """Link a file, whose content never changes, or copy it where links are impossible."""
    with suppress(OSError):
        os.link(source, target)
        return target
    return str(shutil.copy2(Path(source), target))
