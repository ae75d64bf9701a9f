"""Avro values: Spark's `from_avro`, by one schema, or by those that a schema registry has for the records' frames.

The stream's schema is that of the reader: Avro itself skips what a query does not read, and takes defaults for what a
writer did not have. `from_avro` makes a row of nulls of what it can't decode. The reader's schema has one more field,
with a default, which is null only there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from qod_magics.errors import ApplicationError
from qod_magics.formats.format import EMPTY_VALUE, NO_VALUE
from qod_magics.formats.schema_registry import FRAME, Written, written

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

# --- Schemas ----------------------------------------------------------------------------------------------------------

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


def normal(text: str, option: str = "--schema") -> str:
    """Return an Avro schema without spaces. Raises ApplicationError about `option`: it is none of a record with
    columns."""
    try:
        schema = json.loads(text)
    except ValueError as error:
        raise ApplicationError(
            f"an Avro schema must be JSON, got {text[:60]!r} ({error}); give a file such as trip.avsc",
            option=option,
            rule="JSON",
        ) from None
    if not isinstance(schema, dict) or schema.get("type") != "record" or not isinstance(schema.get("fields"), list):
        raise ApplicationError(
            f"an Avro schema must be one of a record, got {text[:60]!r}; put the value into a record",
            option=option,
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


#: What a local task manager loads for it.
PACKAGE = "org.apache.spark:spark-avro_2.13:4.2.0"
#: Bytes of a malformed value that its sample has, as hexadecimal digits.
SAMPLED = 400
_NOT_PLANNED = "no plan for the Avro schema "
_PLANNED_NOT = re.compile(re.escape(_NOT_PLANNED) + r"(\d+) of (\S+)")


@dataclass(frozen=True, slots=True)
class Avro:
    """Values in Avro, behind the frame of a registry if there is one."""

    name: ClassVar[str] = "avro"
    label: ClassVar[str] = "Avro"
    prunes: ClassVar[bool] = True
    checks_names: ClassVar[bool] = False

    schema: str  #: the reader's, as JSON
    registry: str = ""  #: its URL; "": values have no frame, and were written with the schema
    subject: str = ""

    def rows(self, records: DataFrame, schema: StructType, also: Sequence[str], marker: str = "") -> DataFrame:
        """See `Format.rows`. Asks the registry for new schemas. Raises RegistryError: it does not answer."""
        from pyspark.sql import functions as F

        names = [each.name for each in schema.fields if each.name != marker]
        if self.registry:
            self._written.look()
        decoded = F.expr(self._decoded(BYTES, names, strict=True))
        rows = records.select(F.col("value").alias(BYTES), *also).select(F.inline(F.array(decoded)), BYTES, *also)
        columns = [F.col("`{}`".format(name.replace("`", "``"))) for name in names]
        text = [F.expr(_malformed_sql()).alias(marker)] if marker else []
        return rows.select(*columns, *text, *also)

    def fields(self, schema: StructType, names: Sequence[str]) -> Column:
        """See `Format.fields`."""
        from pyspark.sql import functions as F

        return F.expr(self._decoded("value", names, strict=False))

    def misfit(self, sample: str, schema: StructType, cut: bool = False) -> str | None:
        """See `Format.misfit`; the sample is hexadecimal."""
        if sample in (NO_VALUE, EMPTY_VALUE):
            return "it has no value"
        if not self.registry:
            return "it is no Avro of the schema"
        head = bytes.fromhex(sample[: 2 * FRAME])
        if len(head) < FRAME or head[0] != 0:
            return "it does not begin with a byte 0 and the id of a schema, as a registry's serializers write it"
        return self._written.why(int.from_bytes(head[1:], "big"))

    def needs_plan(self, why: str) -> bool:
        """Tell whether a record has a schema that the plan does not know, and note it."""
        found = _PLANNED_NOT.search(why)
        if found is None or not self.registry or found[2].rstrip(".,;:'\"") != self.subject:
            return False
        self._written.want(int(found[1]))
        return True

    def reason(self, marker: str) -> str:
        """Return SQL of why a value is malformed: by its frame, if it should have one."""
        if not self.registry:
            return "'not Avro of its schema'"
        frames, digits = ", ".join(f"'00{id:08x}'" for id in self._written.known) or "''", 2 * FRAME
        id = f"conv(substring({marker}, 3, 8), 16, 10)"
        return (
            f"CASE WHEN length({marker}) < {digits} OR left({marker}, 2) <> '00' THEN 'no frame of a schema registry' "
            f"WHEN left({marker}, {digits}) IN ({frames}) THEN concat('not Avro of schema ', {id}) "
            f"ELSE concat('unknown schema ', {id}) END"
        )

    def check(self, spark: SparkSession, ddl: str) -> None:
        """Raise ApplicationError where a task manager can't read Avro, or reads other columns by this schema."""
        from pyspark.sql import functions as F

        sql = _from_avro_sql("CAST(NULL AS BINARY)", self.schema, self.schema)
        try:
            rows = spark.range(0).select(F.expr(sql).alias("row")).select("row.*")
            found = [(each.name, each.dataType.simpleString()) for each in rows.schema.fields]
        except Exception as error:
            if "AVRO_NOT_LOADED" not in str(error):
                raise
            raise ApplicationError(
                "--format avro must have Spark's Avro functions on the task managers, got none; start them by "
                f"%qod up --packages {PACKAGE}",
                option="--format",
                rule="loaded",
            ) from None
        wanted = spark.range(0).select(F.from_json(F.lit("{}"), ddl).alias("row")).select("row.*").schema.fields
        for (name, kind), field in zip(found, wanted, strict=True):
            if (name, kind) != (field.name, field.dataType.simpleString()):
                raise ApplicationError(
                    f"field {field.name} of the Avro schema must be read as {field.dataType.simpleString()}, got "
                    f"{kind} on this task manager; leave the field out",
                    option="--schema",
                    rule="type",
                )

    @property
    def _written(self) -> Written:
        return written(self.registry, self.subject)

    def _decoded(self, value: str, names: Sequence[str], *, strict: bool) -> str:
        """Return SQL of the decoded row; `strict`: a schema that is not known ends the query."""
        reader = pruned(self.schema, names)
        if not self.registry:
            return _from_avro_sql(value, self.schema, reader)
        return framed_sql(value, self._written, reader, strict=strict)


def framed_sql(value: str, schemas: Written, reader: str, *, strict: bool) -> str:
    """Return SQL that decodes a value by the schema that its frame names; null where that can't be.

    Args:
        value: the column.
        schemas: those that are known.
        reader: the schema of the row.
        strict: whether another one ends the query, so that the next plan knows it.

    """
    known, body = schemas.known, f"substring({value}, {FRAME + 1})"
    cases = [f"WHEN {_frame(id)} THEN {_from_avro_sql(body, schema, reader)}" for id, schema in reversed(known.items())]
    if strict and not schemas.closed:
        passed = ", ".join(map(_frame, schemas.absent)) or "X''"
        id = f"conv(hex(substring({value}, 2, 4)), 16, 10)"
        told = f"concat({literal(_NOT_PLANNED)}, {id}, {literal(f' of {schemas.subject}')})"
        framed = f"length({value}) >= {FRAME} AND substring({value}, 1, 1) = X'00'"
        wanted = f"{framed} AND substring({value}, 1, {FRAME}) NOT IN ({passed})"
        cases.append(f"ELSE CASE WHEN {wanted} THEN raise_error({told}) END")
    if not known:  # of a type, as the other cases are
        cases.insert(0, f"WHEN X'' THEN {_from_avro_sql(body, reader, reader)}")
    return f"CASE substring({value}, 1, {FRAME}) {' '.join(cases)} END"


def _frame(id: int) -> str:
    return f"X'00{id:08x}'"


def _malformed_sql() -> str:
    """Return SQL of the column of malformed values: the beginning of one, as hexadecimal digits."""
    return (
        f"CASE WHEN {READ} IS NULL THEN CASE WHEN {BYTES} IS NULL THEN '{NO_VALUE}' "
        f"WHEN length({BYTES}) = 0 THEN '{EMPTY_VALUE}' ELSE lower(hex(substring({BYTES}, 1, {SAMPLED}))) END END"
    )


def _from_avro_sql(value: str, writer: str, reader: str) -> str:
    options: Mapping[str, str] = {"mode": "PERMISSIVE", "avroSchema": reader}
    words = ", ".join(literal(word) for pair in options.items() for word in pair)
    return f"from_avro({value}, {literal(writer)}, map({words}))"


def literal(text: str) -> str:
    """Return a text as a literal of SQL."""
    return "'{}'".format(text.replace("\\", "\\\\").replace("'", "\\'"))


# --- Rows as values ---------------------------------------------------------------------------------------------------
# Rows as Avro values: the schema of their columns, and the SQL that writes them, with the frame of a registry or bare.
#
# Every column of a schema that is made here may be null, as columns of Spark may be.


#: How Spark's types are called in Avro.
_TYPES: dict[str, Any] = {
    **{"boolean": "boolean", "byte": "int", "short": "int", "integer": "int", "long": "long", "float": "float"},
    **{"double": "double", "string": "string", "binary": "bytes", "date": {"type": "int", "logicalType": "date"}},
    "timestamp": {"type": "long", "logicalType": "timestamp-micros"},
    "timestamp_ntz": {"type": "long", "logicalType": "local-timestamp-micros"},
}
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
#: What Spark says of columns that a schema does not fit.
_MISFIT = re.compile(r"(?:Cannot convert SQL|Found (?:field|SQL)|Expected \w+ field|Found)[^\n]*")
#: The record of a row.
ROW = "Row"


def schema_of(columns: StructType) -> str:
    """Return the Avro schema of rows with these columns. Raises ApplicationError: one has no name or type in Avro."""
    return json.dumps(_record(columns, ROW, ""), separators=(",", ":"))


def _record(columns: StructType, name: str, within: str) -> dict[str, Any]:
    """Return a record; each one of a column is in the namespace of the record that has the column, so that no two have
    a name."""
    fields = []
    for field in columns.fields:
        at = f"{within}{field.name}"
        if not _NAME.fullmatch(field.name):
            raise _cannot_write(f"column {at} must be named by letters, digits and underscores; name it by AS")
        kind = _type_of(field.dataType, at, f"{name}.{field.name}")
        fields.append({"name": field.name, "type": [kind, "null"]})
    namespace, _, simple = name.rpartition(".")
    named = {"name": simple, "namespace": namespace} if namespace else {"name": simple}
    return {"type": "record", **named, "fields": fields}


def _type_of(kind: DataType, at: str, name: str) -> Any:
    made: Any = kind
    called = kind.typeName()
    if called in _TYPES:
        return _TYPES[called]
    if called == "decimal":
        return {"type": "bytes", "logicalType": "decimal", "precision": made.precision, "scale": made.scale}
    if called == "array":
        return {"type": "array", "items": [_type_of(made.elementType, at, name), "null"]}
    if called == "map" and made.keyType.typeName() == "string":
        return {"type": "map", "values": [_type_of(made.valueType, at, name), "null"]}
    if called == "struct":
        return _record(made, name, f"{at}.")
    raise _cannot_write(
        f"column {at} must be of a type that Avro has, got {kind.simpleString().upper()}; CAST it to STRING"
    )


def encoded_sql(names: Sequence[str], schema: str, id: int | None) -> str:
    """Return SQL of a row with these columns as an Avro value.

    Args:
        names: the columns.
        schema: by which it is written.
        id: the schema's, for the frame of a registry; None: there is no frame.

    """
    row = ", ".join("`{}`".format(name.replace("`", "``")) for name in names)
    body = f"to_avro(struct({row}), {literal(schema)})"
    return body if id is None else f"concat(X'00{id:08x}', {body})"


def check_written(spark: SparkSession, columns: StructType, schema: str) -> None:
    """Raise ApplicationError, one line, where a task manager can't write rows with these columns by a schema."""
    from pyspark.sql import functions as F

    nulls = [F.lit(None).cast(field.dataType).alias(field.name) for field in columns.fields]
    try:
        spark.range(1).select(*nulls).select(F.expr(encoded_sql(columns.names, schema, None))).collect()
    except Exception as error:
        told = str(error)
        if "AVRO_NOT_LOADED" in told:
            raise ApplicationError(
                "--sink-option format=avro must have Spark's Avro functions on the task managers, got none; start them "
                f"by %qod up --packages {PACKAGE}",
                option="--sink-option",
                rule="loaded",
            ) from None
        if "AVRO_CANNOT_WRITE_NULL_FIELD" in told:  # the rows of this check are null
            return
        if (misfit := _MISFIT.search(told)) is None:
            raise
        raise ApplicationError(
            f"the Avro schema must fit the columns {', '.join(columns.names)}, got: {misfit[0].strip()}; select those "
            "that it has",
            option="--sink-option",
            rule="columns",
        ) from None


def _cannot_write(why: str) -> ApplicationError:
    return ApplicationError(f"rows can't be written as Avro: {why}", option="--sink-option", rule="Avro")
