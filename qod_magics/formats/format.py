"""The protocol of a format: how the values of records become columns, and what is said of values that do not.

A source (`sources.source`) says where records come from; a format, what is in their values. Shedding comes between the
two: a record that is dropped is never parsed. Plans that are only inspected parse every format as JSON, since the
columns are the same and what reads plans knows one parser.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Protocol

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

_log = logging.getLogger(__name__)

#: Stands in the column of malformed values for a value that is empty, or JSON's `null`.
EMPTY_VALUE = "(empty value)"
#: Stands there for a value that is null.
NO_VALUE = "(no value)"


class Format(Protocol):
    """One format, with what it needs to know of a stream's values. Equal ones parse alike."""

    name: ClassVar[str]  #: as `--format` says it
    label: ClassVar[str]  #: in messages: "3 values are not Avro of its schema"
    prunes: ClassVar[bool]  #: whether it can leave out columns that nobody reads
    checks_names: ClassVar[bool]  #: whether a row without any of the columns read hints at misspelt names

    def rows(self, records: DataFrame, schema: StructType, also: Sequence[str], marker: str = "") -> DataFrame:
        """Return the columns of the values, and the columns `also`. It parses in a generator (`inline`), below which
        Spark pushes no filter: pushed below a projection that parses, it would parse each column that it reads again.

        Args:
            records: have a column `value`.
            schema: the columns to return, `marker` among them.
            also: columns of the records.
            marker: the column that has the text of a malformed value, `NO_VALUE` or `EMPTY_VALUE`, and is null
                elsewhere; "": malformed values are rows of nulls.

        """
        ...

    def fields(self, schema: StructType, names: Sequence[str]) -> Column:
        """Return a struct with these columns of the column `value`; null where they can't be parsed."""
        ...

    def misfit(self, sample: str, schema: StructType, cut: bool = False) -> str | None:
        """Return why a value is malformed, as a clause: "column a is INT, and 5.0 is not". None: no reason found.

        Args:
            sample: the text in the column of malformed values, or its beginning.
            schema: the columns asked for.
            cut: whether it is only the beginning.

        """
        ...

    def reason(self, marker: str) -> str:
        """Return SQL of why a value is malformed, by its text in the column `marker`, for a topic of rejects."""
        ...

    def check(self, spark: SparkSession, ddl: str) -> None:
        """Raise ApplicationError, or what Spark raises, where a task manager can't parse values to these columns."""
        ...

    def needs_plan(self, why: str) -> bool:
        """Tell whether a query failed by this message for a plan that can be made better now: it starts again at
        once."""
        ...


def why_malformed(form: Format, sample: str, schema: StructType, cut: bool = False) -> str | None:
    """Return what `Format.misfit` says; None where it fails. Failures are explained while queries recover: an
    explanation that fails must stop no recovery."""
    try:
        return form.misfit(sample, schema, cut)
    except Exception:
        _log.debug("a malformed value of %s is not explained", form.label, exc_info=True)
        return None
