"""Drop rows as part of a query's plan: Poisson sampling with a probability that each row's weight records.

Internal columns, which never reach a recipe: `_u`, the row's random number; `_p` and `_d0`, `_d1`, ..., the keep
probabilities as this row read them; `_l0`, ..., what is lent of the rows of its key; `_sent`, its weight on arrival or
its outlet; `_t`, of `timing`; `_malformed`, of `parsing`; `_file`, `_n` and `_at`, of `sources.files`. `_weight` = 1 /
(probability with which the row was kept so far) is for the user; null where a recipe lost it.

Reading a dial by reflection for each row is expensive (most of a microsecond where only C1 compiles), and so is copying
a row between operators. Each shedder therefore reads its dial once, in one projection of only the columns needed after
it, and both its counts are taken there. Where the task manager has our Kafka source, its reader sheds the source.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from qod_magics.application.weights import WEIGHT
from qod_magics.sources.source import Identity
from qod_magics.spark.plans.timing import TIMED, Timing

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

#: What tells records of a topic apart.
RECORDS = Identity()
#: Uniform in [0, 1) with a resolution of 2^-20, the same for the same record after any replay.
RECORD_HASH = "((xxhash64(topic, partition, offset) & 1048575) * 9.5367431640625E-7D)"
#: The same of rows that other columns tell apart.
ROW_HASH = RECORD_HASH.replace("topic, partition, offset", "{}")
#: Uniform in [0, 1) with a resolution of 2^-53, drawn for each row: a task never has two in one nanosecond. `rand()`
#: would repeat one sequence in every batch or, with a new seed for each, be recompiled for each.
_DRAW = "(shiftrightunsigned(xxhash64(reflect('java.lang.System', 'nanoTime')), 11) * 1.1102230246251565E-16D)"
#: Types that have no hash.
_UNHASHED = re.compile(r"\bmap<|\bvariant\b")
#: Guards 1/d where d = 0: no row passes there, but a projection may be evaluated before the filter.
SMALLEST = 1e-9
#: Names of the shedders' internal columns; in Spark, column names are case-insensitive.
_OWN = re.compile(r"_(u|p|t|n|at|file|sent|malformed|d\d+|l\d+|r\d+)", re.IGNORECASE)


def key_text(*columns: Column) -> Column:
    """Return the key of these columns as text, the same wherever it is read; null if one of them is null."""
    texts = [column.cast("string") for column in columns]
    if len(texts) == 1:
        return texts[0]
    return F.concat(texts[0], *(part for text in texts[1:] for part in (F.lit("\x1f"), text)))


def key_hash(key: Column) -> Column:
    """Return a number that is uniform in [0, 1) with a resolution of 2^-20, from a key as text."""
    return F.xxhash64(key).bitwiseAND(F.lit((1 << 20) - 1)) * F.lit(2.0**-20)


def chance_of(rows: DataFrame, reflects: bool) -> Column:
    """Return a random number for each row, uniform in [0, 1) with a resolution of 2^-53.

    Where SQL may not call methods of Java, it is a hash of the row and of `rand()`, which is the same sequence in every
    batch: only equal rows at the same place of their batches get the same number.
    """
    if reflects:
        return F.expr(_DRAW)
    hashed = [field.name for field in rows.schema.fields if not _UNHASHED.search(field.dataType.simpleString())]
    columns = (F.col("`{}`".format(name.replace("`", "``"))) for name in hashed)
    return F.shiftrightunsigned(F.xxhash64(F.rand(), *columns), 11) * F.lit(2.0**-53)


def shed_source(
    records: DataFrame,
    keep_sql: str,
    counted_as: str,
    replayable: bool = True,
    key: Column | None = None,
    timing: Timing | None = None,
    identity: Identity = RECORDS,
    noted: Sequence[Column] = (),
    reflects: bool = True,
) -> DataFrame:
    """Keep each record with the probability read by `keep_sql`; adds `_weight`. `timing` is observed if given, and what
    is `noted` of all rows.

    `replayable` records have the columns of their `identity`: the choice is a hash of these, so that a replay keeps the
    same rows and a lower accuracy keeps a subset of a higher one's. Others are drawn at random (`chance_of`, which gets
    `reflects`). With a `key`, the choice is a hash of that, where it is not null: all records of a key are kept, or all
    are dropped.
    """
    chance = F.expr(ROW_HASH.format(identity.row)) if replayable else chance_of(records, reflects)
    if key is not None:
        chance = F.when(key.isNull(), chance).otherwise(key_hash(key))
    timed = [] if timing is None else [timing.column(number=identity.number, time=identity.time)]
    dialled = records.select("*", chance.alias("_u"), F.expr(keep_sql).alias("_p"), *timed)
    times = [] if timing is None else [timing.quantiles()]  # those dropped have waited as long as those kept
    kept = _counted(dialled, counted_as, "_u < _p", *times, *noted)
    return kept.withColumn(WEIGHT, F.expr(f"1.0D / greatest(_p, {SMALLEST}D)")).drop("_u", "_p", TIMED)


def shed_on_read(records: DataFrame, counted_as: str, timing: Timing) -> DataFrame:
    """Add `_weight` to the records that a reader which sheds (`sources.kafka.READER`) has kept, and count those that it
    has read.

    A record is kept or dropped by a hash of partition and offset, as by `shed_source`. Those dropped are never rows,
    so their times are not observed: those of the rows kept stand for them.
    """
    rows = F.expr("coalesce(sum(_records), 0L)").alias("rows")
    timed = records.select("*", timing.column("_p"))
    kept = timed.observe(counted_as, rows, count_where("_p > 0D").alias("kept"), timing.quantiles()).where("_p > 0D")
    return kept.withColumn(WEIGHT, F.expr(f"1.0D / greatest(_p, {SMALLEST}D)")).drop("_p", "_records", TIMED)


def shed_arrivals(
    records: DataFrame,
    accept_sql: str,
    counted_as: str,
    key: Column | None = None,
    timing: Timing | None = None,
    sampled_sql: str | None = None,
) -> DataFrame:
    """Thin a stream's backlog to the present accuracy; expects records with headers, adds `_weight`, null if unknown.

    A row kept so far with probability p = 1 / _weight is kept with min(1, accept / p): all rows in the steady state,
    fewer of those sent under an older plan with a higher accuracy. If the weight is unknown, p is the accuracy of the
    sender at the time of sending. Rows that were shed by their `key` so far are shed by its hash again.

    Weights of groups count from the groups on: `sampled_sql` reads the accuracy of the rows below them, and
    `accept_sql` that of the application's input, so the groups are kept with accept / sampled.

    The bytes of all values read are observed, too: an array in memory knows its length.
    """
    sent, chance = weight_from_header(), F.expr(RECORD_HASH)
    if key is not None:
        chance = F.when(key.isNull() | (sent <= 0.0), chance).otherwise(_position(key, _of_input(sent, sampled_sql)))
    if sampled_sql is not None:
        accept_sql = f"least(1.0D, {accept_sql} / greatest({sampled_sql}, {SMALLEST}D))"
    accepted = F.expr(accept_sql).alias("_p")
    keep = "_u < _p * abs(_sent)"
    # those that have waited are thinned, too
    timed, times = ([], []) if timing is None else ([timing.column()], [timing.quantiles(keep)])
    dialled = records.select("*", sent.alias("_sent"), chance.alias("_u"), accepted, *timed)
    size = F.expr("coalesce(sum(octet_length(value)), 0L)").alias("bytes")
    kept = _counted(dialled, counted_as, keep, size, *times)
    weighed = kept.withColumn(
        WEIGHT, F.expr(f"if(_sent > 0D, greatest(_sent, 1.0D / greatest(_p, {SMALLEST}D)), NULL)")
    )
    return weighed.drop("_sent", "_u", "_p", TIMED)


def _of_input(weight: Column, sampled_sql: str | None) -> Column:
    """Return the weight of a row, of the application's input; that of groups counts from these on."""
    return weight if sampled_sql is None else weight / F.expr(f"greatest({sampled_sql}, {SMALLEST}D)")


def _position(key: Column, weight: Column) -> Column:
    """Return where the hash of a key is between 0 and 1 / weight, below which all kept ones are, as a fraction: uniform
    in [0, 1), also if the key is not the one by which the row was kept."""
    return F.pmod(key_hash(key) * weight, F.lit(1.0))


def taken_name(columns: Iterable[str]) -> str | None:
    """Return the first of these columns with the name of an internal one; None if there is none."""
    return next((name for name in columns if _OWN.fullmatch(name)), None)


def _counted(rows: DataFrame, counted_as: str, keep: str, *more: Column) -> DataFrame:
    """Return the rows for which `keep` holds. All metrics are taken in front of the filter, in one pass over each
    row."""
    return rows.observe(counted_as, *shed_counts(keep), *more).where(keep)


def shed_counts(keep: str) -> list[Column]:
    """Return aggregates for `observe` in front of a shedder: rows, and rows that it keeps."""
    return [F.count(F.lit(1)).alias("rows"), count_where(keep).alias("kept")]


def count_where(condition: str) -> Column:
    """Return the number of rows for which it holds, as an aggregate. `count_if` would copy rows."""
    return F.expr(f"count(CASE WHEN {condition} THEN 1 END)")


@dataclass(frozen=True, slots=True)
class Outlet:
    """The sending end of one stream."""

    name: str  #: "from>to"
    topic: str
    partitions: int
    key: str | None  #: column whose value decides the partition; None: spread evenly
    send_sql: str  #: reads d(from, to)
    accuracy_sql: str  #: reads the sender's accuracy, for rows of unknown weight
    #: reads which share of the rows of a partition goes to which other one (`dial.lent_sql`), from the partition's
    #: number, as "{}"; None: rows of a key stay together
    lent_sql: str | None = None


def sent_counts(outlets: Sequence[Outlet]) -> list[Column]:
    """Return aggregates for `observe` on the result of `draw`: rows before the shedders, and rows sent on each
    stream."""
    counts = [F.count(F.lit(1)).alias("rows")]
    return counts + [count_where(_sent_if(i)).alias(f"sent_{i}") for i in range(len(outlets))]


def draw(
    rows: DataFrame,
    outlets: Sequence[Outlet],
    key: Column | None = None,
    sampled_sql: str | None = None,
    reflects: bool = True,
) -> DataFrame:
    """Draw one random number per row for all streams: the samples of several consumers are nested, and no sample
    repeats between batches. Rows that were shed by their `key` so far are shed by its hash again, where their weight is
    known; `sampled_sql` as in `shed_arrivals`, `reflects` as in `chance_of`."""
    dials = [F.expr(outlet.send_sql).alias(f"_d{i}") for i, outlet in enumerate(outlets)]
    chance = chance_of(rows, reflects)
    if key is not None:
        weight = F.col(WEIGHT)
        place = _position(key, _of_input(weight, sampled_sql))
        chance = F.when(key.isNull() | weight.isNull(), chance).otherwise(place)
    for i, outlet in enumerate(outlets):
        if outlet.lent_sql is not None:
            dials.append(F.expr(outlet.lent_sql.format(_home(outlet))).alias(f"_l{i}"))
    return rows.select("*", chance.alias("_u"), *dials)


#: The header with the number of the instance that has sent a record; those of the first instance, 0, have none.
SENDER = "sender"


def sent_by(headers: Iterable[tuple[str, bytes]] | None) -> int:
    """Return the number of the instance that has sent a record of a stream, from 0, given the record's headers."""
    return next((int(value) for name, value in headers or () if name == SENDER), 0)


def send(
    drawn: DataFrame, outlets: Sequence[Outlet], value: Column, key: Column | None = None, sender: int = 0
) -> DataFrame:
    """Return the Kafka records of all streams: value, topic, partition, the headers with `_weight` and the number of
    the instance, `sender`, and the `key`, if there is one."""
    also = [] if key is None else [key.alias("key")]
    records = [
        (
            F.lit(outlet.topic).alias("topic"),
            _partition(outlet, i).alias("partition"),
            _weight_sent(i, outlet).alias("weight"),
        )
        for i, outlet in enumerate(outlets)
    ]
    going = drawn.where(" OR ".join(_sent_if(i) for i in range(len(outlets))))
    if len(outlets) == 1:
        sent = going.select(value.alias("value"), *also, *records[0])
    else:
        choices = [F.when(F.expr(_sent_if(i)), F.struct(*record)).alias(f"_r{i}") for i, record in enumerate(records)]
        chosen = F.filter(F.array(*[F.col(f"_r{i}") for i in range(len(outlets))]), lambda r: r.isNotNull())
        # a separate projection: the value is serialized once, however many streams take it
        names = ["value", *(["key"] if also else [])]
        sent = going.select(value.alias("value"), *also, *choices).select(*names, F.explode(chosen).alias("_sent"))
        sent = sent.select(*names, "_sent.*")
    return sent.withColumn("headers", stream_headers(F.col("weight"), sender)).drop("weight")


def _sent_if(i: int) -> str:
    """Condition that a row from `draw` is sent on this stream."""
    return f"_u < _d{i}"


def _weight_sent(i: int, outlet: Outlet) -> Column:
    """Return the weight on this stream; where it is not known, what a row of now would have, as a negative number."""
    known = f"coalesce({WEIGHT}, -1.0D / greatest({outlet.accuracy_sql}, {SMALLEST}D))"
    return F.expr(f"{known} / greatest(_d{i}, {SMALLEST}D)")


def _partition(outlet: Outlet, i: int) -> Column:
    """Return the partition of a row: by its key, or by a hash of its random number. Of a partition that lends rows, a
    share drawn at random goes to another one."""
    if outlet.partitions == 1:
        return F.lit(0)
    home = _home(outlet)
    if outlet.lent_sql is not None:
        return F.expr(f"IF({_DRAW} < _l{i} - floor(_l{i}), CAST(floor(_l{i}) AS INT), {home})")
    return F.expr(home)


def _home(outlet: Outlet) -> str:
    """Return SQL of the partition that a row's key belongs to."""
    key = "_u" if outlet.key is None else "`{}`".format(outlet.key.replace("`", "``"))
    return f"CAST(pmod(xxhash64({key}), {outlet.partitions}) AS INT)"


def stream_headers(weight: Column, sender: int = 0) -> Column:
    """Return the headers of a record of a stream: `_weight`, negative if it is assumed, then the instance that sends
    it. A row of weight 1 that the first instance sends has none."""
    headers = [F.struct(F.lit("weight").alias("key"), weight.cast("string").cast("binary").alias("value"))]
    if not sender:
        return F.when(weight != 1.0, F.array(*headers))
    number = F.lit(str(sender)).cast("binary")
    return F.array(*headers, F.struct(F.lit(SENDER).alias("key"), number.alias("value")))


def weight_from_header() -> Column:
    """Return `_weight` of a record read from a stream; negative if it is assumed."""
    return F.expr("COALESCE(CAST(CAST(headers[0].value AS STRING) AS DOUBLE), 1.0D)")


# --- Sources of a recipe's own ----------------------------------------------------------------------------------------
# Shed what recipes read from sources of their own: `spark.readStream.format(...).load()` and the like.
#
# Spark reports sources in the order of the plan, in which a recipe need not read them: `trips.join(zones)` has `trips`
# first, whichever was read first. So what is counted of a topic has the name of the topic. Other counts have numbers,
# which only keep them apart.


_READS = frozenset({"load", "table", "json", "csv", "text", "parquet", "orc", "xml"})
#: The names of positional arguments of methods that say what is read.
_ARGUMENTS = {"format": ("source",), "option": ("key", "value"), "options": (), "load": ("path", "format")}


class SheddingSession:
    """A session that adds counts and a shedder to each streaming read, and delegates all else."""

    def __init__(
        self,
        spark: SparkSession,
        keep_sql: str,
        reflects: bool = True,
        shed: Callable[..., DataFrame] = shed_source,
    ) -> None:
        self._spark, self._shed = spark, shed
        self._keep_sql, self._reflects = keep_sql, reflects
        self._reads = 0
        self._topics: set[str] = set()  # that have been read

    @property
    def readStream(self) -> Any:
        """Return the session's stream reader, with the shedder after each read."""
        return _SheddingReader(self._spark.readStream, self, {})

    def __getattr__(self, name: str) -> Any:
        return getattr(self._spark, name)

    def shed(self, rows: DataFrame, topic: str = "") -> DataFrame:
        """Count and shed the rows of a source; `topic`: the one that it reads, "" if it is another kind of source."""
        position, self._reads = self._reads, self._reads + 1
        replayable = {"topic", "partition", "offset"} <= set(rows.columns)
        if not topic or topic.isdigit():  # which would pass for the number of a source
            counted_as = f"shed.{position}"
        elif topic not in self._topics:
            counted_as = f"shed.{topic}"
            self._topics.add(topic)
        else:  # Spark refuses two counts of one name
            counted_as = f"again.{position}.{topic}"
        return self._shed(rows, self._keep_sql, counted_as, replayable, reflects=self._reflects)


class _SheddingReader:
    def __init__(self, reader: Any, session: SheddingSession, given: dict[str, Any]) -> None:
        self._reader = reader
        self._session = session
        self._given = given  # what is to be read, of all wrappers of one reader, as Spark's reader itself keeps it

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._reader, name)
        if not callable(found):
            return found

        def call(*args: Any, **kwargs: Any) -> Any:
            result = found(*args, **kwargs)
            self._given.update(_given(name, args, kwargs))
            if name in _READS:
                return self._session.shed(result, _topic(self._given))
            return _SheddingReader(result, self._session, self._given)

        return call


def _given(method: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a call of a reader's method says of what is to be read: its options, in lower case, and the
    `format`."""
    if method not in _ARGUMENTS:
        return {}
    given = {**dict(zip(_ARGUMENTS[method], args, strict=False)), **kwargs}
    if method == "option":
        given = {given["key"]: given["value"]}
    elif method == "format":
        given = {"format": given["source"]}
    return {str(name).lower(): value for name, value in given.items() if value is not None}


def _topic(given: Mapping[str, Any]) -> str:
    """Return the topic of a Kafka source that reads one alone; "" of other sources."""
    if str(given.get("format", "")).lower() != "kafka":
        return ""
    try:
        named = list(json.loads(given["assign"])) if "assign" in given else str(given.get("subscribe", "")).split(",")
    except (TypeError, ValueError):  # Spark says so
        return ""
    topics = {str(topic).strip() for topic in named} - {""}
    return topics.pop() if len(topics) == 1 else ""
