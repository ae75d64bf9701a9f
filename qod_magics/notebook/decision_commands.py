"""The commands of `%qod` about decisions: parse, call the session, nothing else."""

from __future__ import annotations

from math import inf

from qod_magics.application.streams.options import max_latency, utility
from qod_magics.errors import UsageProblem
from qod_magics.notebook.arguments import MagicWords, restriction
from qod_magics.notebook.commands import Commands


class DecisionCommands(Commands):
    """`set`, `why`, `policy`, `pause`, `resume`, `period`, `override`."""

    def _set(self, words: list[str]) -> None:
        parser = MagicWords("set", "Change a query's restrictions while it runs.")
        parser.add_argument("name")
        parser.add_argument("--priority", "-p", type=int)
        parser.add_argument("--min-accuracy", "-a", type=float)
        parser.add_argument("--max-latency", metavar="S", help="seconds (2s, 500ms), or none")
        parser.add_argument("--utility", metavar="U", help="0 or more, or none")
        given = parser.read(words)
        latency_s = restriction("--max-latency", given.max_latency, max_latency)
        worth = restriction("--utility", given.utility, utility)
        wanted = (
            ("priority", given.priority, ""),
            ("minimum accuracy", given.min_accuracy, ""),
            ("maximum latency", latency_s, " s"),
            ("utility", worth, ""),
        )
        told = [
            f"no {what}" if value == inf else f"{what} {value:g}{unit}"
            for what, value, unit in wanted
            if value is not None
        ]
        if not told:
            raise UsageProblem(
                f"%qod set {given.name}: nothing to set; say --priority N, --min-accuracy F, --max-latency S, "
                "--utility U, or several of them"
            )
        note = self._session().set(
            given.name,
            priority=given.priority,
            min_accuracy=given.min_accuracy,
            max_latency_s=latency_s,
            utility=worth,
        )
        also = f"; {note}" if note else ""
        self._say(f"{given.name} has {' and '.join(told)} from the next cycle on{also}")

    def _why(self, words: list[str]) -> None:
        parser = MagicWords("why", "Show the last decision about a stream, instance or task manager, and why.")
        parser.add_argument("name", nargs="?", help="without it: the stages of the policy")
        given = parser.read(words)
        session = self._session()
        print(session.stages if given.name is None else session.why(given.name))

    def _pause(self, words: list[str]) -> None:
        parser = MagicWords("pause", "Recommend only: make plans, apply none; or pause one stage of the policy.")
        parser.add_argument("stage", nargs="?", help="as %%qod policy lists them")
        given = parser.read(words)
        if given.stage is None:
            self._session().pause()
            self._say("paused: plans are recommended, not applied")
        else:
            self._session().pause_stage(given.stage)
            self._say(f"stage {given.stage} is paused: it proposes nothing")

    def _policy(self, words: list[str]) -> None:
        parser = MagicWords("policy", "Have another policy decide from the next cycle on; without a name, show it.")
        parser.add_argument("name", nargs="?", help=self._policies)
        given = parser.read(words)
        if given.name is not None:
            self._session().set_policy(given.name)
        print(self._session().stages)

    def _period(self, words: list[str]) -> None:
        parser = MagicWords("period", "Change the time between decisions.")
        parser.add_argument("seconds", type=float)
        given = parser.read(words)
        self._session().set_period(given.seconds)
        self._say(f"a decision every {given.seconds:g} s")

    def _override(self, words: list[str]) -> None:
        parser = MagicWords("override", "Hold a shedder's non-drop probability by hand, or return it to the plan.")
        parser.add_argument("name", help='a source, or a stream "from>to"')
        parser.add_argument("d", help="a fraction from 0 to 1, or auto")
        given = parser.read(words)
        try:
            d = None if given.d == "auto" else float(given.d)
        except ValueError:
            raise UsageProblem(f"%qod override: {given.d!r} is neither a fraction nor auto") from None
        note = self._session().override(given.name, d)
        done = "follows the plan again" if d is None else f"is held at {d:g}"
        self._say(f"{given.name} {done}{f'; {note}' if note else ''}")

    def _resume(self, words: list[str]) -> None:
        parser = MagicWords("resume", "Apply plans again; or resume one stage of the policy.")
        parser.add_argument("stage", nargs="?")
        given = parser.read(words)
        if given.stage is None:
            self._session().resume()
            self._say("plans are applied again")
        else:
            self._session().pause_stage(given.stage, False)
            self._say(f"stage {given.stage} proposes actions again")
