"""How a session was begun, and what a second `%qod up` or `%qod attach` finds. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from qod_magics.errors import UsageProblem

_AGAIN = "%qod down, then this again"
#: What changes an option of a session that is up; the others need another session.
_CHANGES = {
    "task_managers": "%qod add-tm or %qod remove-tm",
    "connect": "%qod add-tm URL",
    "period": "%qod period SECONDS",
    "policy": "%qod policy NAME",
    "record": "qod.record(FILE)",
}


@dataclass(frozen=True, slots=True)
class Begun:
    """A command that begins a session, with its options by their fields."""

    command: str  #: "up" or "attach"
    options: Mapping[str, Any]
    defaults: Mapping[str, Any]  #: the options where none is given


def already_up(before: Begun | None, now: Begun) -> str:
    """Return the line for a command that asks for what is up already: also which options that were given before it
    leaves out. Raises UsageProblem: it asks for other options; the line says which, and what changes them."""
    if before is None or before.command != now.command:
        how = "" if before is None else f" by %qod {before.command}"
        raise UsageProblem(f"a session is up already{how}: %qod {now.command} needs %qod down first")
    differs = [name for name, value in now.options.items() if before.options[name] != value]
    asked = [name for name in differs if now.options[name] != now.defaults[name]]
    if asked:
        changes = "; ".join(
            f"{_flag(name)} is {_shown(before.options[name])}, not {_shown(now.options[name])} "
            f"({_CHANGES.get(name, _AGAIN)})"
            for name in asked
        )
        raise UsageProblem(f"a session is up already, with other options: {changes}")
    kept = ", ".join(f"{_flag(name)} {_shown(before.options[name])}" for name in differs)
    return f"already up, with {kept}" if kept else "already up"


def _flag(name: str) -> str:
    return "the name" if name == "name" else f"--{name.replace('_', '-')}"


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(map(str, value)) or "none"
    return "none" if value is None else str(value)
