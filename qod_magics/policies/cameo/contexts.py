"""What travels with messages and their acknowledgements, and who fills it in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from qod_magics.core.dispatch import Message, Topology


@dataclass(slots=True, eq=False)
class PriorityContext:
    """PC of a message. Its progress, observed time and latency target are those of the message and its job."""

    local: int  #: order within its operator: frontier progress
    priority: int  #: order among operators: of the message at the head
    source: int  #: stream whose progress map applies; -1: none


@dataclass(slots=True, eq=False)
class ReplyContext:
    """RC of an acknowledgement, from the operator that has run the message to its sender."""

    sender: int  #: operator that the reply is for, or a source's stream: `core.dispatch.channel_of`
    operator: int  #: that replies
    cost: int  #: of a message on it, ns
    after: int  #: on the longest path from it to a sink, ns
    size: int = 0  #: class of batch sizes that the cost is of


class ContextPolicy(Protocol):
    """How priorities are made: four functions at sources and operators (2.4)."""

    def begin(self, topology: Topology) -> None:
        """Once, before all others."""
        ...

    def build_at_source(self, now: int, message: Message) -> PriorityContext:
        """Of a message that a source is about to send."""
        ...

    def build_at_operator(self, message: Message, trigger: Message | None) -> PriorityContext:
        """Of a message that an operator is about to send, having run `trigger`."""
        ...

    def prepare_reply(self, message: Message, took: int) -> ReplyContext | None:
        """At an operator that has run a message for `took` ns; None: the sender knows all that it would say."""
        ...

    def process_reply(self, reply: ReplyContext) -> None:
        """At the sender."""
        ...
