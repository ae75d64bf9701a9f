"""The handle to which the notebook binds a stream's name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from qod_magics.errors import ApplicationError, QodError
from qod_magics.session.results import times_out_of_range
from qod_magics.session.show import in_kernel, mime_bundle
from qod_magics.session.status import (
    DECLARED,
    ended_text,
    fused_text,
    hold_text,
    idle_text,
    instances_with,
    printed_text,
    stream_text,
    where_text,
)

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame

    from qod_magics.session.interface import SessionInterface
    from qod_magics.session.show import ShownResults


class StreamHandle:
    """The handle to which the notebook binds a stream's name."""

    def __init__(
        self,
        session: SessionInterface,
        name: str,
        replaced: bool = False,
        unchanged: bool = False,
        dry_run: bool = False,
        restarted: Sequence[str] = (),
        notes: Sequence[str] = (),
    ) -> None:
        self.session = session
        self.name = name
        self.replaced = replaced
        self.unchanged = unchanged
        self.dry_run = dry_run
        self.restarted = restarted  #: instances that were given up before it was declared again
        self.notes = notes

    def dataframe(self) -> DataFrame:
        """Return its rows so far (memory sink), as a Spark DataFrame."""
        return self.session.results(self.name)

    def to_pandas(self) -> pd.DataFrame:
        """Return its rows so far (memory sink), as a pandas DataFrame.

        Raises ApplicationError, beside what Spark raises: a column has times that Python has not.
        """
        frame = self.dataframe()
        try:
            rows: pd.DataFrame = frame.toPandas()
        except (ValueError, OverflowError) as error:
            names = times_out_of_range(frame)
            if not names:
                raise
            raise ApplicationError(
                f"{self.name} has times outside of the years 1 to 9999 in {', '.join(names)}: numbers of milliseconds "
                "read as seconds? --time-unit ms reads a topic's"
            ) from error
        return rows

    def show(self, **wish: Any) -> ShownResults:
        """Return its newest results, to be displayed: `kind`, `rows`, `x`, `y` and `save` as the options of `%qod
        show`."""
        return self.session.show(self.name, **wish)

    def why(self) -> str:
        """Return the last decision about it, and why."""
        return self.session.why(self.name)

    def stop(self) -> None:
        """Stop and remove it."""
        self.session.stop(self.name)

    @property
    def said(self) -> str:
        """Return the outcome of its declaration, in one line; further ones are notes."""
        notes = list(self.notes)
        if self._prints:
            notes.append(printed_text(self.session, self.name))
        return "\n".join([self._outcome, *(f"{self.name}: {note}" for note in notes)])

    @property
    def _prints(self) -> bool:
        """Return whether it runs with a console sink."""
        application = self.session.application
        return not self.dry_run and self.name in application.queries and application[self.name].effective_sink.prints

    @property
    def _outcome(self) -> str:
        if self.dry_run:
            return f"{self.name} is well-formed (dry run: nothing was started)"
        if self.name in self.session.application.waiting:
            return f"{self.name} {DECLARED}"
        if self.name in self.session.waiting_streams:
            return f"{self.name} is declared: {hold_text(self.session.waiting_streams[self.name])}"
        instances = instances_with(self.session, self.name)
        reasons = {i.mode_why for i in instances if i.mode_why}
        why = f" ({next(iter(reasons))})" if reasons else ""
        fused = fused_text(self.session.runtime.deployment.specs_with(self.name))
        if self.restarted:
            failure = next((i.failure for i in instances if i.id in self.restarted and i.failure), "")
            because = f" ({failure})" if failure else ""
            return f"{self.name} starts again from its checkpoint: it was given up{because}{fused}"
        if idle := idle_text(instances):
            done = "unchanged" if self.unchanged else "replaced" if self.replaced else "declared"
            return f"{self.name} is {done}, but {idle}{fused}"
        done = "goes on unchanged" if self.unchanged else "replaced" if self.replaced else "runs"
        return f"{self.name} {done} {where_text(instances)}{why}{fused}"

    def _repr_mimebundle_(self, **options: Any) -> Any:
        """In a notebook a query's results, live; else, and of other streams, its state in words."""
        words = repr(self)
        if not in_kernel() or not self.session.alive:
            return {"text/plain": words}
        try:
            view = self.show().view
        except QodError:  # it has no results to be shown
            return {"text/plain": words}
        return mime_bundle(view, words, **options)

    def __repr__(self) -> str:
        """Return where it runs now, and how it kept up in the last cycle."""
        if not self.session.alive:
            return f"{self.name}: its session {ended_text(self.session).removeprefix('it ')}"
        if self.name not in self.session.application:
            return f"{self.name}: stopped"
        if self.name in self.session.application.waiting:
            return f"{self.name} {DECLARED}"
        if self.name in self.session.waiting_streams:
            return f"{self.name}: {hold_text(self.session.waiting_streams[self.name])}"
        return stream_text(self.session, self.name)
