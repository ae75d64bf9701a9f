"""An engine of messages in virtual time: clients send them, links carry them, and workers execute their operators.

A dispatcher (`core.engines`) decides which message runs next, and where; `scenario` reads jobs, cluster and duration
from JSON, `declared` makes jobs of a notebook's streams.
"""

from qod_magics.simulator.messages.dataflow import Dataflow, Job, Source, Stage
from qod_magics.simulator.messages.engine import Engine, Links, Overheads, Store
from qod_magics.simulator.messages.results import Results

__all__ = ["Dataflow", "Engine", "Job", "Links", "Overheads", "Results", "Source", "Stage", "Store"]
