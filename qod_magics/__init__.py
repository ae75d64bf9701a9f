"""Load shedding for Spark Structured Streaming in a notebook: Quality of Data.

`%load_ext qod_magics` gives `%%qod_stream` and `%qod`: Spark Structured Streaming queries over Kafka under a
controller that sheds load, shares CPU by priority and moves tasks. Importing this package costs nothing: Spark,
Kafka and the widgets are imported when the extension is loaded.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from qod_magics.notebook.replay import replay

__all__ = ["__version__", "load_ipython_extension", "replay", "unload_ipython_extension"]

__version__ = "0.1.0"

logging.getLogger(__name__).addHandler(logging.NullHandler())


def __getattr__(name: str) -> Any:
    """`qod_magics.replay`, imported on first use."""
    if name == "replay":
        from qod_magics.notebook.replay import replay

        return replay
    raise AttributeError(f"module 'qod_magics' has no attribute {name!r}")


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Called by `%load_ext qod_magics`: registers the magics in `shell`."""
    from qod_magics.notebook import magics

    magics.load_ipython_extension(shell)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """Called by `%unload_ext qod_magics` and first by `%reload_ext`: stops what runs, removes the magics."""
    from qod_magics.notebook import magics

    magics.unload_ipython_extension(shell)
