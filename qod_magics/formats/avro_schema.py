"""Avro schemas: read and checked, their columns as Spark has them, and the part that a query reads. Pure."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from qod_magics.errors import ApplicationError

#: An option names a file of this kind; other text that begins with a brace is a schema itself.
SUFFIXES = (".avsc", ".json")
#: An extra field of the reader's schema, with the default 1: it is 1 in decoded values, and null in malformed ones.
READ = "_read"
#: The column of a record's value below the decoded ones.
BYTES = "_bytes"
_PRIMITIVE = {
    **{"null": "VOID", "boolean": "BOOLEAN", "int": "INT", "long": "BIGINT", "float": "FLOAT", "double": "DOUBLE"},
    **{"bytes": "BINARY", "string": "STRING"},
}
_LOGICAL = {
    ("int", "date"): "DATE",
    **{("long", f"timestamp-{unit}"): "TIMESTAMP" for unit in ("millis", "micros")},
    **{("long", f"local-timestamp-{unit}"): "TIMESTAMP_NTZ" for unit in ("millis", "micros")},
}
_WIDER = {frozenset(("int", "long")): "BIGINT", frozenset(("float", "double")): "DOUBLE"}


def is_avro(schema: str) -> bool:
    """Tell whether a schema is written as Avro's, not as DDL."""
    return schema.lstrip().startswith("{")


def normal(text: str) -> str:
    """Return an Avro schema without spaces. Raises ApplicationError: it is none of a record with columns."""
    try:
        schema = json.loads(text)
    except ValueError as error:
        raise ApplicationError(
            f"an Avro schema must be JSON, got {text[:60]!r} ({error}); give a file: --schema trip.avsc",
            option="--schema",
            rule="JSON",
        ) from None
    if not isinstance(schema, dict) or schema.get("type") != "record" or not isinstance(schema.get("fields"), list):
        raise ApplicationError(
            f"an Avro schema must be one of a record, got {text[:60]!r}; put the value into a record",
            option="--schema",
            rule="record",
        )
    columns(schema)
    return json.dumps(schema, separators=(",", ":"))


def ddl(text: str) -> str:
    """Return the columns of an Avro schema as DDL."""
    return ", ".join(f"{_quoted(name)} {kind}" for name, kind in columns(json.loads(text)).items())


def columns(schema: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the types of a record's columns in Spark, by name. Raises ApplicationError."""
    return _fields(schema, _Names())


def pruned(text: str, names: Collection[str]) -> str:
    """Return the schema by which only these columns are read, and the field `READ`. Types that are named in a field
    that is left out are defined where they are used next."""
    schema = json.loads(text)
    known = _Names()
    fields = []
    for field in schema["fields"]:
        kept = field["name"] in names
        kind = known.spelt(field["type"], schema.get("namespace", ""), written=kept)
        if kept:
            fields.append({**field, "type": kind})
    own = {"name": READ, "type": "int", "default": 1}
    return json.dumps({**schema, "fields": [*fields, own]}, separators=(",", ":"))


class _Names:
    """The named types of a schema, as far as it was read."""

    def __init__(self) -> None:
        self.defined: dict[str, Any] = {}
        self.written: set[str] = set()
        self.open: list[str] = []  # records that are being read, for those that contain themselves

    def spelt(self, kind: Any, space: str, *, written: bool) -> Any:
        """Return a type as it is written in a schema that has only the types `written` before."""
        if isinstance(kind, list):
            return [self.spelt(each, space, written=written) for each in kind]
        if isinstance(kind, str):
            name = _full(kind, space)
            if kind in _PRIMITIVE or name not in self.defined or not written or name in self.written:
                return kind
            return self.spelt(self.defined[name], space, written=True)
        made = dict(kind)
        if made["type"] in ("record", "enum", "fixed", "error"):
            name = _full(made["name"], made.get("namespace", space))
            self.defined[name] = {**made, "name": name}
            if written:
                self.written.add(name)
            inner = name.rpartition(".")[0]
            if "fields" in made:
                parts = [{**f, "type": self.spelt(f["type"], inner, written=written)} for f in made["fields"]]
                made["fields"] = parts
            return made
        for part in ("items", "values"):
            if part in made:
                made[part] = self.spelt(made[part], space, written=written)
        if not isinstance(made["type"], str):
            made["type"] = self.spelt(made["type"], space, written=written)
        return made


def _full(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"


def _fields(schema: Mapping[str, Any], names: _Names, space: str = "") -> dict[str, str]:
    full = _full(str(schema.get("name", "")), str(schema.get("namespace", space)))
    if full in names.open:
        raise _refused(f"the record {full} must not contain itself: Spark has no such type")
    names.open.append(full)
    names.defined[full] = schema
    found: dict[str, str] = {}
    for field in schema.get("fields", ()):
        if not isinstance(field, Mapping) or "name" not in field or "type" not in field:
            raise _refused(f"a field must have a name and a type, got {json.dumps(field)[:60]}")
        name = str(field["name"])
        if name.casefold() in (READ, BYTES):
            raise _refused(f"a field must not be named {name}, which reading Avro needs: rename it")
        found[name] = _type(field["type"], names, full.rpartition(".")[0], name)
    names.open.pop()
    if not found:
        raise _refused(f"the record {full or 'without a name'} must have fields, got none")
    return found


def _type(kind: Any, names: _Names, space: str, at: str) -> str:
    """Return the type of Spark, as its `SchemaConverters` has it."""
    if isinstance(kind, list):
        return _union(kind, names, space, at)
    if isinstance(kind, str):
        if kind in _PRIMITIVE:
            if kind == "null":
                raise _refused(f"field {at} must have another type than null; leave it out")
            return _PRIMITIVE[kind]
        defined = names.defined.get(_full(kind, space)) or names.defined.get(kind)
        if defined is None:
            raise _refused(f"field {at} must have a type that is defined before, got {kind!r}")
        return _type(defined, names, space, at)
    if not isinstance(kind, Mapping) or "type" not in kind:
        raise _refused(f"field {at} must have a type, got {json.dumps(kind)[:60]}")
    base, logical = kind["type"], kind.get("logicalType")
    if not isinstance(base, str):
        return _type(base, names, space, at)
    if base in ("record", "enum", "fixed"):
        names.defined[_full(str(kind.get("name", "")), str(kind.get("namespace", space)))] = kind
    if base == "record":
        parts = (f"{_quoted(name)}: {each}" for name, each in _fields(kind, names, space).items())
        return f"STRUCT<{', '.join(parts)}>"
    if base == "enum":
        return "STRING"
    if base in ("bytes", "fixed"):
        if logical == "decimal":
            return f"DECIMAL({int(kind.get('precision', 10))},{int(kind.get('scale', 0))})"
        return "BINARY"
    if base == "array":
        return f"ARRAY<{_type(kind.get('items', 'null'), names, space, at)}>"
    if base == "map":
        return f"MAP<STRING, {_type(kind.get('values', 'null'), names, space, at)}>"
    if logical in ("time-millis", "time-micros", "timestamp-nanos", "local-timestamp-nanos"):
        raise _refused(f"field {at} must be of a type that Spark reads, got {logical}; leave the field out")
    return _LOGICAL.get((base, str(logical))) or _type(base, names, space, at)


def _union(kinds: list[Any], names: _Names, space: str, at: str) -> str:
    some = [each for each in kinds if each != "null"]
    if len(some) == 1:
        return _type(some[0], names, space, at)
    plain = frozenset(each for each in some if isinstance(each, str))
    if len(some) == 2 and plain in _WIDER:
        return _WIDER[plain]
    parts = (f"member{n}: {_type(each, names, space, at)}" for n, each in enumerate(some))
    return f"STRUCT<{', '.join(parts)}>"


def _refused(why: str) -> ApplicationError:
    return ApplicationError(f"the Avro schema can't be read: {why}", option="--schema", rule="Avro")


def _quoted(name: str) -> str:
    return "`{}`".format(name.replace("`", "``"))
