"""Snapshots to and from their JSON form. Keys that the format does not name travel in `unknown`, both ways."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from qod_magics.core.json_form import keys, read, with_unknown, written
from qod_magics.core.snapshot import TABLES, Snapshot
from qod_magics.core.validation import check_snapshot


def snapshot_from_json(obj: Any) -> Snapshot:
    """Return the snapshot that a decoded JSON object describes, completely checked.

    Raises SnapshotError with one line that names the field (`tasks[2].min_accuracy`), its value and what to do.
    """
    snapshot = read(Snapshot, obj, "snapshot")
    snapshot = replace(snapshot, **{table: _rows(table, getattr(snapshot, table), obj[table]) for table in TABLES})
    check_snapshot(snapshot)
    return snapshot


def snapshot_to_json(snapshot: Snapshot) -> dict[str, Any]:
    """Return the JSON form of a snapshot: plain dicts and lists, ready for `json.dumps`."""
    rows = {table: [written(row) for row in getattr(snapshot, table)] for table in TABLES}
    return rows | written(replace(snapshot, **dict.fromkeys(TABLES, ()))) | rows


def _rows(table: str, rows: list[Any], objs: list[Mapping[str, Any]]) -> tuple[Any, ...]:
    known = keys(TABLES[table])
    return tuple(
        [row if known.issuperset(obj) else with_unknown(row, obj) for row, obj in zip(rows, objs, strict=True)]
    )
