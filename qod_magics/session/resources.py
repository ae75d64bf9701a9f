"""The resources of a session: broker, task managers and temporary files, released together."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from contextlib import ExitStack, suppress

from qod_magics.errors import KafkaError
from qod_magics.kafka.broker import EmbeddedBroker
from qod_magics.kafka.cluster import Kafka
from qod_magics.kafka.presence import Presence, sweep
from qod_magics.machine.child import Directory
from qod_magics.session.provisioning import Provisioner
from qod_magics.session.settings import Settings
from qod_magics.session.task_managers import TaskManagers
from qod_magics.spark.queries.checkpoints import checkpoint_root
from qod_magics.spark.runtime import SparkRuntime
from qod_magics.spark.servers.connection import leave_connect_mode


class Resources:
    """The resources of one session. If one can't be created, all are released.

    Args:
        kafka: the broker.
        settings: headroom, checkpoints, and the period that rates are averaged over.
        own_kafka: whether the broker ends with the rest.

    Attributes:
        id: names the session's topics, dials and checkpoints.
        kafka: the broker.
        own_kafka: whether it ends with the rest.
        directory: temporary files.
        runtime: the task managers and the queries on them.
        provisioner: adds task managers to the runtime.
        managers: adds and removes them by hand, and within a budget.
        notes: what was done to the user's broker, or could not be, one line each.

    """

    def __init__(self, kafka: Kafka, settings: Settings, *, own_kafka: bool = False) -> None:
        self.id = secrets.token_hex(3)
        self.kafka = kafka
        self.own_kafka = own_kafka
        self._endings = ExitStack()  #: cleanup callbacks, last in first out
        try:
            if own_kafka and isinstance(kafka, EmbeddedBroker):
                self._endings.callback(kafka.stop)
            self.notes = () if own_kafka else self._appear()
            if settings.checkpoints:
                self.notes = (*self.notes, f"checkpoints stay in {settings.checkpoints} when the session ends")
            self.directory = Directory("qod-session-")
            self._endings.callback(self.directory.remove)
            root = checkpoint_root(settings.checkpoints or self.directory.path / "checkpoints")
            checkpoints = f"{root.rstrip('/')}/{self.id}"
            self.runtime = SparkRuntime(kafka, self.id, checkpoints, settings.period_s)
            self.provisioner = Provisioner(self.runtime, settings.headroom, own_kafka)
            self.managers = TaskManagers(self.runtime, self.provisioner, settings)
            provisioner, managers = self.provisioner, self.managers
            for end in (leave_connect_mode, provisioner.end, self.runtime.close, managers.end, provisioner.cool):
                self._endings.callback(end)
        except BaseException:
            self.end()
            raise

    def __repr__(self) -> str:
        return f"session {self.id}: Kafka at {self.kafka.bootstrap}; {self.runtime}"

    def _appear(self) -> tuple[str, ...]:
        """Mark this session as alive on the user's broker, and delete topics of dead ones."""
        notes = []
        try:
            presence = Presence(self.kafka, self.id)
            presence.begin()
            self._endings.callback(presence.end)
        except KafkaError as error:
            notes.append(f"if this session is killed, its topics stay on this broker: {error}")
        try:
            swept = sweep(self.kafka)
            if swept:
                notes.append(f"deleted {sum(swept.values())} topics of sessions that were killed: {', '.join(swept)}")
        except KafkaError as error:
            notes.append(f"topics of sessions that were killed stay on this broker: {error}")
        return tuple(notes)

    def left(self) -> Sequence[str]:
        """After `end`: what could not be stopped or deleted, one line each. Our own broker has gone with its topics."""
        return [*self.runtime.unstopped, *([] if self.own_kafka else self.runtime.undeleted)]

    def end(self) -> None:
        """Stop all queries, our servers and the session's own broker, if any; remove the files."""
        with suppress(Exception):  # all callbacks run, even if one raises
            self._endings.close()
