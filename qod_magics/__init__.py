"""Load shedding for Spark Structured Streaming in a notebook: Quality of Data.

`%load_ext qod_magics` gives `%%qod_stream` and `%qod`: Spark Structured Streaming queries over Kafka under a
controller that sheds load, shares CPU by priority and moves tasks. Importing this package costs nothing: Spark,
Kafka and the widgets are imported when the extension is loaded.
"""

from __future__ import annotations

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from qod_magics.errors import QodError, QueryError
    from qod_magics.monitoring.alarms import Alarm
    from qod_magics.notebook.replay import replay
    from qod_magics.session.session import Session

__all__ = [
    "Alarm",
    "QodError",
    "QueryError",
    "Session",
    "__version__",
    "load_ipython_extension",
    "replay",
    "unload_ipython_extension",
]

__version__ = "0.1.0"

logging.getLogger(__name__).addHandler(logging.NullHandler())


#: Where the public names are; each is imported on first use.
_PUBLIC = {
    "Alarm": "qod_magics.monitoring.alarms",
    "QodError": "qod_magics.errors",
    "QueryError": "qod_magics.errors",
    "Session": "qod_magics.session.session",
    "replay": "qod_magics.notebook.replay",
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    if name in _PUBLIC:
        return getattr(_imported(_PUBLIC[name], f"qod_magics.{name}"), name)
    raise AttributeError(f"module 'qod_magics' has no attribute {name!r}")


def _imported(module: str, what: str) -> Any:
    """Return a module, imported now. Raises SetupError, which says `what`, where Spark or Kafka is not installed."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        from qod_magics.errors import lacking

        raise lacking(error, what) or error from None


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Called by `%load_ext qod_magics`: registers the magics in `shell`."""
    magics = _imported("qod_magics.notebook.magics", "%load_ext qod_magics")
    magics.load_ipython_extension(shell)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """Called by `%unload_ext qod_magics` and first by `%reload_ext`: stops what runs, removes the magics."""
    from qod_magics.notebook import magics

    magics.unload_ipython_extension(shell)
