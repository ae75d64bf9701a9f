"""What the tab key offers on the lines of the magics, and that it is gone after unloading."""

from __future__ import annotations

import pytest
from IPython.core.completer import provisionalcompleter
from IPython.core.interactiveshell import InteractiveShell

from qod_magics.notebook.magics import line_to_cursor, suggestions

THERE = {
    "streams": ["trips", "per_zone"],
    "instances": ["trips.1", "per_zone.1"],
    "task_managers": ["tm1", "tm2"],
    "shedders": ["trips", "trips>per_zone"],
    "stages": ("place", "scale"),
}.__getitem__


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("%qod s", ["status", "show", "stop", "set", "scale"]),
        ("%qod show p", ["per_zone"]),
        ("%qod show per_zone --", ["--help", "--kind", "--rows", "--x", "--y", "--save", "--from"]),
        ("%qod up --co", ["--cores", "--connect", "--conf", "--config"]),
        ("%qod set p", ["per_zone"]),
        ("%qod set per_zone --p", ["--priority"]),
        ("%qod set per_zone t", []),
        ("%qod stop ", ["trips", "per_zone", "--help", "--all"]),
        ("%qod why tm", ["tm1", "tm2"]),
        ("%qod move t", ["trips.1"]),
        ("%qod move trips.1 ", ["tm1", "tm2", "--help"]),
        ("%qod remove-tm t", ["tm1", "tm2"]),
        ("%qod fuse t", ["trips"]),
        ("%qod unfuse trips ", ["per_zone", "--help"]),
        ("%qod fuse trips per_zone ", ["--help"]),
        ("%qod override trips>", ["trips>per_zone"]),
        ("%qod policy a", ["auto"]),
        ("%qod policy henge set", ["settle_s="]),
        ("%qod policy henge settle_s=15 w", ["warm_up_s="]),
        ("%qod policy henge settle_s=15 set", []),
        ("%qod policy auto set", []),
        ("%qod pause ", ["place", "scale", "--help"]),
        ("%qod up --jit f", ["full"]),
        ("%qod up --policy au", ["auto"]),
        ("%qod up --cores 2 --per", ["--period"]),
        ("%qod set --priority 3 t", ["trips"]),
        ("%%qod_stream pe", ["per_zone"]),
        ("%%qod_stream counts --pr", ["--priority"]),
        ("%%qod_stream counts --from t", ["trips"]),
        ("%%qod_stream counts --from trips p", ["per_zone"]),
        ("%%qod_stream counts --mode m", ["microbatch"]),
        (
            "%%qod_stream counts --mode microbatch --s",
            ["--source", "--schema", "--starting", "--shed-by", "--sink", "--sink-option", "--sql"],
        ),
    ],
)
def test_the_last_word_is_completed(line, expected):
    assert suggestions(line, THERE) == expected


@pytest.mark.parametrize("line", ["", "%qod", "%%qod_stream", "print(%qod ", "%time x", "qod.st"])
def test_other_lines_are_left_alone(line):
    assert suggestions(line, THERE) is None


def test_a_shell_completes_while_the_extension_is_loaded_and_not_after():
    shell = InteractiveShell()
    before = list(shell.Completer.custom_matchers)
    shell.run_line_magic("load_ext", "qod_magics")
    try:
        for text, expected in (("%qod remo", "remove-tm"), ("x = 1\n%qod up --task", "--task-managers")):
            with provisionalcompleter():
                offered = [completion.text for completion in shell.Completer.completions(text, len(text))]
            assert any(expected in each for each in offered), offered
    finally:
        shell.run_line_magic("unload_ext", "qod_magics")
    assert shell.Completer.custom_matchers == before


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("%%qod_stream counts --from trips \\\n  --prio", ["--priority"]),
        ("x = 1\n%qod set per_zone \\\n   --p", ["--priority"]),
        ("%%qod_stream counts --from \\  # all\n  t", ["trips"]),
        ("%%qod_stream counts --from trips\n --prio", None),
    ],
)
def test_a_line_that_goes_on_is_completed_below(text: str, expected: list[str] | None) -> None:
    lines = text.splitlines()
    assert suggestions(line_to_cursor(text, len(lines) - 1, len(lines[-1])), THERE) == expected
