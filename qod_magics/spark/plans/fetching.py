"""How much a Kafka consumer of Spark's fetches and hands over at a time.

After each poll Spark asks the broker for the first and the last offset of the partition, and waits for both answers. A
poll hands over 500 records by default, so that a consumer which drops most of its records spends as long on these
requests as on the records.
"""

from __future__ import annotations

from collections.abc import Mapping

_MIB = 1 << 20
#: Upper bound of the records that a poll hands over.
POLLED = 5_000
#: Upper bound of what a fetch brings of one partition, bytes; at least Kafka's default, and less where an instance
#: reads many partitions, since each holds what it has fetched.
FETCHED, LEAST_FETCHED, FETCHED_BY_ALL = 8 * _MIB, _MIB, 64 * _MIB


def fetch_options(partitions: int) -> Mapping[str, str]:
    """Options of Spark's Kafka source for an instance that reads this many partitions of a topic."""
    fetched = min(max(FETCHED_BY_ALL // max(partitions, 1), LEAST_FETCHED), FETCHED)
    return {"kafka.max.poll.records": str(POLLED), "kafka.max.partition.fetch.bytes": str(fetched)}
