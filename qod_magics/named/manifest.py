"""The manifest of a named session: what a later kernel needs to go on where this one ended.

It lies beside the checkpoints as readable JSON. A checkpoint has the state and the offsets of one query; the manifest
has what belongs to it: which recipes the query ran, which partitions it read, how many rows were counted, what its
costs were. It is written before each start of a query and once a second. Its counts come with
reports of batches, once a cycle: after a kill they are up to a cycle old, and the checkpoints are ahead of them, never
behind.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

from qod_magics.errors import SetupError, UsageProblem

#: The version of the format that this release writes. It reads this one and all before it.
VERSION = 1
FILE = "manifest.json"


class KeptFeed(msgspec.Struct, omit_defaults=True):
    """What a task reads from one topic, with its row accounting. Offsets are by partition."""

    topic: str
    partitions: int
    first: dict[int, int]  #: where the accounting begins
    position: dict[int, int]  #: the next offset to read
    assignment: list[list[int]] | None = None  #: partitions of each instance, where the task was scaled
    processed: int = 0
    dropped: int = 0
    dropped_before: int = 0
    unreported: int = 0
    deleted: int = 0
    again: int = 0
    sent_again: int = 0  #: rows that the stream has twice
    sent_known: dict[int, int] = {}  #: by sending instance: rows that it sent before are counted, or in `sent_open`
    sent_open: list[tuple[int, int, int]] = []  #: sending instance, from and to: where to look for such rows
    last_read: dict[int, float] = {}  #: when the position was reached, seconds since 1970
    malformed: int = 0
    tombstones: int = 0
    columnless: int = 0
    implausible: int = 0
    gone: dict[int, int] | None = None  #: where a topic of a pattern ended that was deleted; None: it is there


class KeptRun(msgspec.Struct, omit_defaults=True):
    """One instance of a task: a Spark query."""

    checkpoint: str  #: below the session's directory, or a URL
    run: str  #: names its output files
    begun: bool = False  #: whether a batch has ended on this checkpoint
    no_realtime: str = ""


class KeptTask(msgspec.Struct, omit_defaults=True):
    """Streams that ran as one query for each instance."""

    streams: list[str]  #: inputs before their readers
    recipes: str  #: hash of all that its rows depend on
    settings: str  #: hash of the same without the recipes
    columns: str  #: hash of the names and types of its result's columns
    state: str | None = None  #: hash of what its state means; None: no state, or its plan does not tell
    keeps_state: bool = False
    chained: bool = False
    parallelism: int = 0  #: as declared, whatever it was scaled to; 0: a release before this field wrote it
    pattern: str | None = None  #: of its topics; None: they were named
    upstream: list[str] = []
    edges: list[tuple[str, str]] = []  #: tasks that feed it, each with the stream that reads it
    chosen: list[str] = []  #: its streams whose shed key follows from all queries that read them
    generation: int = 1  #: of its checkpoints
    declared: int = 0
    feeds: dict[str, KeptFeed] = {}
    runs: dict[str, KeptRun] = {}  #: by instance
    results: str | None = None  #: topic of a memory sink
    sink_first: dict[int, int] | None = None  #: first offsets in the topic of a Kafka sink
    own_rows: tuple[int, int] | None = None  #: kept and dropped, of a source of its own
    late: int = 0  #: rows that came behind a watermark
    state_since: float | None = None  #: when state was lost, seconds since the epoch

    @property
    def topics(self) -> set[str]:
        """The session's own topics that it needs: of its inputs from other tasks, and of its results."""
        own = {feed.topic for name, feed in self.feeds.items() if name.rpartition(">")[0] in self.upstream}
        return own | ({self.results} if self.results is not None else set())

    @property
    def has_begun(self) -> bool:
        """Return whether it has ended a batch."""
        return any(run.begun for run in self.runs.values())


class KeptStream(msgspec.Struct, omit_defaults=True):
    """What a cell declared."""

    recipe: str  #: its hash
    schema: str | None = None  #: of its topic, as DDL
    topic: str | None = None
    upstream: list[str] = []
    restrictions: dict[str, float] = {}  #: those that are stated, by the names of their options


class Manifest(msgspec.Struct, omit_defaults=True):
    """All of it."""

    version: int
    name: str
    id: str  #: begins the names of the session's topics
    release: str = ""  #: of the package that wrote it
    epoch: int = 0  #: of the lease under which it was written
    saved_at: str = ""  #: UTC
    kafka: str = ""  #: id of the Kafka cluster; behind a space, that of a second one with the session's own topics
    topics_made: int = 0  #: numbers the session's topics
    streams: dict[str, KeptStream] = {}
    tasks: dict[str, KeptTask] = {}
    keep_probabilities: dict[str, float] = {}
    learned: Any = None  #: what the policy has learned, in its own form


class _Head(msgspec.Struct):
    version: int


def encoded(manifest: Manifest) -> bytes:
    """Return a manifest as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n"


def decoded(data: bytes, path: object = FILE) -> Manifest:
    """Return the manifest in these bytes. Raises UsageProblem: a later release wrote it, or it is damaged."""
    try:
        head = msgspec.json.decode(data, type=_Head)
        if head.version > VERSION:
            raise UsageProblem(
                f"the manifest {path} must be of version {VERSION} or before, got {head.version}: a later release "
                "wrote it; use that release, or another --name",
                name=str(path),
                value=head.version,
                rule="version",
            )
        return msgspec.json.decode(data, type=Manifest)
    except msgspec.MsgspecError as error:
        raise UsageProblem(
            f"the manifest {path} must be JSON that this package wrote, got: {error}; restore it, or take another "
            "--name",
            name=str(path),
            rule="readable",
        ) from error


def read(directory: Path) -> Manifest | None:
    """Return the manifest of the session in a directory; None: it has none yet. Raises UsageProblem, SetupError."""
    path = directory / FILE
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SetupError(f"the manifest {path} must be readable, got: {error.strerror}", name=str(path)) from error
    return decoded(data, path)


def write(directory: Path, manifest: Manifest) -> None:
    """Replace the manifest in a directory at once: a kill leaves the one before or this one. Raises SetupError."""
    path = directory / FILE
    try:
        replace_file(path, encoded(manifest))
    except OSError as error:
        raise SetupError(f"the manifest {path} must be writable, got: {error.strerror}", name=str(path)) from error


def replace_file(path: Path, data: bytes) -> None:
    """Replace a file's content at once. Raises OSError."""
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    with new.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
