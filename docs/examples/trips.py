"""The README's example as a plain script: it sends itself some trips, and prints estimates.

python docs/examples/trips.py [SECONDS]
"""

import asyncio
import sys
from datetime import UTC, datetime

from qod_magics import QueryError, Session

PER_ZONE = """
SELECT window(at, '10 seconds') AS w, zone, sum(_weight) AS trips FROM trips GROUP BY 1, 2
"""


async def main(seconds: float) -> None:
    """Run both queries for some seconds."""
    with Session.up(task_managers=1, say=print) as qod:
        qod.topic("trips", 2)
        qod.stream(
            "trips",
            lambda source: source.where("distance > 0"),
            topic="trips",
            schema="zone INT, distance DOUBLE, at TIMESTAMP",
        )
        qod.stream("per_zone", PER_ZONE, from_="trips", priority=2, min_accuracy=0.4, sink="memory")
        qod.on_event(print)  # or a URL, to which alarms are posted
        now = datetime.now(UTC).isoformat()
        qod.send("trips", [{"zone": i % 4, "distance": 1.5, "at": now} for i in range(1000)])
        await qod.run(seconds)  # without seconds: until it is cancelled
        qod.results("per_zone").show(truncate=False)
        print(qod.status())


if __name__ == "__main__":
    try:
        asyncio.run(main(float(sys.argv[1]) if len(sys.argv) > 1 else 60.0))
    except QueryError as error:
        sys.exit(f"{error.name}: {error.value}")
