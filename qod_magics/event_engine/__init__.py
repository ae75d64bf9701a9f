"""Discrete-event engines in virtual time, beside the fluid simulator, which knows rates of rows and no single message.

This package schedules messages: a dispatcher (`core.dispatch`) decides which message runs next, and where. `buffers`
has channels with output buffers under QoS managers (`core.channel_qos`), `segments` a cluster that replicates segments
under queries (`core.segments`); `engines` lists the three. `simpy` keeps the queue of events; times are whole
nanoseconds, and the same seed gives the same run.
"""

from qod_magics.event_engine.dataflow import Dataflow, Job, Source, Stage
from qod_magics.event_engine.engine import Engine, Overheads
from qod_magics.event_engine.links import Links
from qod_magics.event_engine.results import Results
from qod_magics.event_engine.stores import Store

__all__ = ["Dataflow", "Engine", "Job", "Links", "Overheads", "Results", "Source", "Stage", "Store"]
