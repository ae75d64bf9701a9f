"""Recipes without Spark: DataFrames are never made, so recipes that name the right inputs are enough."""

from __future__ import annotations

from typing import Any

from qod_magics.application.application import Application
from qod_magics.application.recipes.python import PythonRecipe
from qod_magics.application.streams.stream import StreamDeclaration
from qod_magics.application.streams.topic_input import TopicInput


def stream(name: str, *inputs: str, topic: str | None = None, **settings: Any) -> StreamDeclaration:
    """A stream that unites its inputs; of a topic when one is named; of a source of its own when nothing is."""
    if topic is not None:
        return StreamDeclaration(name, PythonRecipe("source"), TopicInput(topic), **settings)
    body = ".union(".join(inputs) + ")" * (len(inputs) - 1) if inputs else "spark.readStream.format('rate').load()"
    return StreamDeclaration(name, PythonRecipe(body), inputs, **settings)


def application(*streams: StreamDeclaration) -> Application:
    """The application of these streams, declared one by one."""
    whole = Application()
    for declaration in streams:
        whole = whole.declare(declaration)
    return whole
