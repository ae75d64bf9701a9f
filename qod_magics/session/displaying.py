"""What can be shown where a cell runs."""

from __future__ import annotations

from typing import Any


def in_kernel() -> bool:
    """Whether this Python is the kernel of a notebook, which can show widgets: a terminal can't."""
    from IPython import get_ipython

    return hasattr(get_ipython(), "kernel")


def mime_bundle(widget: Any, words: str, **options: Any) -> Any:
    """What `_repr_mimebundle_` returns for an object that is shown as a widget, and where that can't be as text."""
    bundle = widget._repr_mimebundle_(**options)
    data, metadata = bundle if isinstance(bundle, tuple) else (bundle, {})
    return {**data, "text/plain": words}, metadata


class Picture:
    """Static output left in a saved notebook, where the live widget is not shown: HTML with a text fallback."""

    def __init__(self, html: str = "", words: str = "a picture of the run is shown here when the session ends") -> None:
        self._html, self._words = html, words

    def __repr__(self) -> str:
        return self._words

    def _repr_html_(self) -> str:
        return self._html
