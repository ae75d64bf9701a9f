"""Which queries can be computed again, and into which sinks exact figures may go."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.types import LongType, StructField, StructType, TimestampType

from qod_magics.application.streams.sink import Console, KafkaTopic, Memory, Parquet, Sink
from qod_magics.application.tasks import tasks
from qod_magics.errors import ApplicationError, TaskManagerError, UsageProblem
from qod_magics.results.exact import Span, Stretch
from qod_magics.results.result import Kind
from qod_magics.session import exact as module
from qod_magics.session.exact import check_merge, exact
from qod_magics.session.recomputing import query_of
from qod_magics.spark.cluster.deployment import Deployment
from qod_magics.spark.plans.checking import Checked
from qod_magics.spark.plans.dial import DialReading
from qod_magics.spark.plans.job import DELAY
from tests.application.frames import application, stream
from tests.raising import breaks

WINDOW = StructType().add("start", TimestampType()).add("end", TimestampType())
SPAN = Span(datetime(2026, 11, 27, 10, tzinfo=UTC), datetime(2026, 11, 27, 11, tzinfo=UTC))


def session_of(
    *columns: StructField,
    keys: tuple[str, ...] | None = ("w", "zone"),
    sink: Sink | None = None,
    whole: str = "",
    topic: str = "trips",
    parallelism: int = 1,
) -> Any:
    """In the place of a session with the query `counts` over the stream `trips`."""
    app = application(
        stream("trips", topic=topic, parallelism=parallelism),
        stream("counts", "trips", priority=1, sink=sink, parallelism=parallelism),
    )
    deployment = Deployment(None, "s", {spec.id: spec for spec in tasks(app)})  # type: ignore[arg-type]
    schema = StructType(list(columns) or [StructField("w", WINDOW), StructField("zone", LongType())])
    deployment.checked = Checked({"counts": schema}, keys={"counts": keys}, whole={"counts": whole} if whole else {})
    runtime = SimpleNamespace(deployment=deployment, workshop=lambda: None, instances={})
    return SimpleNamespace(application=app, runtime=runtime)


def test_the_streams_that_lead_to_a_query_are_one_task_inputs_first() -> None:
    query = query_of(session_of(), "counts")
    assert query.spec.members == ("trips", "counts")
    assert (query.keys, query.by.name, query.by.kind, query.delay_s) == (("w", "zone"), "w", Kind.WINDOW, None)


def test_windows_come_before_times_and_have_the_delay_of_their_watermark() -> None:
    columns = (StructField("at", TimestampType()), StructField("w", WINDOW, metadata={DELAY: 90_000}))
    query = query_of(session_of(*columns, keys=("at", "w")), "counts")
    assert (query.by.name, query.delay_s) == ("w", 90.0)
    assert query_of(session_of(*columns, keys=("at",)), "counts").by.name == "at"


@pytest.mark.parametrize(
    ("session", "name", "rule"),
    [
        (session_of(), "trips", "query"),
        (session_of(keys=None), "counts", "windows"),
        (session_of(keys=("zone",)), "counts", "windows"),
        (session_of(whole="ORDER BY"), "counts", "groups"),
        (session_of(topic="rate:10"), "counts", "topic"),
        (session_of(parallelism=2), "counts", "one row"),
    ],
    ids=["stream", "rows", "totals", "ordered", "rate", "apart"],
)
def test_what_has_no_exact_figures_later_is_refused(session: Any, name: str, rule: str) -> None:
    with pytest.raises(ApplicationError, check=breaks(rule)):
        query_of(session, name)


def test_a_query_that_does_not_run_yet_is_told_from_one_that_never_can() -> None:
    session = session_of()
    session.runtime.deployment.checked = Checked()
    with pytest.raises(TaskManagerError, check=breaks(name="counts")):
        query_of(session, "counts")


@pytest.mark.parametrize("sink", [KafkaTopic("out"), Parquet("/tmp/out"), Console()], ids=str)
def test_figures_are_merged_only_where_the_newest_row_is_the_result(sink: Sink) -> None:
    session = session_of(sink=sink)
    with pytest.raises(UsageProblem, check=breaks("sink", option="--merge")):
        check_merge(session, query_of(session, "counts"), SPAN)


def test_and_only_where_a_watermark_has_closed_the_windows() -> None:
    session = session_of(sink=Memory())
    with pytest.raises(UsageProblem, check=breaks("closed", option="--merge")):
        check_merge(session, query_of(session, "counts"), SPAN)


@pytest.mark.parametrize(
    ("options", "option"),
    [
        ({"cpu": 0.0}, "--cpu"),
        ({"cpu": 1.5}, "--cpu"),
        ({"cpu": float("nan")}, "--cpu"),
        ({"margin_s": -1.0}, "--margin"),
    ],
    ids=str,
)
def test_numbers_out_of_range_are_refused(options: dict[str, float], option: str) -> None:
    with pytest.raises(UsageProblem, check=breaks("range", option=option)):
        exact(session_of(), "counts", "-2h", "-1h", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("reading", list(DialReading))
@pytest.mark.parametrize("cpu", [0.25, 1.0])
def test_a_batch_that_could_not_be_held_to_its_share_tells_so(
    monkeypatch: pytest.MonkeyPatch, reading: DialReading, cpu: float
) -> None:
    session = session_of(sink=Memory())
    session.runtime.incomplete = SimpleNamespace(lost_at={}, texts=lambda name: [])
    manager = SimpleNamespace(id="tm7", reading=reading, for_batch=lambda: None)
    for name, found in {
        "idlest": manager,
        "stretch_of": Stretch({0: 0}, {0: 0}, frozenset()),
        "recomputed": ([], 0, None),
        "written_by": [],
        "release": None,
    }.items():
        monkeypatch.setattr(module, name, lambda *_, found=found: found)
    notes = exact(session, "counts", SPAN.start, SPAN.end, cpu=cpu).notes
    assert any("tm7" in note and "25%" in note for note in notes) is (cpu < 1.0 and not reading.reflects)
