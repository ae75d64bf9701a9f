"""Cells of which a manifest is kept, `kept_cells.json`, that the release before `--refresh` wrote.

A field that is added to what cells declare changes no hash of theirs: see `LATER` in
`application/streams/topic_input.py`.
"""

from __future__ import annotations

from qod_magics.application.recipes.python import PythonRecipe
from qod_magics.application.recipes.recipe import SqlRecipe
from qod_magics.application.streams.rules import rule
from qod_magics.application.streams.sinks import parse_sink
from qod_magics.application.streams.stream import StreamDeclaration
from qod_magics.application.streams.topic_input import TopicInput
from qod_magics.application.tasks import TaskSpec

_TRIPS = TopicInput("trips", "zone INT, fare DOUBLE, at TIMESTAMP")
_BY_ZONE = SqlRecipe("SELECT zone, count(*) AS n FROM trips GROUP BY zone")
_DEAR = SqlRecipe("SELECT * FROM trips WHERE fare > 20")

CELLS = (
    StreamDeclaration("sql", _BY_ZONE, _TRIPS, priority=2, min_accuracy=0.4),
    StreamDeclaration("python", PythonRecipe("source.groupBy('zone').count()", {}), _TRIPS, priority=1),
    StreamDeclaration("written", _DEAR, _TRIPS, sink=parse_sink("kafka:dear")),
    StreamDeclaration("filed", _DEAR, _TRIPS, sink=parse_sink("parquet:/data/dear"), trigger_s=10.0),
    StreamDeclaration("scaled", _BY_ZONE, _TRIPS, priority=1, parallelism=2, max_parallelism=4, mode="microbatch"),
    StreamDeclaration("checked", _DEAR, _TRIPS, priority=1, expect=(rule("fare < 1000"),)),
    StreamDeclaration("several", _DEAR, TopicInput("trips-a", "fare INT", pattern="trips-.*"), priority=1),
)
SPECS = tuple(TaskSpec((cell,), is_query=True) for cell in CELLS)
