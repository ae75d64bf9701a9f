"""Streams that are shed by a key: its rows are kept or dropped together, in every topic, and on the way on."""

from __future__ import annotations

from collections import Counter

import pytest
from pyspark.sql import functions as F

from qod_magics import estimate as est
from qod_magics.application.sql.estimates import estimated
from qod_magics.errors import ApplicationError, UsageProblem
from qod_magics.estimate.groups import recipe_over
from qod_magics.session.session import Session
from qod_magics.spark.plans import shedder
from tests.live.applications import all_read, cell, count, rows, turn
from tests.live.conftest import eventually, new_topic, produce
from tests.raising import breaks
from tests.texts import tells

USERS, EACH = 400, 3  # users, and rows of each in either topic


@pytest.mark.smoke
def test_pairs_of_a_key_are_whole_and_weigh_what_one_row_does(brief: Session) -> None:
    """Both topics name the user differently, and are shed to different accuracies: the users of the lower one are kept.

    By rows, of 3 x 3 pairs of a user hardly one in five would be kept, and of nearly every user.
    """
    clicks, orders = new_topic(brief), new_topic(brief)
    turn(brief, {(None, "clicks"): 0.6, (None, "orders"): 0.3})
    read = "--starting earliest --no-fuse --shed-by"
    cell(brief, f"clicks --topic {clicks} --schema 'user LONG, page LONG' {read} user")
    cell(brief, f"orders --topic {orders} --schema 'buyer STRING, item LONG' {read} buyer")
    said = cell(
        brief,
        "pairs -p 1 -a 0.1",
        "clicks.join(orders, F.expr('user = CAST(buyer AS LONG)'))"
        ".select('user', 'page', 'item', clicks._weight, orders._weight)",
    ).said
    assert "not by that key" in said  # of a cast Spark's plan doesn't tell
    said = cell(
        brief,
        "pairs -p 1 -a 0.1",
        "clicks.withColumn('user', F.col('user').cast('string'))"
        ".join(orders, F.expr('user = buyer')).select('user', 'page', 'item', clicks._weight, orders._weight)",
    ).said
    assert "_weight" not in said
    produce(brief, clicks, ({"user": i % USERS, "page": i // USERS} for i in range(USERS * EACH)))
    produce(brief, orders, ({"buyer": str(i % USERS), "item": i // USERS} for i in range(USERS * EACH)))
    for side in ("clicks", "orders"):
        eventually(lambda s=side: all_read(brief, s, USERS * EACH), what=f"all rows in {side}")  # type: ignore[misc]
        sent = count(brief, side).processed
        eventually(lambda s=side, n=sent: all_read(brief, f"{s}>pairs", n), what=f"all of {side}")  # type: ignore[misc]
    found = rows(brief, "pairs")
    of_users = Counter(row["user"] for row in found)
    assert set(of_users.values()) == {EACH * EACH}
    assert 0.2 * USERS < len(of_users) < 0.4 * USERS
    assert {round(row["_weight"], 6) for row in found} == {round(1 / 0.3, 6)}
    assert count(brief, "orders").processed == EACH * len(of_users)
    assert 0.5 * USERS < count(brief, "clicks").processed / EACH < 0.7 * USERS


@pytest.mark.parametrize(
    ("on", "known"),
    [("o.user = p.buyer", True), ("p.buyer = o.user AND o.page < p.item", True), ("page = item", False)],
)
def test_a_join_in_sql_is_one_by_key_as_in_python(brief: Session, on: str, known: bool) -> None:
    cell(brief, f"clicks --topic {new_topic(brief)} --shed-by user --schema 'user LONG, page LONG'")
    cell(brief, f"orders --topic {new_topic(brief)} --shed-by buyer --schema 'buyer LONG, item LONG'")
    sql = f"SELECT o.user, o._weight, p._weight FROM clicks o JOIN orders p ON {on}"
    said = cell(brief, "pairs -p 1 -a 0.1 --sql --dry-run", sql).said
    assert ("_weight is null" in said) is not known
    assert ("not by that key" in said) is not known
    brief.stop_all()


def test_a_stream_is_shed_further_by_the_same_key(brief: Session) -> None:
    """At the source, and where it is sent on: users of a lower accuracy are among those of a higher one."""
    topic, n = new_topic(brief), USERS * EACH
    turn(brief, {(None, "clicks"): 0.8, ("clicks", "some"): 0.25, ("clicks", "most"): 0.75})
    cell(brief, f"clicks --topic {topic} --schema 'user LONG, page LONG' --starting earliest --no-fuse --shed-by user")
    for name in ("some", "most"):
        cell(brief, f"{name} -p 1 -a 0.1", "clicks.select('user', '_weight')")
    produce(brief, topic, ({"user": i % USERS, "page": i // USERS} for i in range(n)))
    eventually(lambda: all_read(brief, "clicks", n), what="all rows")
    found = {}
    for name, dial in (("some", 0.25), ("most", 0.75)):
        eventually(lambda r=name: len(rows(brief, r)) == count(brief, f"clicks>{r}").processed > 0, what=name)  # type: ignore[misc]
        users = Counter(row["user"] for row in rows(brief, name))
        assert set(users.values()) == {EACH}
        assert {round(row["_weight"], 6) for row in rows(brief, name)} == {round(1 / (0.8 * dial), 6)}
        assert 0.8 * dial * USERS == pytest.approx(len(users), abs=5 * (USERS * 0.25) ** 0.5)
        found[name] = set(users)
    assert found["some"] < found["most"]


def test_estimates_of_a_stream_shed_by_key_rest_on_its_keys(cluster: Session) -> None:
    """Figures of the formulas, in Python and SQL: 600 users of one to five rows each, of which a third are kept.

    Pairs of rows of a user tell no more than one of them: the interval is wider than by rows.
    """
    spark = next(iter(cluster.runtime.task_managers.values())).spark
    every = spark.range(3000).selectExpr("id % 600 AS user", "2.5D + id % 7 AS fare").where("fare - 2 > user % 5")
    hashed = shedder.key_hash(shedder.key_text(F.col("user")))
    kept = every.where(hashed < 0.33).withColumn("_weight", F.lit(1 / 0.33))
    count, total, users = every.count(), every.agg(F.sum("fare")).first()[0], kept.select("user").distinct().count()  # type: ignore[index]
    by_row = kept.agg(est.count(), est.sum("fare")).first()
    with recipe_over([("user",)]):
        by_key = kept.agg(est.count(), est.sum("fare"), est.avg("fare"), est.quantile("fare", 0.5)).first()
        kept.createOrReplaceTempView("kept_by_key")
        sql = spark.sql(estimated("SELECT est_count(*) AS count, est_sum(fare) AS sum FROM kept_by_key")).first()
        fares = kept.agg(est.count_distinct("user"), est.count_distinct("fare", "user").alias("with_fares")).first()
        text = "SELECT est_count_distinct(user) AS a, est_count_distinct(fare, k.user) AS b FROM kept_by_key k"
        assert [*spark.sql(estimated(text)).first()] == [*fares]  # type: ignore[misc]
    assert by_row is not None
    assert by_key is not None
    assert sql is not None
    spark.catalog.dropTempView("kept_by_key")
    for name, true in (("count", count), ("sum", total)):
        low, high = by_key[name]["low"], by_key[name]["high"]
        assert [*sql[name]] == pytest.approx([*by_key[name]])
        assert by_key[name]["value"] == by_row[name]["value"]
        assert abs(by_key[name]["value"] - true) < 2.5 * (high - low) / 2  # five standard errors
        assert high - low > 1.3 * (by_row[name]["high"] - by_row[name]["low"])
        assert (high - low) / 2 < 6 * true / users**0.5
    assert fares is not None
    for name, true in (("count_distinct", 600), ("with_fares", every.distinct().count())):
        low, high = fares[name]["low"], fares[name]["high"]
        assert low < fares[name]["value"] < high
        assert abs(fares[name]["value"] - true) < 2.5 * (high - low) / 2  # five standard errors
        assert (high - low) / 2 < 0.2 * true
    assert by_key["avg"]["low"] < by_key["avg"]["value"] < by_key["avg"]["high"]
    with recipe_over([()]), pytest.raises(UsageProblem, check=breaks("keeps the key")):
        est.sum("fare")


def test_users_are_counted_where_their_topic_is_shed_by_them(brief: Session) -> None:
    """In Python and SQL, while the shedder is turned down between two halves: users of the second half alone are kept
    at 0.3, others at 0.6. Not shed by the user, the topic's queries have no figure, and say what helps."""
    topic, n = new_topic(brief), 1000
    read = f"clicks --topic {topic} --schema 'user LONG, page LONG' --starting earliest --no-fuse"
    python = (
        "from qod_magics import estimate as est\nclicks.groupBy('page').agg(est.count_distinct('user').alias('users'))"
    )
    sql = "SELECT page, est_count_distinct(user) AS users FROM clicks GROUP BY page"
    cell(brief, read)
    for body, options in ((python, ""), (sql, "--sql")):
        said = cell(brief, f"q -p 1 -a 0.1 --from clicks --dry-run {options}", body).said
        assert tells(said, "users", "not estimable", "--min-accuracy 1", "--shed-by")
    brief.stop_all()
    turn(brief, {(None, "clicks"): 0.6})
    cell(brief, f"{read} --shed-by user")
    for name, body, options in (("users", python, ""), ("by_sql", sql, "--sql")):
        said = cell(brief, f"{name} -p 1 -a 0.1 --mode microbatch --from clicks {options}", body).said
        assert tells(said, name, "page exact", "users estimated")
    for half, p in ((range(n), 0.6), (range(n // 2, n + n // 2), 0.3)):
        turn(brief, {(None, "clicks"): p})
        produce(brief, topic, ({"user": user, "page": user % 2} for user in half))
        sent = half.stop if p > 0.5 else 2 * n
        eventually(lambda m=sent: all_read(brief, "clicks", m), what="all rows")  # type: ignore[misc]
        through = count(brief, "clicks").processed
        for name in ("users", "by_sql"):  # rows of the first half that waited longer would be thinned, too
            eventually(lambda q=name, m=through: all_read(brief, f"clicks>{q}", m), what=f"all of {name}")  # type: ignore[misc]
    assert 0.35 * 2 * n < through < 0.55 * 2 * n
    found = {row["page"]: row["users"] for row in rows(brief, "users")}
    assert {row["page"]: row["users"] for row in rows(brief, "by_sql")} == found
    for page in (0, 1):
        value, low, high = (found[page][part] for part in ("value", "low", "high"))
        assert low < value < high
        assert abs(value - 0.75 * n) < 2.5 * (high - low) / 2 < 0.3 * n  # five standard errors


def test_what_waits_is_thinned_to_the_keys_of_the_lower_accuracy(cluster: Session) -> None:
    """Rows sent at 0.6 and read at 0.3. Those without a key, and of unknown weight, are thinned one by one."""
    spark = next(iter(cluster.runtime.task_managers.values())).spark
    key = shedder.key_text(F.col("key"))
    weight = F.expr("CASE WHEN part = 2 THEN -1D / 0.6D ELSE 1D / 0.6D END")
    every = spark.range(9000).selectExpr(
        "CAST(id AS STRING) AS value", "'t' AS topic", "0 AS partition", "id AS offset", "CAST(id % 3 AS INT) AS part",
        "CASE WHEN id % 3 = 1 THEN NULL ELSE CAST(CAST(id % 1000 AS STRING) AS BINARY) END AS key",
    )  # fmt: skip
    sent = every.where((F.col("part") != 0) | (shedder.key_hash(key) < 0.6))
    sent = sent.withColumn("headers", shedder.stream_headers(weight))
    kept = shedder.shed_arrivals(sent, "0.3D", "shed.t", key).withColumn("hash", shedder.key_hash(key)).toPandas()
    by_key, alone, unknown = (kept[kept.part == part] for part in range(3))
    hashes = every.where("part = 0").select(shedder.key_hash(key).alias("hash")).toPandas()["hash"]
    assert by_key.hash.max() < 0.3
    assert len(by_key) == (hashes < 0.3).sum()  # all of them, not a part
    assert set(by_key._weight.round(6)) == set(alone._weight.round(6)) == {round(1 / 0.3, 6)}
    groups = sent.where("part = 0").drop("headers").withColumn("headers", shedder.stream_headers(F.lit(1.0)))
    again = shedder.shed_arrivals(groups, "0.3D", "shed.t", key, sampled_sql="0.6D")
    hashed = {row.hash for row in again.select(shedder.key_hash(key).alias("hash")).collect()}
    assert hashed == set(by_key.hash)  # groups of rows kept at 0.6, each of weight 1: half of the keys, the same ones
    for part in (alone, unknown):
        assert len(part) == pytest.approx(1500, abs=150)  # half of 3,000: five standard errors
    assert unknown._weight.isna().all()
    assert unknown.hash.max() > 0.6


def test_the_column_that_would_help_is_named_and_one_that_is_not_there_refused(brief: Session) -> None:
    read = f"clicks --topic {new_topic(brief)} --schema 'user LONG, page LONG'"
    said = cell(brief, f"{read} -p 1 -a 0.1 --dry-run", "source.dropDuplicates(['user'])").said
    assert "--shed-by user" in said
    said = cell(brief, f"{read} --shed-by user -p 1 -a 0.1 --dry-run", "source.dropDuplicates(['user'])").said
    assert "keys" in said
    with pytest.raises(ApplicationError, match=r"^--shed-by usr.*'user'"):
        cell(brief, f"{read} --shed-by usr")
    brief.stop_all()


def test_the_key_is_chosen_by_what_queries_ask_for(brief: Session) -> None:
    """Both sides of a join are shed by what it equates, one of them while it runs: its rows are read on from where it
    was, each once. A query that needs another key puts an end to it."""
    clicks, orders = new_topic(brief), new_topic(brief)
    turn(brief, {(None, "clicks"): 0.6, (None, "orders"): 0.3})
    read = "--starting earliest --no-fuse --shed-by auto"
    said = cell(brief, f"clicks --topic {clicks} --schema 'user LONG, page LONG' {read}").said
    assert tells(said, "clicks", "row by row")
    cell(brief, f"orders --topic {orders} --schema 'buyer LONG, item LONG' {read}")
    cell(brief, "every -p 1 -a 0.1 --from clicks")
    produce(brief, clicks, ({"user": USERS + i % USERS, "page": i // USERS} for i in range(USERS * EACH)))
    eventually(lambda: all_read(brief, "clicks", USERS * EACH), what="all rows")
    before = count(brief, "clicks").processed
    join = "clicks.join(orders, F.expr('user = buyer')).select('user', 'page', 'item', clicks._weight, orders._weight)"
    said = cell(brief, "pairs -p 1 -a 0.1", join).said
    assert tells(said, "clicks", "user", "pairs")
    assert "without state" not in said, "every query goes on from its checkpoint"
    assert tells(said, "orders", "buyer", "pairs")
    assert "keys" in said
    produce(brief, clicks, ({"user": i % USERS, "page": i // USERS} for i in range(USERS * EACH)))
    produce(brief, orders, ({"buyer": i % USERS, "item": i // USERS} for i in range(USERS * EACH)))
    for side, n, already in (("clicks", 2 * USERS * EACH, before), ("orders", USERS * EACH, 0)):
        eventually(lambda s=side, m=n: all_read(brief, s, m), what=f"all rows in {side}")  # type: ignore[misc]
        sent = count(brief, side).processed - already
        eventually(lambda s=side, m=sent: all_read(brief, f"{s}>pairs", m), what=f"all of {side}")  # type: ignore[misc]
    eventually(lambda: len(rows(brief, "every")) == count(brief, "clicks").processed, what="every row")
    by_row, by_key = (
        Counter(row["user"] for row in rows(brief, "every") if (row["user"] < USERS) is new) for new in (False, True)
    )
    assert {1, 2, 3} == set(by_row.values()), "one by one, before"
    assert set(by_key.values()) == {EACH}, "and by user from then on"
    of_users = Counter(row["user"] for row in rows(brief, "pairs"))
    assert set(of_users.values()) == {EACH * EACH}
    assert 0.2 * USERS < len(of_users) < 0.4 * USERS
    said = cell(brief, "pages -p 1 -a 0.1 --dry-run", "clicks.select('page').dropDuplicates(['page'])").said
    assert tells(said, "clicks", "row by row", "pairs", "user", "pages", "page")
    assert brief.runtime.deployment.specs["clicks"].topics["clicks"].shed_by == ("user",)


def test_a_query_that_computes_its_inputs_itself_asks_for_a_key_too(brief: Session) -> None:
    for name, columns in (("clicks", "user LONG, page LONG"), ("orders", "buyer LONG, item LONG")):
        cell(brief, f"{name} --topic {new_topic(brief)} --schema '{columns}' --shed-by auto")
    est = "from qod_magics import estimate as est\n"
    body = f"{est}clicks.groupBy('page').agg(est.count_distinct('user').alias('users'))"
    said = cell(brief, "q -p 1 -a 0.1 --dry-run", body).said
    assert tells(said, "clicks", "user", "q")
    assert "users estimated" in said
    said = cell(brief, "q -p 1 -a 0.1 --dry-run", f"{est}clicks.groupBy('page').agg(est.count())").said
    assert "is shed" not in said
    said = cell(brief, "q -p 1 --dry-run", "clicks.dropDuplicates(['user'])").said
    assert "is shed" not in said, "it loses no row"
    weight = "(clicks._weight * orders._weight).alias('_weight')"
    joined = f"clicks.join(orders, F.expr('user = buyer')).select('user', {weight})"
    said = cell(brief, "q -p 1 -a 0.1 --dry-run", f"{est}{joined}.groupBy('user').agg(est.count())").said
    assert tells(said, "clicks", "row by row", "'q'", "interval", "key")


@pytest.mark.parametrize(
    ("body", "exact"),
    [
        ("clicks.groupBy('user').count()", True),
        ("clicks.withColumn('user', F.col('user').cast('string')).groupBy('user').count()", True),
        ("clicks.withColumn('user', F.substring('user', 1, 3)).groupBy('user').count()", False),
        ("clicks.select(F.col('page').alias('user')).groupBy('user').count()", False),
        ("clicks.unionByName(alike).groupBy('user').count()", True),
        ("clicks.unionByName(others).groupBy('user').count()", False),
        ("WITH c AS (SELECT user FROM clicks) SELECT user, count(*) AS count FROM c GROUP BY user", True),
        ("SELECT user, count(*) AS count FROM (SELECT page AS user FROM clicks) GROUP BY user", False),
    ],
)
def test_groups_are_exact_where_all_their_rows_have_the_key(brief: Session, body: str, exact: bool) -> None:
    """A key is told by the column that it comes from, in all inputs."""
    for name, key in (("clicks", "user"), ("alike", "user"), ("others", "page")):
        cell(brief, f"{name} --topic {new_topic(brief)} --schema 'user LONG, page LONG' --shed-by {key}")
    upstream = " ".join(name for name in ("clicks", "alike", "others") if name in body)
    sql = "--sql" if "SELECT" in body else ""
    said = cell(brief, f"q -p 1 -a 0.1 --from {upstream} --dry-run {sql}", body).said
    assert ("user, count exact" if exact else "user exact; count") in said
    brief.stop_all()


def test_keys_and_weights_are_what_they_are_in_capitals(brief: Session) -> None:
    cell(brief, f"clicks --topic {new_topic(brief)} --schema 'user LONG, page LONG' --shed-by user")
    said = cell(brief, "some --no-fuse --sql", "SELECT USER, PAGE, _WEIGHT FROM CLICKS").said
    said += cell(
        brief, "q --from some -p 1 -a 0.1 --dry-run --sql", "SELECT User, SUM(_Weight) AS N FROM SOME GROUP BY USER"
    ).said
    assert tells(said, "User exact", "N estimated")
    assert "keys" in said
    assert "_weight" not in said
    brief.stop_all()


@pytest.mark.parametrize(
    "body",
    [
        "clicks.withColumn('user', F.substring('user', 1, 3))",
        "clicks.select(F.col('page').alias('user'), '_weight')",
        "clicks.unionByName(others)",
    ],
)
def test_a_stream_that_only_has_a_column_of_the_name_has_no_key(brief: Session, body: str) -> None:
    est = "from qod_magics import estimate as est\n"
    for name, key in (("clicks", "user"), ("others", "page")):
        cell(brief, f"{name} --topic {new_topic(brief)} --schema 'user LONG, page LONG' --shed-by {key}")
    cell(brief, "made", body)
    with pytest.raises(ApplicationError, match="interval"):
        cell(brief, "q -p 1 -a 0.1 --dry-run", f"{est}made.agg(est.count_distinct('user'))")
    brief.stop_all()
