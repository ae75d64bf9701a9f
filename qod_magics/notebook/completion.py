"""Completion of the magics' lines: commands, options, streams, instances, task managers. All pure but `Completion`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from qod_magics.application.streams.options import OPTIONS, Option
from qod_magics.application.streams.words import continued

if TYPE_CHECKING:
    from IPython.core.completer import CompletionContext
    from IPython.core.interactiveshell import InteractiveShell

STREAM, LINE = "%%qod_stream", "%qod"

#: by command: the kinds of names that its arguments take
_NAMES = {
    "set": ("streams",),
    "show": ("streams",),
    "stop": ("streams",),
    "why": ("streams", "instances", "task_managers"),
    "move": ("instances", "task_managers"),
    "scale": ("streams",),
    "fuse": ("streams", "streams"),
    "unfuse": ("streams", "streams"),
    "remove-tm": ("task_managers",),
    "override": ("shedders",),
    "policy": ("policies",),
    "pause": ("stages",),
    "resume": ("stages",),
}


class There(Protocol):
    """The names that can be completed now; all may be empty."""

    @property
    def streams(self) -> Sequence[str]:
        """Declared streams."""
        ...

    @property
    def instances(self) -> Sequence[str]:
        """Running instances."""
        ...

    @property
    def task_managers(self) -> Sequence[str]:
        """Their ids."""
        ...

    @property
    def shedders(self) -> Sequence[str]:
        """Sources, and streams "from>to"."""
        ...

    @property
    def policies(self) -> Sequence[str]:
        """Names of policies."""
        ...

    @property
    def stages(self) -> Sequence[str]:
        """Stages of the policy that decides."""
        ...


def suggestions(line: str, there: There, flags: Mapping[str, Sequence[str]]) -> list[str] | None:
    """Completions of the last word of `line`, which ends at the cursor; None where the line is not ours.

    `flags` are the options of each command of `%qod`.
    """
    words = line.split(" ")
    magic, typed = words[0], words[-1]
    if len(words) < 2 or magic not in (STREAM, "%qod_stream", LINE):
        return None
    before = [word for word in words[1:-1] if word]
    found = _of_stream(before, there) if magic != LINE else _of_command(before, there, flags)
    return [each for each in dict.fromkeys(found) if each.startswith(typed) and each not in before]


def line_to_cursor(text: str, line: int, position: int) -> str:
    """Return a magic line up to the cursor: the lines above that end with a backslash belong to it."""
    lines = text.splitlines()
    if line >= len(lines):
        return ""
    whole = lines[line][:position]
    for above in reversed(lines[:line]):
        begun = continued(above)
        if begun is None:
            break
        whole = f"{begun} {whole}"
    return whole


def _of_stream(before: Sequence[str], there: There) -> Iterable[str]:
    if not before:
        return there.streams
    last = next((word for word in reversed(before) if word.startswith("-")), None)
    option = _option(last)
    if option is not None and option.metavar is not None:
        values = [*option.choices, *(there.streams if option.field == "upstream" else ())]
        if before[-1] == last:
            return values
        if option.several:
            return [*values, *_flags()]
    return _flags()


def _option(word: str | None) -> Option | None:
    return next((option for option in OPTIONS if word in (option.flag, option.short)), None)


def _flags() -> list[str]:
    return [option.flag for option in OPTIONS]


def _of_command(before: Sequence[str], there: There, flags: Mapping[str, Sequence[str]]) -> Iterable[str]:
    if not before:
        return flags
    command = before[0]
    kinds = _NAMES.get(command, ())
    given = len([word for word in before[1:] if not word.startswith("-")])
    if command in ("move", "fuse", "unfuse"):  # a kind for each argument
        kinds = kinds[given : given + 1]
    elif given:
        kinds = ()
    names = [name for kind in kinds for name in getattr(there, kind)]
    return [*names, *flags.get(command, ())]


class Completion:
    """A completion matcher of a shell, installed from `begin` to `end`."""

    def __init__(self, shell: InteractiveShell, there: There, flags: Mapping[str, Sequence[str]]) -> None:
        from IPython.core.completer import SimpleCompletion, context_matcher

        self._completer = shell.Completer

        @context_matcher(identifier="qod_magics")  # type: ignore[untyped-decorator, unused-ignore]
        def matcher(context: CompletionContext) -> Any:
            found = suggestions(
                line_to_cursor(context.full_text, context.cursor_line, context.cursor_position), there, flags
            )
            completions = [SimpleCompletion(text=each, type="option") for each in found or ()]
            return {"completions": completions, "suppress": bool(found)}

        self._matcher = matcher

    def begin(self) -> None:
        """Install the matcher."""
        if self._completer is not None:
            self._completer.custom_matchers.append(self._matcher)

    def end(self) -> None:
        """Remove the matcher; idempotent."""
        if self._completer is not None and self._matcher in self._completer.custom_matchers:
            self._completer.custom_matchers.remove(self._matcher)
