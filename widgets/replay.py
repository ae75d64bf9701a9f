"""Controls of a recording: a slider through its time, and what the policy would have planned otherwise."""

from __future__ import annotations

import html
import threading
from collections.abc import Iterable, Mapping
from typing import Any

import ipywidgets as ipw

from qod_widgets.controls import labelled, row, share


def replay_controls(replay: Any) -> ipw.VBox:
    """The dashboard of a recording, a slider through its time, and the what-if controls."""
    length = len(replay.records) - 1
    slider = ipw.IntSlider(replay.position, min=0, max=max(length, 1), **labelled("cycle", width_px=460))
    play = ipw.ToggleButton(
        False, description="play", icon="play", tooltip="play the recording from here", layout={"width": "90px"}
    )
    moving = threading.local()

    def moved(position: int) -> None:
        moving.on = True
        try:
            slider.value = position
            if position == length:
                play.value = False
        finally:
            moving.on = False

    def seek(change: Mapping[str, Any]) -> None:
        if not getattr(moving, "on", False):
            replay.seek(replay.at[change["new"]])

    def turn(change: Mapping[str, Any]) -> None:
        play.description, play.icon = ("pause", "pause") if change["new"] else ("play", "play")
        if change["new"]:
            replay.play()
        else:
            replay.pause()

    replay.on_move(moved)
    slider.observe(seek, "value")
    play.observe(turn, "value")
    return ipw.VBox([row(play, slider), replay.dashboard(), what_if(replay)])


def what_if(replay: Any) -> ipw.VBox:
    """Controls for other restrictions of a query, and the plan that the policy would have made with them here."""
    queries = {task["id"]: task for task in replay.frames[-1]["tasks"] if task["minimum"] is not None}
    if not queries:
        return ipw.VBox()
    wide = max(len(name) for name in queries) * 8 + 50
    query = ipw.Dropdown(options=list(queries), **labelled("What if", width_px=wide))
    first = queries[query.value]
    minimum = share(first["minimum"], labelled("at least"), continuous_update=True)
    priority = ipw.BoundedIntText(first["priority"], min=-1000, max=1000, **labelled("priority", width_px=80))
    answer = ipw.HTML()

    def ask(_: Any = None) -> None:
        try:
            plan = replay.what_if(query.value, priority=priority.value, min_accuracy=minimum.value)
        except Exception as error:
            answer.value = f"<p>{html.escape(' '.join(str(error).splitlines()))}</p>"
            return
        moves = [(move.instance, move.to) for move in plan.moves]
        answer.value = plan_table(replay.record.plan.desired, plan.desired, moves, plan.starved)

    def other(_: Any) -> None:
        chosen = queries[query.value]
        minimum.value, priority.value = chosen["minimum"], chosen["priority"]
        ask()  # they may be those of the query before

    query.observe(other, "value")
    for each in (minimum, priority):
        each.observe(ask, "value")
    replay.on_move(ask)
    ask()
    return ipw.VBox([row(query, minimum, priority), answer])


def plan_table(
    before: Mapping[str, float], now: Mapping[str, float], moves: Iterable[tuple[str, str]], starved: Iterable[str]
) -> str:
    """HTML: the planned accuracies by task in two plans, with the moves (instance, target) and starved task managers of
    the second; differences are marked."""
    rows = "".join(_plan_row(task, before.get(task), accuracy) for task, accuracy in now.items())
    shown = ", ".join(f"{name} to {where}" for name, where in moves) or "none"
    short = ", ".join(starved) or "none"
    head = "".join(f"<th scope='col'>{name}</th>" for name in ("task", "was planned", "what if"))
    return (
        f"<div class='qod-plan' role='status'><table><caption>Desired accuracy</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{rows}</tbody></table><p>moves: {html.escape(shown)}; starved: {html.escape(short)}</p></div>"
    )


def _plan_row(task: str, before: float | None, now: float) -> str:
    was = "-" if before is None else f"{before:.3f}"
    mark = " class='qod-other'" if was != f"{now:.3f}" else ""
    return f"<tr{mark}><th scope='row'>{html.escape(task)}</th><td>{was}</td><td>{now:.3f}</td></tr>"
