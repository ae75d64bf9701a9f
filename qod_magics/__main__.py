"""`python -m qod_magics COMMAND ...`: imports and runs the command; a failure prints one line."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import NamedTuple

from qod_magics.errors import QodError, lacking, nearest


class Command(NamedTuple):
    """A command: where its `main(argv) -> int` is, and one line for the help."""

    target: str  #: "module:function", imported only when the command is run
    summary: str


COMMANDS = {
    "plan": Command("qod_magics.commands.plan:main", "print the plan of a policy for a snapshot or a recording"),
    "doctor": Command("qod_magics.commands.doctor:main", "check that this machine has what a cluster needs"),
    "inject": Command("qod_magics.commands.inject:main", "write rows to a Kafka topic at the rates of a scenario"),
    "simulate": Command("qod_magics.commands.simulate:main", "run a cluster and the controller in virtual time"),
    "fit": Command("qod_magics.commands.recordings:fit", "calibrate a simulation to a recording"),
    "compare": Command("qod_magics.commands.recordings:compare", "compare a live recording with a simulated one"),
    "report": Command("qod_magics.commands.recordings:report", "summarize a recording"),
    "run": Command("qod_magics.commands.run:main", "run a notebook or a script without a notebook server"),
    "labs": Command("qod_magics.commands.labs:main", "copy the notebooks with the labs to a directory"),
    "demo": Command("qod_magics.commands.demo:main", "run the demonstration: overload, shedding by priority, a move"),
}


def main(argv: list[str] | None = None) -> int:
    """Run the command named by `argv`; returns its exit status, 2 for wrong arguments or input, 130 if interrupted."""
    words = sys.argv[1:] if argv is None else argv
    if not words or words[0] in ("-h", "--help", "help"):
        print(_help(), file=sys.stdout if words else sys.stderr)
        return 0 if words else 2
    name = words[0]
    if name not in COMMANDS:
        print(f"qod_magics: there is no command {name!r}.{nearest(name, COMMANDS)}", file=sys.stderr)
        return 2
    try:
        command = _load(COMMANDS[name].target)
    except ImportError as error:
        lacks = lacking(error, f"this command ({name})")
        print(f"qod_magics {name}: {lacks or f'{error}; install what is missing'}", file=sys.stderr)
        return 2
    try:
        status = command(words[1:])
        if sys.stdout is not None:
            sys.stdout.flush()
    except ModuleNotFoundError as error:  # one that a command imports only when it is needed
        if (told := lacking(error, f"this command ({name})")) is None:
            raise
        print(f"qod_magics {name}: {told}", file=sys.stderr)
        return 2
    except QodError as error:
        print(f"qod_magics {name}: {' '.join(str(error).splitlines())}", file=sys.stderr)
        return 2
    except OSError as error:
        with suppress(OSError, AttributeError):  # flushing the buffer must not fail again at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):  # the reader closed the pipe, as `head` does
            return 0
        print(f"qod_magics {name}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return status


def _load(target: str) -> Callable[[list[str]], int]:
    module, _, function = target.partition(":")
    main: Callable[[list[str]], int] = getattr(import_module(module), function)
    return main


def _help() -> str:
    width = max(map(len, COMMANDS))
    lines = (f"  {name:<{width}}  {command.summary}" for name, command in COMMANDS.items())
    return "\n".join(("usage: python -m qod_magics COMMAND ... (COMMAND --help for its options)", "", *lines))


if __name__ == "__main__":
    sys.exit(main())
