"""The timed Taxi Drives in Flink SQL. Pure.

A Java function replaces our array functions with lambdas, which Flink SQL lacks: the same great-circle arithmetic over
the same stands. (A LEAST over the distances to all stands would be SQL, but takes the planner minutes.) No value sent
is null, and the table says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.evaluation.applications import COLUMNS, TIMED, TOPICS, stands
from qod_magics.data import trip_schema

FUNCTION = "NearestStand"  #: class in Java
GROUP = "evaluation"
#: Ages are in ms, which Flink's TIMESTAMPDIFF lacks: whole seconds from a fixed instant, plus the rest.
_FIXED = "TO_TIMESTAMP_LTZ(0, 3)"
_START = "TIMESTAMPDIFF(SECOND, TIMESTAMP '1970-01-01 00:00:00', window_start)"


def function_source() -> str:
    """Java: km from a place (longitude, latitude) to the nearest stand."""
    longitudes, latitudes = (
        ", ".join(f"{getattr(s, axis):.4f}" for s in stands()) for axis in ("longitude", "latitude")
    )
    return f"""
public class {FUNCTION} extends org.apache.flink.table.functions.ScalarFunction {{
    private static final double[] X = {{ {longitudes} }};
    private static final double[] Y = {{ {latitudes} }};

    public double eval(double x, double y) {{
        double least = Double.MAX_VALUE;
        for (int i = 0; i < X.length; i++) {{
            double km = 12742 * Math.asin(Math.sqrt(
                Math.pow(Math.sin(Math.toRadians(Y[i] - y) / 2), 2)
                + Math.cos(Math.toRadians(y)) * Math.cos(Math.toRadians(Y[i]))
                * Math.pow(Math.sin(Math.toRadians(X[i] - x) / 2), 2)));
            least = Math.min(least, km);
        }}
        return least;
    }}
}}
"""


#: Where the classes of Kafka's client are in Flink's connector.
SHADED = "org.apache.flink.kafka.shaded.org.apache.kafka."


def definitions(kafka_options: Mapping[str, str], results: Mapping[str, str]) -> list[str]:
    """The source over both topics, the cleaned trips, and by query a view of its work and the topic of its results.

    Args:
        kafka_options: of Kafka's Java client, each prefixed with `kafka.`, as Spark's source takes them.
        results: topic by query.

    """
    columns = ", ".join(
        f"{column.replace('TIMESTAMP', 'TIMESTAMP_LTZ(3)')} NOT NULL" for column in trip_schema(COLUMNS).split(", ")
    )
    properties = {
        name.replace("kafka.", "properties.", 1): value.replace("org.apache.kafka.", SHADED)
        for name, value in kafka_options.items()
    }
    kafka = ", ".join(
        f"'{name}' = '{value}'" for name, value in {"connector": "kafka", "format": "json", **properties}.items()
    )
    made = [
        f"CREATE TEMPORARY TABLE records ({columns}, sent TIMESTAMP_LTZ(3) NOT NULL METADATA FROM 'timestamp' VIRTUAL) "
        f"WITH ({kafka}, 'topic' = '{';'.join(TOPICS)}', 'properties.group.id' = '{GROUP}', "
        "'scan.startup.mode' = 'latest-offset', 'json.timestamp-format.standard' = 'ISO-8601', "
        "'json.ignore-parse-errors' = 'true')",
        "CREATE TEMPORARY VIEW trips AS SELECT * FROM records WHERE "
        "TIMESTAMPDIFF(SECOND, tpep_pickup_datetime, tpep_dropoff_datetime) > 0 "
        "AND trip_distance > 0 AND total_amount > 0",
    ]
    for query, topic in results.items():
        work = ", ".join(f"{FUNCTION}({end}_longitude, {end}_latitude) AS {end}_km" for end in TIMED[query])
        sums = ", ".join(f"{end}_km DOUBLE" for end in TIMED[query])
        made += [
            f"CREATE TEMPORARY VIEW worked_{query} AS "
            f"SELECT {work}, {_age_ms()} AS age_ms, PROCTIME() AS counted FROM trips",
            f"CREATE TEMPORARY TABLE told_{query} (`start` INT, `rows` BIGINT, end_to_end ARRAY<DOUBLE>, {sums}) "
            f"WITH ({kafka}, 'topic' = '{topic}', 'sink.delivery-guarantee' = 'at-least-once')",
        ]
    return made


def inserts(queries: Sequence[str]) -> list[str]:
    """Ages of rows after a query's work, by windows of ten seconds of processing time."""
    return [
        f"INSERT INTO told_{query} SELECT {_START}, COUNT(*), PERCENTILE(age_ms, ARRAY[0.5, 0.95, 0.99]), "
        + ", ".join(f"SUM({end}_km)" for end in TIMED[query])
        + f" FROM TABLE(TUMBLE(TABLE worked_{query}, DESCRIPTOR(counted), INTERVAL '10' SECOND)) "
        "GROUP BY window_start, window_end"
        for query in queries
    ]


def _age_ms() -> str:
    now, sent = (
        f"(TIMESTAMPDIFF(SECOND, {_FIXED}, {instant}) * 1000 + EXTRACT(MILLISECOND FROM {instant}))"
        for instant in ("CURRENT_ROW_TIMESTAMP()", "sent")
    )
    return f"{now} - {sent}"
