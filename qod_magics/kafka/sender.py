"""Sending a scenario: an open-loop Kafka producer. Runs in the injector's own process.

The scenario alone determines when rows are due; they are sent then, whatever the broker or the consumers do. When the
producer's queue is full, or the process gets too little CPU, rows are late: they stay due, are counted, and are sent as
soon as there is room. No row is ever skipped, and each sent one is reported as acknowledged or failed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import IO, Any

from confluent_kafka import KafkaException, Producer

from qod_magics.data.rows import EncodedRows, load
from qod_magics.errors import KafkaError
from qod_magics.kafka.cluster import QUIET
from qod_magics.kafka.scenario import Feed, Scenario
from qod_magics.kafka.topics import said

TICK_S = 0.05  #: due rows are sent this often; at 10 ms the broker needs half as much CPU again
REPORT_S = 1.0
CHUNK_ROWS = 500
DRAIN_S = 30.0  #: timeout for late rows and acknowledgements after the end
STOP_DRAIN_S = 5.0  #: timeout for acknowledgements after a stop
LATE_S = 1.0  #: a topic further behind than this gets a note

PRODUCER_DEFAULTS: Mapping[str, Any] = {
    "acks": "all",
    "enable.idempotence": True,  # retries never duplicate a row: acknowledged rows = rows in the topic
    "linger.ms": 5,
    "batch.size": 262_144,
    "queue.buffering.max.messages": 200_000,
    "queue.buffering.max.kbytes": 262_144,
    "partitioner": "murmur2_random",  # of keys, as Java clients do
    "log.connection.close": False,
}


@dataclass(frozen=True, slots=True)
class Totals:
    """Rows of one topic since the start. At the end, `acknowledged + errors = sent`."""

    scheduled: int  #: due by now
    sent: int  #: handed to the producer
    acknowledged: int  #: confirmed by the broker
    errors: int  #: delivery failed; rows in flight when the broker died may still be in the topic

    @property
    def late(self) -> int:
        """Return rows that are due and not yet sent."""
        return self.scheduled - self.sent

    def to_json(self) -> dict[str, int]:
        """Return the counts, and `late`."""
        return {
            "scheduled": self.scheduled,
            "sent": self.sent,
            "acknowledged": self.acknowledged,
            "errors": self.errors,
            "late": self.late,
        }


class Lane:
    """The send state of one topic: its rows, and the counts so far."""

    def __init__(self, feed: Feed, rows: EncodedRows) -> None:
        self.feed = feed
        self.rows = rows
        self.scheduled = self.sent = self.acknowledged = self.errors = 0
        self.first_error: str | None = None

    def totals(self) -> Totals:
        """Return the counts so far."""
        return Totals(self.scheduled, self.sent, self.acknowledged, self.errors)

    def send(self, producer: Producer, epoch_ms: int) -> int:
        """Hand up to CHUNK_ROWS due rows to the producer; returns how many its queue took.

        Rows without a key go round robin: row n to partition n % partitions.
        """
        count = min(self.scheduled - self.sent, CHUNK_ROWS)
        feed, key, first = self.feed, self.rows.key, self.sent
        keyed = self.rows.keys is not None
        for number, value in enumerate(self.rows.values(first, count, epoch_ms), first):
            try:
                if keyed:
                    producer.produce(feed.topic, value, key(number), on_delivery=self._delivered)
                else:
                    producer.produce(feed.topic, value, None, number % feed.partitions, self._delivered)
            except BufferError:
                break
            self.sent += 1
        return self.sent - first

    def _delivered(self, error: Any, _message: Any) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self.errors += 1
            self.first_error = self.first_error or str(error)


class Record:
    """The lines of a run, JSON, one a line; each has `kind` and `at` (ISO 8601, UTC).

    start   scenario seconds per second (`speed`), `monotonic_s` of the start
    counts  once a second and topic: `position_s`, `topic`, `scheduled`, `sent`, `acknowledged`, `errors`, `late`, all
            since the start; `rate`, rows/s sent since the previous such line, unless that is too recent
    note    `text`: a message for the user
    end     `position_s`, `complete` (every due row was sent and acknowledged)
    """

    def __init__(self, file: IO[str] | None, tell: Callable[[str], None] = lambda text: None) -> None:
        self._file = file
        self._tell = tell

    def write(self, kind: str, **fields: Any) -> None:
        """Add a line."""
        if self._file is not None:
            at = datetime.now(UTC).isoformat(timespec="milliseconds")
            self._file.write(json.dumps({"kind": kind, "at": at, **fields}) + "\n")
            self._file.flush()

    def note(self, text: str) -> None:
        """Add a message for the user, and show it at once."""
        self.write("note", text=text)
        self._tell(text)


class Sender:
    """Sends a scenario once. `run` returns when it is over, or soon after `stop`.

    Args:
        scenario: what to send; its topics must exist.
        config: settings of the producer, over PRODUCER_DEFAULTS; `bootstrap.servers` is one of them.
        record: takes the lines of the run.
        speed: scenario seconds per second.

    Raises:
        ScenarioError: the data can't be made or read.
        KafkaError: the settings are refused, or (in `run`) the producer fails.

    """

    def __init__(self, scenario: Scenario, config: Mapping[str, Any], record: Record, speed: float = 1.0) -> None:
        self.lanes = [Lane(feed, rows) for feed, rows in zip(scenario.topics, _loaded(scenario), strict=True)]
        self._scenario, self._record, self._speed = scenario, record, speed
        self._stopped = False
        self._was_late: set[str] = set()
        try:
            self._producer = Producer({**PRODUCER_DEFAULTS, **config, "error_cb": self._note_error}, **QUIET)
        except KafkaException as problem:
            raise KafkaError(
                f"The producer refuses its settings: {said(problem)}. Correct the client's options"
            ) from None
        self._last_error = ""

    def stop(self) -> None:
        """Stop sending; safe in a signal handler. Rows already sent may still be acknowledged."""
        self._stopped = True

    def totals(self) -> dict[str, Totals]:
        """Return the counts by topic."""
        return {lane.feed.topic: lane.totals() for lane in self.lanes}

    def run(self) -> dict[str, Totals]:
        """Send each row when it is due; returns the final counts by topic."""
        start = time.monotonic()
        self._record.write("start", monotonic_s=start, speed=self._speed, duration_s=self._scenario.duration_s)
        reporter = _Reporter(self, start)
        broken: KafkaException | None = None
        try:
            self._send_all(start, reporter)
        except KafkaException as problem:
            self._stopped, broken = True, problem
        self._finish(reporter)
        totals = self.totals()
        complete = all(one.acknowledged == one.scheduled for one in totals.values()) and not self._stopped
        self._record.write("end", position_s=reporter.position(time.monotonic()), complete=complete)
        if broken is not None:
            raise KafkaError(f"The producer failed: {said(broken)}. Start the injector again")
        return totals

    def _send_all(self, start: float, reporter: _Reporter) -> None:
        duration_s = self._scenario.duration_s
        give_up = start + duration_s / self._speed + DRAIN_S
        tick = start
        while not self._stopped:
            now = time.monotonic()
            position = min((now - start) * self._speed, duration_s)
            for lane in self.lanes:
                lane.scheduled = lane.feed.rate.due(position)
            self._send_due(start)
            if now >= reporter.next_report:
                reporter.report(now)
            all_sent = all(lane.sent == lane.scheduled for lane in self.lanes)
            if position >= duration_s and (all_sent or now >= give_up):
                return
            tick = max(tick + TICK_S, now)
            time.sleep(max(0.0, tick - time.monotonic()))

    def _send_due(self, start: float) -> None:
        """Hand due rows to the producer, topics in turn, until none is left or its queue is full."""
        deadline = time.monotonic() + 2 * TICK_S
        waiting = [lane for lane in self.lanes if lane.sent < lane.scheduled]
        while waiting:
            epoch_ms = time.time_ns() // 1_000_000
            taken = {lane.feed.topic: lane.send(self._producer, epoch_ms) for lane in waiting}
            self._producer.poll(0)
            waiting = [lane for lane in waiting if lane.sent < lane.scheduled and taken[lane.feed.topic]]
            if time.monotonic() > deadline:
                return
        self._producer.poll(0)

    def _finish(self, reporter: _Reporter) -> None:
        """Wait for acknowledgements; rows not acknowledged in time count as failed, so that totals add up."""
        if self._stopped:
            for lane in self.lanes:
                lane.scheduled = lane.sent
        self._wait_for_reports(STOP_DRAIN_S if self._stopped else DRAIN_S)
        if len(self._producer):
            self._producer.purge()
            self._wait_for_reports(2.0)
        reporter.report(time.monotonic())
        for lane in self.lanes:
            totals = lane.totals()
            if totals.errors:
                self._record.note(f"{lane.feed.topic}: {totals.errors} rows failed, the first with: {lane.first_error}")
            if totals.late:
                self._record.note(
                    f"{lane.feed.topic}: {totals.late} rows were due and never sent: no room in the queue"
                )

    def _wait_for_reports(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while len(self._producer) and time.monotonic() < deadline:
            self._producer.flush(0.2)

    def note_lateness(self, lane: Lane, position: float) -> None:
        """Note once when a topic falls behind by a second's worth of rows, and once when it has caught up."""
        late, topic = lane.totals().late, lane.feed.topic
        end = min(position, self._scenario.duration_s)
        a_second = lane.feed.rate.rows(max(0.0, end - LATE_S * self._speed), end)
        if late > max(CHUNK_ROWS, a_second) and topic not in self._was_late:
            self._was_late.add(topic)
            self._record.note(f"{topic}: {late} rows are late; the broker or this process does not keep up")
        elif late == 0 and topic in self._was_late:
            self._was_late.discard(topic)
            self._record.note(f"{topic}: no row is late any more")

    def _note_error(self, error: Any) -> None:
        """Errors of librdkafka (a lost connection ...), which recovers by itself. Repeats are not noted."""
        text = str(error)
        if text != self._last_error:
            self._last_error = text
            self._record.note(f"Kafka client: {text}")


class _Reporter:
    """Writes the counts once a second."""

    def __init__(self, sender: Sender, start: float) -> None:
        self._sender = sender
        self._start = self._last = start
        self.next_report = start + REPORT_S
        self._sent: dict[str, int] = {}

    def position(self, now: float) -> float:
        """Scenario seconds since the start."""
        return (now - self._start) * self._sender._speed

    def report(self, now: float) -> None:
        """Write one line per topic."""
        passed = now - self._last
        for lane in self._sender.lanes:
            totals, topic = lane.totals(), lane.feed.topic
            rate = (
                {"rate": round((totals.sent - self._sent.get(topic, 0)) / passed, 1)} if passed > REPORT_S / 2 else {}
            )
            position_s = round(self.position(now), 3)
            self._sender._record.write("counts", position_s=position_s, topic=topic, **totals.to_json(), **rate)
            self._sent[topic] = totals.sent
            self._sender.note_lateness(lane, self.position(now))
        self._last = now
        self.next_report = max(self.next_report + REPORT_S, now)


def _loaded(scenario: Scenario) -> Sequence[EncodedRows]:
    """Return the rows of each topic. Topics with the same generator get different rows, unless both name one seed."""
    return [load(feed.data, feed.key, scenario.seed + index) for index, feed in enumerate(scenario.topics)]
