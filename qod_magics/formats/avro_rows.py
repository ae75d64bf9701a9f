"""Rows as Avro values: the schema of their columns, and the SQL that writes them, with the frame of a registry or bare.

The other direction is `avro.py`. Every column of a schema that is made here may be null, as columns of Spark may be.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from qod_magics.errors import ApplicationError
from qod_magics.formats.avro import PACKAGE, literal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType, StructType

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
            raise _refused(f"column {at} must be named by letters, digits and underscores; name it by AS")
        kind = _type(field.dataType, at, f"{name}.{field.name}")
        fields.append({"name": field.name, "type": [kind, "null"]})
    namespace, _, simple = name.rpartition(".")
    named = {"name": simple, "namespace": namespace} if namespace else {"name": simple}
    return {"type": "record", **named, "fields": fields}


def _type(kind: DataType, at: str, name: str) -> Any:
    made: Any = kind
    called = kind.typeName()
    if called in _TYPES:
        return _TYPES[called]
    if called == "decimal":
        return {"type": "bytes", "logicalType": "decimal", "precision": made.precision, "scale": made.scale}
    if called == "array":
        return {"type": "array", "items": [_type(made.elementType, at, name), "null"]}
    if called == "map" and made.keyType.typeName() == "string":
        return {"type": "map", "values": [_type(made.valueType, at, name), "null"]}
    if called == "struct":
        return _record(made, name, f"{at}.")
    raise _refused(f"column {at} must be of a type that Avro has, got {kind.simpleString().upper()}; CAST it to STRING")


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


def _refused(why: str) -> ApplicationError:
    return ApplicationError(f"rows can't be written as Avro: {why}", option="--sink-option", rule="Avro")
