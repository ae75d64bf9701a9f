"""The interface that a session offers to its parts."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Unpack

from qod_magics.application.application import Application
from qod_magics.application.streams.keywords import RestrictionKeywords
from qod_magics.controller import Controller, Cycle
from qod_magics.kafka.cluster import Kafka
from qod_magics.results.slices import Kept
from qod_magics.session.show import ShownResults
from qod_magics.spark.runtime import SparkRuntime

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class SlicesInterface(Protocol):
    """Slices of results, as the status and the dashboard use them."""

    def text(self) -> list[str]:
        """Return what each task manager keeps, and how the last query was answered, a line each."""
        ...

    def kept(self) -> tuple[Kept, ...]:
        """Return the slices with copies, as known without asking."""
        ...


class SessionInterface(Protocol):
    """A session as its handles, status texts, views and scenarios use it."""

    id: str
    kafka: Kafka
    runtime: SparkRuntime
    controller: Controller
    began: datetime
    recording_path: Path
    taken_by: str

    @property
    def alive(self) -> bool:
        """Return whether it has not ended."""
        ...

    @property
    def application(self) -> Application:
        """Return the declared streams."""
        ...

    @property
    def slices(self) -> SlicesInterface:
        """Return the slices of results that task managers keep in memory."""
        ...

    @property
    def waiting_streams(self) -> Mapping[str, tuple[str, ...]]:
        """Return the declared streams that wait for streams of an earlier kernel, with the names of these."""
        ...

    @property
    def last(self) -> Cycle | None:
        """Return the last finished cycle."""
        ...

    def add_task_manager(self) -> str:
        """Start another one; returns its id."""
        ...

    def remove_task_manager(self, id: str) -> object:
        """Move its instances to the others, then end it."""
        ...

    def limit_cpu(self, task_manager: str, share: float) -> None:
        """Limit the CPU that plans use on a task manager to a share of its cores for tasks."""
        ...

    def move(self, instance: str, task_manager: str) -> None:
        """Move an instance by hand, and wait until it runs there."""
        ...

    def scale(self, task: str, parallelism: int) -> None:
        """Run a task as this many instances, and wait until they run."""
        ...

    def fuse(self, first: str, second: str) -> None:
        """Run two neighbouring tasks as one query, and wait until it runs."""
        ...

    def unfuse(self, first: str, second: str) -> None:
        """Run a task as two queries, with a Kafka topic between these two of its streams, and wait until they run."""
        ...

    def set(self, name: str, **restrictions: Unpack[RestrictionKeywords]) -> str:
        """Change the restrictions of a query, from the next cycle on; returns what its author should know."""
        ...

    def override(self, name: str, d: float | None) -> str:
        """Hold a non-drop probability; None gives it back to the controller. Returns when that takes effect."""
        ...

    def set_period(self, seconds: float) -> None:
        """Change the controller's period."""
        ...

    def set_policy(self, name: str) -> object:
        """Have another policy decide, or the same with other parameters: "henge settle_s=15"."""
        ...

    def pause(self) -> None:
        """Make plans without applying them."""
        ...

    def resume(self) -> None:
        """Apply plans again."""
        ...

    def stop(self, name: str) -> None:
        """Stop and remove a stream."""
        ...

    def results(self, name: str) -> DataFrame:
        """Return the rows so far of a query with a memory sink."""
        ...

    def show(self, name: str, **wish: Any) -> ShownResults:
        """A query's newest results, to be displayed."""
        ...

    def status(self) -> str:
        """Return what runs where, and how it keeps up."""
        ...

    def why(self, name: str) -> str:
        """Return the last decision about a stream, an instance or a task manager."""
        ...

    def annotate(self, **annotations: Any) -> None:
        """Add keys to the recording's lines from now on."""
        ...
