"""Messages of a client as a test lists them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from qod_magics.simulator.messages.dataflow import Sent


@dataclass(frozen=True, slots=True)
class Listed:
    """Messages as they are listed, in the order of time."""

    sent: tuple[Sent, ...] = ()

    @property
    def has_keys(self) -> bool:
        """Return whether each message has a key."""
        return all(each.key >= 0 for each in self.sent)

    def messages(self, seed: str, until: int) -> Iterator[Sent]:
        """Return the messages before `until`; the seed is not used."""
        del seed
        return (each for each in self.sent if each.at < until)
