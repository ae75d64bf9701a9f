"""What is checked of tasks before they run."""

from __future__ import annotations

from qod_magics.application.tasks.task import tasks
from qod_magics.spark.plans.inspection import losing_rows
from tests.application.frames import application, stream


def test_rows_are_dropped_on_their_way_to_tasks_none_of_whose_queries_needs_all() -> None:
    app = application(
        stream("clicks", topic="clicks"),
        stream("orders", topic="orders"),
        stream("some", "clicks", fuse=False),
        stream("both", "clicks", "orders", fuse=False),
        stream("every", "clicks", min_accuracy=1.0),
        stream("few", "some", min_accuracy=0.1),
        stream("fewer", "some", "both", min_accuracy=0.1),
    )
    assert losing_rows(tasks(app)) == {"orders", "some", "both", "few", "fewer"}
