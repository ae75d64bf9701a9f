"""The loop: observe, decide, act; warm-ups, draining of backlogs, the decision log, recordings, recommend-only mode."""

from __future__ import annotations

from qod_magics.controller.clock import Clock, ManualClock, SystemClock
from qod_magics.controller.controller import Controller
from qod_magics.controller.log import Cycle, Decision, DecisionLog, Entry
from qod_magics.controller.record import Recording, RecordingError, read
from qod_magics.controller.runtime_calls import InlineWorker, ThreadWorker
from qod_magics.controller.thread import Command, ControllerThread, StoppedError

__all__ = [
    "Clock",
    "Command",
    "Controller",
    "ControllerThread",
    "Cycle",
    "Decision",
    "DecisionLog",
    "Entry",
    "InlineWorker",
    "ManualClock",
    "Recording",
    "RecordingError",
    "StoppedError",
    "SystemClock",
    "ThreadWorker",
    "read",
]
