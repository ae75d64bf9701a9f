"""Queries 3, 5, 7, 8 and 20 of the Nexmark benchmark in their streaming forms, and persons, auctions and bids for them.

Each query is a function of DataFrames, named as its cell's inputs: the same function gives the truth over static rows.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

SCHEMAS = {
    "persons": "person LONG, name STRING, city STRING, state STRING, joined TIMESTAMP",
    "auctions": "auction LONG, seller LONG, category LONG, opened TIMESTAMP",
    "bids": "lot LONG, bidder LONG, price LONG, at TIMESTAMP",
}
#: Numbers of persons and auctions, and how many seconds all events are spread over.
PERSONS, AUCTIONS, SPAN_S = 60, 150, 60
BEGIN = datetime(2026, 5, 4, 10, tzinfo=UTC)
#: An event this much later than the others ends their windows, but not its own.
LATE = timedelta(hours=1)

Row = dict[str, Any]


def events(bids: int, seed: int = 1) -> dict[str, list[Row]]:
    """By topic, in the order of event time. Few auctions get most of the bids."""
    dice = random.Random(seed)

    def times(count: int) -> list[str]:
        offsets = sorted(dice.random() * SPAN_S for _ in range(count))
        return [written(BEGIN + timedelta(seconds=round(offset, 3))) for offset in offsets]

    states = ["OR", "ID", "CA", "NY", "WA"]
    return {
        "persons": [
            {"person": i, "name": f"P{i}", "city": f"C{i % 7}", "state": dice.choice(states), "joined": at}
            for i, at in enumerate(times(PERSONS))
        ],
        "auctions": [
            {"auction": i, "seller": dice.randrange(PERSONS), "category": 10 + dice.randrange(3), "opened": at}
            for i, at in enumerate(times(AUCTIONS))
        ],
        "bids": [
            {"lot": int(AUCTIONS * dice.random() ** 3), "bidder": dice.randrange(PERSONS), "at": at}
            | {"price": dice.randrange(100, 100_000)}
            for at in times(bids)
        ],
    }


def last() -> dict[str, Row]:
    """By topic: an event that is late enough to end all windows, and pairs with no other."""
    at = written(BEGIN + LATE)
    return {
        "persons": {"person": -1, "name": "", "city": "", "state": "", "joined": at},
        "auctions": {"auction": -2, "seller": -2, "category": 0, "opened": at},
        "bids": {"lot": -3, "bidder": -3, "price": 0, "at": at},
    }


def written(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def q3(auctions: DataFrame, persons: DataFrame) -> DataFrame:
    """Local items: who sells in category 10 in three states."""
    sellers = persons.where("state IN ('OR', 'ID', 'CA')")
    return auctions.where("category = 10").join(sellers, F.expr("seller = person")).select("name", "city", "auction")


def counts(bids: DataFrame) -> DataFrame:
    """Bids of each auction in sliding windows."""
    timed = bids.withWatermark("at", "2 minutes")
    return timed.groupBy(F.window("at", "10 seconds", "5 seconds"), "lot").agg(F.count("*").alias("n"))


def q5(bids: DataFrame) -> DataFrame:
    """Hot items: the auctions with the most bids of a window."""
    most = counts(bids).groupBy("window").agg(F.max("n").alias("most")).withColumnRenamed("window", "of")
    return counts(bids).join(most, F.expr("window = of AND n = most")).select("window", "lot", "n")


def q7(bids: DataFrame) -> DataFrame:
    """The highest bids of a window."""
    timed = bids.withWatermark("at", "2 minutes")
    top = timed.groupBy(F.window("at", "10 seconds")).agg(F.max("price").alias("top"))
    in_window = F.expr("price = top AND at >= window.start AND at < window.end")
    return timed.join(top, in_window).select("window", "lot", "price", "bidder")


def q8(auctions: DataFrame, persons: DataFrame) -> DataFrame:
    """New users: who opened an auction in the window in which he joined."""
    joined = persons.withWatermark("joined", "2 minutes").groupBy(F.window("joined", "10 seconds"), "person", "name")
    opened = auctions.withWatermark("opened", "2 minutes").groupBy(
        F.window("opened", "10 seconds").alias("w"), "seller"
    )
    both = F.expr("person = seller AND window = w")
    return joined.count().drop("count").join(opened.agg(F.count("*").alias("n")), both).select("window", "person", "n")


def q20(bids: DataFrame, auctions: DataFrame) -> DataFrame:
    """Bids with their auctions, of category 10."""
    of_ten = auctions.where("category = 10")
    return bids.join(of_ten, F.expr("lot = auction")).select("lot", "bidder", "price", "seller")


QUERIES: Mapping[str, Callable[..., DataFrame]] = {"q3": q3, "q5": q5, "q7": q7, "q8": q8, "q20": q20}
