"""Snapshots to and from their JSON form. Keys that the format does not name travel in `extra`, both ways."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any, TypeVar

from qod_magics.core.snapshot import NOTHING, Instance, Snapshot, Stream, Task, TaskManager
from qod_magics.core.validation import check_snapshot
from qod_magics.core.wording import show
from qod_magics.errors import SnapshotError

_Row = TypeVar("_Row")


def snapshot_from_json(obj: Any) -> Snapshot:
    """Return the snapshot that a decoded JSON object describes, completely checked.

    Raises SnapshotError with one line that names the field (`tasks[2].min_accuracy`), its value and what to do.
    """
    record = _Record("", obj, ("task_managers", "tasks", "streams", "instances"), ("at_s",))
    at_s = record.number("at_s") if "at_s" in obj else None
    snapshot = Snapshot(
        task_managers=record.rows("task_managers", ("id", "cores", "cpu"), _task_manager),
        tasks=record.rows("tasks", ("id", "upstream", "external_rate", "priority", "min_accuracy"), _task),
        streams=record.rows("streams", ("from", "to", "out_rate"), _stream),
        instances=record.rows("instances", ("id", "task", "task_manager", "in_rate", "cpu", "warming_up"), _instance),
        extra=record.extra(),
        at_s=at_s,
    )
    check_snapshot(snapshot)
    return snapshot


def snapshot_to_json(snapshot: Snapshot) -> dict[str, Any]:
    """Return the JSON form of a snapshot: plain dicts and lists, ready for `json.dumps`."""
    return {
        "task_managers": [
            {"id": manager.id, "cores": manager.cores, "cpu": manager.cpu, **manager.extra}
            for manager in snapshot.task_managers
        ],
        "tasks": [
            {
                "id": task.id,
                "upstream": list(task.upstream),
                "external_rate": task.external_rate,
                "priority": task.priority,
                "min_accuracy": task.min_accuracy,
                **task.extra,
            }
            for task in snapshot.tasks
        ],
        "streams": [
            {"from": stream.source, "to": stream.target, "out_rate": stream.out_rate, **stream.extra}
            for stream in snapshot.streams
        ],
        "instances": [
            {
                "id": instance.id,
                "task": instance.task,
                "task_manager": instance.task_manager,
                "in_rate": instance.in_rate,
                "cpu": instance.cpu,
                "warming_up": instance.warming_up,
                **instance.extra,
            }
            for instance in snapshot.instances
        ],
        **({} if snapshot.at_s is None else {"at_s": snapshot.at_s}),
        **snapshot.extra,
    }


class _Record:
    """One JSON object that is being read: fetches typed fields and names them in its errors."""

    __slots__ = ("_keys", "_obj", "_path")

    def __init__(self, path: str, obj: Any, keys: tuple[str, ...], optional: tuple[str, ...] = ()) -> None:
        if not isinstance(obj, Mapping):
            raise SnapshotError(f"{path or 'snapshot'}: {show(obj)} is not an object; give {{{', '.join(keys)}}}")
        self._path = path
        self._obj = obj
        self._keys = (*keys, *optional)
        for key in keys:
            if key not in obj:
                raise SnapshotError(f"{self.field(key)}: missing{self._misspelt(key) or '; add it'}")

    def field(self, key: str) -> str:
        return f"{self._path}.{key}" if self._path else key

    def _misspelt(self, key: str) -> str:
        unknown = [other for other in self._obj if isinstance(other, str) and other not in self._keys]
        close = get_close_matches(key, unknown, n=1, cutoff=0.75)
        return f"; there is {show(close[0])}: rename it" if close else ""

    def extra(self) -> Mapping[str, Any]:
        more = {key: value for key, value in self._obj.items() if key not in self._keys}
        return MappingProxyType(more) if more else NOTHING

    def rows(self, key: str, keys: tuple[str, ...], read: Callable[[_Record], _Row]) -> tuple[_Row, ...]:
        rows = self._obj[key]
        if not isinstance(rows, list | tuple):
            raise SnapshotError(f"{self.field(key)}: {show(rows)} is not a list; give a list of objects")
        return tuple(read(_Record(f"{self.field(key)}[{i}]", row, keys)) for i, row in enumerate(rows))

    def text(self, key: str) -> str:
        return self._text(self.field(key), self._obj[key])

    @staticmethod
    def _text(field: str, value: Any) -> str:
        if not isinstance(value, str):
            raise SnapshotError(f"{field}: {show(value)} is not a string; give an id in quotes")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        values = self._obj[key]
        if not isinstance(values, list | tuple):
            raise SnapshotError(f"{self.field(key)}: {show(values)} is not a list; give a list of ids, [] for none")
        return tuple(self._text(f"{self.field(key)}[{i}]", value) for i, value in enumerate(values))

    def number(self, key: str) -> float:
        value = self._obj[key]
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise SnapshotError(f"{self.field(key)}: {show(value)} is not a number; give a finite number")
        try:
            return float(value)
        except OverflowError:
            raise SnapshotError(f"{self.field(key)}: {show(value)} is too large; give a finite number") from None

    def number_or_null(self, key: str) -> float | None:
        return None if self._obj[key] is None else self.number(key)

    def integer_or_null(self, key: str) -> int | None:
        value = self._obj[key]
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            raise SnapshotError(f"{self.field(key)}: {show(value)} is not an integer; give a whole number, or null")
        return value

    def flag(self, key: str) -> bool:
        value = self._obj[key]
        if not isinstance(value, bool):
            raise SnapshotError(f"{self.field(key)}: {show(value)} is neither true nor false; give one of them")
        return value


def _task_manager(record: _Record) -> TaskManager:
    return TaskManager(record.text("id"), record.number("cores"), record.number("cpu"), record.extra())


def _task(record: _Record) -> Task:
    return Task(
        record.text("id"),
        record.texts("upstream"),
        record.number_or_null("external_rate"),
        record.integer_or_null("priority"),
        record.number_or_null("min_accuracy"),
        record.extra(),
    )


def _stream(record: _Record) -> Stream:
    return Stream(record.text("from"), record.text("to"), record.number("out_rate"), record.extra())


def _instance(record: _Record) -> Instance:
    return Instance(
        record.text("id"),
        record.text("task"),
        record.text("task_manager"),
        record.number("in_rate"),
        record.number("cpu"),
        record.flag("warming_up"),
        record.extra(),
    )
