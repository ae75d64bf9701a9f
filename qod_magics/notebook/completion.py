"""Completion of the magics' lines: commands, options, streams, instances, task managers. All pure but `Completion`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from qod_magics.application.streams.options import COMMAND as STREAM
from qod_magics.arguments.option import Option
from qod_magics.arguments.parser import Command, continued
from qod_magics.notebook.options import COMMANDS

if TYPE_CHECKING:
    from IPython.core.completer import CompletionContext
    from IPython.core.interactiveshell import InteractiveShell


#: Returns the names of a kind that there are now, by `Option.names`: streams, instances, ...
Names = Callable[[str], Iterable[str]]


def suggestions(line: str, names: Names) -> list[str] | None:
    """Return completions of the last word of `line`, which ends at the cursor; None where the line is not ours."""
    words = line.split(" ")
    magic, typed = words[0], words[-1]
    if len(words) < 2 or magic not in (STREAM.name, "%qod_stream", "%qod"):
        return None
    before = [word for word in words[1:-1] if word]
    if magic != "%qod":
        found = _values(STREAM, before, names) if before else names("streams")
    elif not before:
        found = COMMANDS
    else:
        command = COMMANDS.get(before[0])
        found = () if command is None else _values(command, before[1:], names)
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


def _values(command: Command, before: Sequence[str], names: Names) -> Iterable[str]:
    """Return what may follow these words: values of the last option, or the next argument and the options."""
    last = next((word for word in reversed(before) if word.startswith("-")), "")
    row = command.option(last)
    if row is not None and not row.switch and (before[-1] == last or row.several):
        return _of(row, names) if before[-1] == last else [*_of(row, names), *command.flags]
    options = [each for word in before if (each := command.option(word)) is not None and not each.switch]
    given = len([word for word in before if not word.startswith("-")]) - len(options)
    return [*(name for each in command.arguments[given : given + 1] for name in _of(each, names)), *command.flags]


def _of(row: Option, names: Names) -> list[str]:
    listed = row.one_of() if row.one_of else ()
    return [*row.choices, *row.offers, *listed, *(name for kind in row.names for name in names(kind))]


class Completion:
    """A completion matcher of a shell, installed from `begin` to `end`."""

    def __init__(self, shell: InteractiveShell, names: Names) -> None:
        from IPython.core.completer import SimpleCompletion, context_matcher

        self._completer = shell.Completer

        @context_matcher(identifier="qod_magics")  # type: ignore[untyped-decorator, unused-ignore]
        def matcher(context: CompletionContext) -> Any:
            line = line_to_cursor(context.full_text, context.cursor_line, context.cursor_position)
            found = suggestions(line, names)
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
