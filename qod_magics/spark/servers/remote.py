"""Connect servers of the user's: their URLs, and what the user states about them (cores, UI, headers)."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from qod_magics.errors import UsageProblem, counted
from qod_magics.spark.servers.connection import REMOTE, hidden, is_ours

#: The value of an option for a server that has no UI, or none that is to be asked.
NO_UI = "none"


@dataclass(frozen=True, slots=True)
class Remote:
    """A server, and what the user says of it. Raises UsageProblem for what can't be its URL, UI, or cores."""

    url: str = field(repr=False)  #: sc://host:port; may hold a token
    cores: float | None = None  #: None: its Spark UI tells them
    ui: str | None = None  #: address of its Spark UI; "": it has none; None: looked for
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)  #: that its UI asks for; may hold tokens

    def __post_init__(self) -> None:
        check_url(self.url)
        if self.cores is not None and self.cores < 1:
            raise UsageProblem(
                f"cores of a server must be 1 or more, got {self.cores:g}; its executors have as many (--cores N)",
                value=self.cores,
                rule="positive",
            )
        if self.ui and not self.ui.startswith(("http://", "https://")):
            raise UsageProblem(
                f"a Spark UI must be at http://HOST:PORT or https://HOST:PORT, got {self.ui!r}; write its address",
                value=self.ui,
                rule="http://HOST:PORT",
            )
        if self.headers and not self.ui:
            raise UsageProblem(
                f"headers ({', '.join(self.headers)}) must be of a UI that is named, got none; name it (--ui URL)",
                rule="a UI",
            )


def check_url(url: str) -> None:
    """Raise UsageProblem for what can't be the URL of a server."""
    if not url.startswith("sc://"):
        raise UsageProblem(
            f"{hidden(url)!r} is no server: write sc://HOST:PORT", value=hidden(url), rule="sc://HOST:PORT"
        )


def remotes(
    urls: Sequence[str],
    local: int,
    cores: int | Sequence[int] | None,
    uis: Sequence[str],
    headers: Mapping[str, str],
) -> tuple[int | None, list[Remote]]:
    """Return the cores of each local task manager, and the servers, from what a session is started with.

    Args:
        urls: of the servers.
        local: how many local task managers are started.
        cores: one number is of each local one or, without any, of each server; several are of the local ones, if any
            are started, and then of one server after the other.
        uis: one for each server, "none" for one without; or none at all.
        headers: sent to each of these UIs.

    Raises UsageProblem: there are more or fewer values than task managers that they can be of.

    """
    known: list[float] = [cores] if isinstance(cores, int) else list(cores or ())
    of_local = int(known.pop(0)) if local and known else None
    if not (local or urls) and not (uis or headers or len(known) > 1):
        return (int(known[0]) if known else None), []
    if len(known) == 1:
        known *= max(len(urls), 1)
    if known and len(known) != len(urls):
        raise UsageProblem(
            f"--cores must be one number, or one for {'the local ones and ' if local else ''}each server, got "
            f"{counted(len(known) + (of_local is not None), 'number')} for {counted(len(urls), 'server')}; name the "
            "servers with --connect URL",
            value=known,
            rule="one for each",
        )
    if uis and len(uis) != len(urls):
        raise UsageProblem(
            f"--ui must be given once for each server, got {counted(len(uis), 'UI')} for "
            f"{counted(len(urls), 'server')}; write {NO_UI} for a server without a UI",
            value=list(uis),
            rule="one for each",
        )
    if headers and all(ui == NO_UI for ui in uis):
        raise UsageProblem(
            f"headers ({', '.join(headers)}) must be of a UI that is named, got none; name it (--ui URL)", rule="a UI"
        )
    addresses: list[str | None] = ["" if ui == NO_UI else ui for ui in uis] or [None] * len(urls)
    return of_local, [
        Remote(url, known[i] if known else None, ui, headers if ui else {})
        for i, (url, ui) in enumerate(zip(urls, addresses, strict=True))
    ]


def asked_for() -> str | None:
    """Return the server that the environment names for Spark sessions; None: it names none, or one of ours."""
    url = os.environ.get(REMOTE, "")
    return url if url.startswith("sc://") and not is_ours(url) else None
