"""An engine of messages in virtual time, beside the fluid simulator: it ranks single messages, which rates cannot.

`simpy` keeps the queue of events; a dispatcher (`core.dispatch`) decides which message runs next, and where. Times are
whole nanoseconds; the same seed gives the same run.
"""

from qod_magics.event_engine.dataflow import Dataflow, Job, Source, Stage
from qod_magics.event_engine.engine import Engine, Overheads
from qod_magics.event_engine.links import Links
from qod_magics.event_engine.results import Results
from qod_magics.event_engine.stores import Store

__all__ = ["Dataflow", "Engine", "Job", "Links", "Overheads", "Results", "Source", "Stage", "Store"]
