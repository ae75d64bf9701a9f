"""Schemas of topics: DDL from Spark's types, and which rows a topic's JSON values stand for."""

from __future__ import annotations

import re
from enum import Enum
from typing import TYPE_CHECKING

from qod_magics.errors import ApplicationError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

#: the column of values that are no rows
VALUE = "value"
_ROWS = re.compile(r"\s*array\s*<\s*struct\s*<.*>\s*>\s*", re.IGNORECASE | re.DOTALL)
_VALUE = re.compile(r"\s*(?:(?:array|map)\s*<.*>|\w+(?:\s*\([\d\s,]*\))?)\s*", re.IGNORECASE | re.DOTALL)


class Form(Enum):
    """What the JSON value of a record is."""

    ROW = "row"  #: an object: one row
    ROWS = "rows"  #: an array of objects: a row each
    VALUE = "value"  #: an array of other values, a map, or a scalar: the column `VALUE` of one row


def form_of(schema: str) -> Form:
    """Return the form of the values that a schema, as DDL, describes."""
    if _ROWS.fullmatch(schema):
        return Form.ROWS
    return Form.VALUE if _VALUE.fullmatch(schema) else Form.ROW


def columns_of(schema: str) -> str:
    """Return the DDL of the columns that are parsed: those of the schema, or the column `VALUE` with its type."""
    return schema if form_of(schema) is Form.ROW else f"`{VALUE}` {schema.strip()}"


def as_schema(given: str | DataType | None) -> str | None:
    """Return a schema as DDL. Raises ApplicationError: it is neither DDL nor a type of Spark."""
    if given is None or isinstance(given, str):
        return given
    from pyspark.sql.types import DataType, StructType

    if not isinstance(given, DataType):
        raise ApplicationError(f"a schema is DDL such as 'id INT', or a StructType, not {type(given).__name__}")
    if isinstance(given, StructType):
        return ", ".join(f"{_quoted(field.name)} {_type(field.dataType)}" for field in given.fields)
    return _type(given)


def _type(kind: DataType) -> str:
    """Return a type as DDL, with the names of fields quoted: `simpleString()` leaves them as they are."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kind, StructType):
        return f"struct<{', '.join(f'{_quoted(field.name)}: {_type(field.dataType)}' for field in kind.fields)}>"
    if isinstance(kind, ArrayType):
        return f"array<{_type(kind.elementType)}>"
    if isinstance(kind, MapType):
        return f"map<{_type(kind.keyType)}, {_type(kind.valueType)}>"
    return str(kind.simpleString())


def _quoted(name: str) -> str:
    return "`{}`".format(name.replace("`", "``"))
