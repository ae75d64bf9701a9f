"""An engine of messages in virtual time: clients send them, links carry them, and workers execute their operators.

A dispatcher (`core.dispatch`) decides which message runs next, and where; `scenario` reads jobs, cluster and duration
from JSON, `declared` makes jobs of a notebook's streams.
"""

from qod_magics.event_engine.messages.dataflow import Dataflow, Job, Source, Stage
from qod_magics.event_engine.messages.engine import Engine, Overheads
from qod_magics.event_engine.messages.links import Links
from qod_magics.event_engine.messages.results import Results
from qod_magics.event_engine.messages.stores import Store

__all__ = ["Dataflow", "Engine", "Job", "Links", "Overheads", "Results", "Source", "Stage", "Store"]
