"""A session with a name: its directory, its lease, and the manifest that is kept there while it runs."""

from __future__ import annotations

import logging
import re
import secrets
import shutil
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qod_magics.application import fingerprints
from qod_magics.application.application import Application
from qod_magics.application.streams.options import RESTRICTIONS
from qod_magics.application.streams.stream import StreamDeclaration
from qod_magics.errors import QodError, SetupError, UsageProblem
from qod_magics.kafka.cluster import Kafka
from qod_magics.kafka.topics import id_of
from qod_magics.named import manifest as manifests
from qod_magics.named.lease import Lease
from qod_magics.named.manifest import KeptStream, Manifest
from qod_magics.spark.queries.checkpoints import checkpoint_root, local_path

if TYPE_CHECKING:
    from qod_magics.controller import Controller
    from qod_magics.spark.runtime import SparkRuntime

LOG = logging.getLogger(__name__)

#: Names of sessions: they begin names of topics and of directories.
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,39}")
#: Seconds between two looks at the lease, and looks between two renewals.
LOOK_S, LOOKS = 1.0, 5


def _ids(kafka: str) -> tuple[str, str]:
    """Return the ids of the user's cluster and of that with the session's own topics, from `Manifest.kafka`."""
    users, _, own = kafka.partition(" ")
    return users, own or users


class Keeper:
    """Holds a named session's lease from `open` to `close`, and writes its manifest.

    Args:
        name: of the session.
        directory: where manifest, lease and checkpoints are.

    Attributes:
        manifest: what an earlier kernel left; None: nothing.
        id: begins the names of the session's topics.
        notes: what the user should know, one line each.

    """

    def __init__(self, name: str, directory: Path) -> None:
        self.name, self.directory = name, directory
        self.lease = Lease(directory, name)
        self.manifest: Manifest | None = None
        self.id = f"{name}-{secrets.token_hex(3)}"
        self.notes: tuple[str, ...] = ()
        self._kafka = ""
        self._compared: set[str] = set()
        self._saving = threading.Lock()
        self._ended = threading.Event()
        self._tasks: Callable[[], Manifest] | None = None
        self._watcher: threading.Thread | None = None

    def __repr__(self) -> str:
        return f"keeper of session {self.name} in {self.directory}"

    @classmethod
    def open(cls, name: str, checkpoints: str | None, take_over: bool = False) -> Keeper:
        """Take the lease of a session, and read what it left. Raises UsageProblem: the name is none, there is no local
        directory for it, another kernel holds it, or the manifest can't be read; SetupError."""
        if not _NAME.fullmatch(name):
            raise UsageProblem(
                f"--name must be a letter and up to 39 letters, digits, hyphens or underscores, got {name!r}",
                option="--name",
                value=name,
                rule="name",
            )
        if checkpoints is None:
            raise UsageProblem(
                "--name must come with a place that stays, got none: add --checkpoints DIRECTORY",
                option="--checkpoints",
                rule="checkpoints",
            )
        root = local_path(checkpoint_root(checkpoints))
        if root is None:
            raise UsageProblem(
                f"--checkpoints of a named session must be a directory or a file: URL, got {checkpoints}: mount it, so "
                "that the kernel can write its manifest there",
                option="--checkpoints",
                value=checkpoints,
                rule="local",
            )
        made = cls(name, root / name)
        try:
            made.directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SetupError(f"{made.directory} must be a directory that can be made, got: {error.strerror}") from error
        manifests.read(made.directory)  # one that can't be read is left as it is
        told = made.lease.take(take_over)
        try:
            made.manifest = manifests.read(made.directory)  # as the holder before left it
        except QodError:
            made.lease.release()
            raise
        if made.manifest is not None:
            made.id = made.manifest.id
        shutil.rmtree(made.directory / "sources", ignore_errors=True)  # of files, which nobody reads on
        made.notes = tuple(note for note in (told, made._found()) if note)
        return made

    def _found(self) -> str:
        if self.manifest is None:
            return f"session {self.name} is new: manifest and checkpoints are kept in {self.directory}"
        streams = ", ".join(self.manifest.streams) or "none"
        return (
            f"session {self.name} goes on (epoch {self.lease.epoch}): last saved {self.manifest.saved_at}; run "
            f"the cells of its streams: {streams}"
        )

    @property
    def kafka_data(self) -> Path:
        """Return where the topics of a broker stay that the session starts."""
        return self.directory / "kafka"

    def uses(self, *clusters: Kafka) -> tuple[str, ...]:
        """Note the Kafka clusters, of which a second one has the session's own topics; returns what the user should
        know of them. Raises KafkaError: one does not answer."""
        self._kafka = " ".join(map(id_of, clusters))
        return () if self.same_kafka else (self._other_kafka(),)

    def _other_kafka(self) -> str:
        """Say which of the clusters is another one than before, and which topics the session has left there."""
        assert self.manifest is not None
        before, now = _ids(self.manifest.kafka), _ids(self._kafka)
        if before[1] == now[1]:
            return (
                "your Kafka is another cluster than before, and that of the session's own topics the same: streams "
                "begin as declared"
            )
        left = sorted(set[str]().union(*(task.topics for task in self.manifest.tasks.values())))
        which = (
            "the session's own topics are on another Kafka cluster than before, and your Kafka is the same"
            if before[0] == now[0]
            else "this is another Kafka cluster than before"
        )
        there = f"; own topics that stay on the one before ({before[1]}): {', '.join(left)}" if left else ""
        return f"{which}: streams begin as declared{there}"

    @property
    def same_kafka(self) -> bool:
        """Return whether the earlier kernel used the same Kafka cluster, and the same one for its own topics."""
        before = "" if self.manifest is None else self.manifest.kafka
        return not before or _ids(before) == _ids(self._kafka)

    def compared(self, declaration: StreamDeclaration) -> tuple[str, ...]:
        """Return the restrictions in which a cell differs from the manifest, once for each stream: `%qod set` may have
        changed them."""
        before = None if self.manifest is None else self.manifest.streams.get(declaration.name)
        if before is None or declaration.name in self._compared:
            return ()
        self._compared.add(declaration.name)
        now = kept_stream(declaration).restrictions
        return tuple(
            f"{name.replace('_', ' ')} was {_stated(before.restrictions.get(name))}, and is "
            f"{_stated(now.get(name))} now, as the cell says"
            for name in sorted(before.restrictions.keys() | now.keys())
            if before.restrictions.get(name) != now.get(name)
        )

    @property
    def stays(self) -> str:
        """Return what stays when the session ends, as a clause."""
        return f"manifest, checkpoints and topics of session {self.name} stay ({self.directory})"

    @property
    def learned(self) -> Any:
        """Return what the policy had learned under the earlier kernel; None: nothing."""
        return None if self.manifest is None else self.manifest.learned

    def begin(
        self,
        runtime: SparkRuntime,
        controller: Controller,
        application: Callable[[], Application],
        taken: Callable[[str], object],
    ) -> None:
        """Keep the manifest from now on: before each start of a query, and once a second. `taken`: called once another
        kernel has taken the session over, with who it is."""

        def made() -> Manifest:
            there, streams = application(), {} if self.manifest is None else self.manifest.streams
            with runtime.cluster.lock:
                tasks, left = runtime.deployer.kept(), set(runtime.resuming.streams)
            earlier = self.learned  # what was learned of tasks that have not started again is forgotten in a cycle
            learned = earlier if earlier is not None and left else controller.learned
            return Manifest(
                version=manifests.VERSION,
                name=self.name,
                id=self.id,
                release=_release(),
                epoch=self.lease.epoch,
                saved_at=datetime.now(UTC).isoformat(timespec="seconds"),
                kafka=self._kafka,
                topics_made=runtime.deployment.topics_made,
                streams={name: kept for name, kept in streams.items() if name in left} | kept_streams(there),
                tasks=tasks,
                keep_probabilities=dict(runtime.cluster.dials),
                learned=learned,
            )

        self._tasks = made
        runtime.cluster.ask_before_starts(self.before_start)
        runtime.at_close = self.save_last
        controller.subscribe(lambda _: self.save())  # whose failures are reported
        self._watcher = threading.Thread(target=self._watch, args=(taken,), name="qod-lease", daemon=True)
        self._watcher.start()

    def before_start(self) -> None:
        """Check the lease, and write the manifest with the query that is about to start. Raises QodError."""
        self.lease.check()
        self.save()

    def save(self) -> None:
        """Write the manifest, unless another kernel has taken over. Raises SetupError."""
        with self._saving:
            if self._tasks is not None and self.lease.taker() is None:
                manifests.write(self.directory, self._tasks())

    def save_last(self) -> None:
        """Write the manifest once all queries have stopped: from then on there is less to see. Raises SetupError."""
        try:
            self.save()
        finally:
            with self._saving:
                self._tasks = None

    def _watch(self, taken: Callable[[str], object]) -> None:
        looks = 0
        while not self._ended.wait(LOOK_S):
            looks += 1
            try:
                taker = self.lease.taker()
                if taker is not None:
                    break
                if looks % LOOKS == 0:
                    self.lease.renew()
                self.save()
            except QodError:
                continue  # the controller reports that the manifest can't be written
            except Exception:
                LOG.exception("the manifest of session %s can't be made", self.name)
        else:
            return
        taken(taker.words)

    def close(self) -> None:
        """Let go of the lease: all queries have stopped."""
        self._ended.set()
        with suppress(QodError):
            self.lease.release()


def kept_streams(application: Application) -> dict[str, KeptStream]:
    """Return what is kept of the declared streams."""
    return {stream.name: kept_stream(stream) for stream in application.streams}


def kept_stream(stream: StreamDeclaration) -> KeptStream:
    """Return what is kept of a stream."""
    return KeptStream(
        recipe=fingerprints.of_recipe(stream),
        schema=None if stream.topic is None else stream.topic.schema,
        topic=None if stream.topic is None else stream.topic.topic,
        upstream=list(stream.upstream),
        restrictions={row.name: value for row in RESTRICTIONS if (value := getattr(stream, row.name)) is not None},
    )


def _stated(value: float | None) -> str:
    return "not stated" if value is None else f"{value:g}"


def _release() -> str:
    with suppress(PackageNotFoundError):
        return version("qod_magics")
    return ""
