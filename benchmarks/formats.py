"""CPU per row of framed Avro beside its JSON twin, through the parsers that queries use.

    python -m benchmarks.formats [--rows 400000] [--runs 5]

Both topics stand as Parquet files of values, so that what is measured is parsing, counting and a sum over two of eleven
columns. Each run reads the whole in one task; runs take turns. It also compares rows, weights and malformed counts, and
fails where they differ. `results/scripts/formats.csv` keeps the microseconds of CPU per row of each run.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from benchmarks._live import Table
from qod_magics.formats import avro as avro_schema
from qod_magics.formats.avro import PACKAGE, Avro
from qod_magics.formats.json_values import Json
from qod_magics.machine.packages import package_jars
from qod_magics.spark.plans.parsing import MALFORMED, parsed_input
from tests.formats.registry_server import served

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from qod_magics.formats.format import Format

_TEXTS = ("vendor", "payment", "note", "flag")
_NUMBERS = ("distance", "fare", "tip", "tolls")
SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Trip",
    "fields": [
        {"name": "zone", "type": "int"},
        {"name": "target", "type": ["null", "int"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        *({"name": name, "type": "double"} for name in _NUMBERS),
        *({"name": name, "type": ["null", "string"]} for name in _TEXTS),
    ],
}
RESULTS = Path(__file__).parent / "results" / "scripts" / "formats.csv"
#: Every `BAD`th value is malformed, in both formats.
BAD = 1000


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--runs", type=int, default=5)
    given = parser.parse_args()
    with served() as registry, tempfile.TemporaryDirectory() as directory:
        spark = session()
        first = registry.register("trips-value", {**SCHEMA, "fields": SCHEMA["fields"][:-1]})
        newest = registry.register("trips-value", SCHEMA)
        write(spark, directory, given.rows, first, newest)
        forms = {"json": Json(), "avro": Avro(avro_schema.normal(json.dumps(SCHEMA)), registry.url, "trips-value")}
        same(spark, directory, forms)
        used: dict[str, list[float]] = {name: [] for name in forms}
        for run in range(given.runs + 1):
            for name in (*forms, *reversed(forms))[:: 1 if run % 2 else -1][:2]:
                cpu_s = measured(spark, directory, name, forms[name])
                if run:  # the first one compiles
                    used[name].append(cpu_s / given.rows * 1e6)
        table = Table(RESULTS, ["run", *(f"{name}_us_per_row" for name in used)])
        for n, taken in enumerate(zip(*used.values(), strict=True), 1):
            table.add({"run": n, **{f"{name}_us_per_row": each for name, each in zip(used, taken, strict=True)}})
        told = {name: statistics.median(each) for name, each in used.items()}
        print({name: [round(each, 2) for each in runs] for name, runs in used.items()})
        print(f"us of CPU per row: {told}; Avro uses {told['avro'] / told['json']:.2f} times as much as JSON")
        spark.stop()


def session() -> SparkSession:
    """Return a session with Spark's Avro package, with one core."""
    import findspark

    findspark.init()
    jars = package_jars([PACKAGE], Path(findspark.find()))
    made = SparkSession.builder.master("local[1]").config("spark.jars", ",".join(map(str, jars)))
    found: SparkSession = made.config("spark.ui.enabled", "false").config("spark.log.level", "ERROR").getOrCreate()
    return found


def write(spark: SparkSession, directory: str | Path, rows: int, first: int, newest: int) -> None:
    """Write the values of both topics; every other Avro value is of the first schema."""
    numbers = [f"id % {100 + n} / 7.0D AS {name}" for n, name in enumerate(_NUMBERS)]
    texts = [f"'{name} of a trip' AS {name}" for name in _TEXTS]
    zones = [f"CAST(id % 263 AS INT) AS {name}" for name in ("zone", "target")]
    at = "timestamp_micros(1764201600000000 + id) AS at"
    trips = spark.range(0, rows, 1, 1).selectExpr("id", *zones, at, *numbers, *texts)
    bad = f"id % {BAD} = 0"
    if_new, if_old = (f"'{json.dumps(each)}'" for each in (SCHEMA, {**SCHEMA, "fields": SCHEMA["fields"][:-1]}))
    names = [field["name"] for field in SCHEMA["fields"]]
    new, old = (f"struct({', '.join(some)})" for some in (names, names[:-1]))
    avro = (
        f"CASE WHEN {bad} THEN X'00{newest:08x}ff' WHEN id % 2 = 0 THEN concat(X'00{newest:08x}', to_avro({new}, "
        f"{if_new})) ELSE concat(X'00{first:08x}', to_avro({old}, {if_old})) END"
    )
    as_json = f"CASE WHEN {bad} THEN '{{' WHEN id % 2 = 0 THEN to_json({new}) ELSE to_json({old}) END"
    for name, value in (("avro", avro), ("json", f"CAST({as_json} AS BINARY)")):
        trips.selectExpr(f"{value} AS value", "1.0D / (1 + id % 2) AS _weight").write.parquet(f"{directory}/{name}")


def rows_of(spark: SparkSession, directory: str | Path, name: str, form: Format, malformed: Any = "keep") -> DataFrame:
    """Return the rows of a topic, as a query over two columns reads them."""
    struct = spark.range(0).select(F.from_json(F.lit("{}"), ddl()).alias("row")).schema["row"].dataType
    read = ["zone", "fare", MALFORMED]
    records = spark.read.parquet(f"{directory}/{name}")
    return parsed_input(records, struct, malformed, "malformed.0.trips", read=read, checked=struct, form=form)  # type: ignore[arg-type]


def ddl() -> str:
    """Return the columns."""
    return avro_schema.ddl(json.dumps(SCHEMA))


def same(spark: SparkSession, directory: str | Path, forms: dict[str, Format]) -> None:
    """Raise AssertionError unless rows, weights and malformed values of both are the same."""
    found = {}
    for name, form in forms.items():
        rows = rows_of(spark, directory, name, form)
        sums = rows.agg(F.count("*"), F.count("zone"), F.sum("fare"), F.sum("_weight"), F.sum("zone"))
        found[name] = [round(each, 3) for each in sums.first()]  # type: ignore[union-attr]
    assert found["json"] == found["avro"], found
    print(f"rows, rows with values, sums of fare, weight and zone: {found['avro']} in both")


def measured(spark: SparkSession, directory: str | Path, name: str, form: Format) -> float:
    """Return seconds of CPU that the JVM uses for one pass."""
    rows = rows_of(spark, directory, name, form, "drop").groupBy("zone").agg(F.sum(F.col("fare") * F.col("_weight")))
    before = used_s()
    rows.write.format("noop").mode("overwrite").save()
    return used_s() - before


def used_s() -> float:
    """Return seconds of CPU that the processes below this one have used."""
    times = [process.cpu_times() for process in psutil.Process().children(recursive=True)]
    return sum(each.user + each.system for each in times)


if __name__ == "__main__":
    main()
