"""The ends of all sources of a session, and which of its Kafka clusters do not answer.

Each cluster is asked, whatever the sources are: sinks and results are written to one from which nothing may be read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from qod_magics.errors import KafkaError
from qod_magics.kafka.topics import check_answers
from qod_magics.sources.registry import Sources
from qod_magics.sources.source import Position, is_topic, kind_and_place

#: Timeout for the answer of a cluster from which nothing is read, seconds.
ANSWER_S = 2.0


@dataclass(frozen=True, slots=True)
class Ends:
    """The answers of one round."""

    found: Mapping[str, Position]  #: by source
    missing: Mapping[str, str]  #: sources whose ends are not known, and why; or what more is not read of them
    silent: Mapping[str, KafkaError]  #: clusters that do not answer, by their addresses
    unread: KafkaError | None  #: topics are to be read, and no cluster answers


def ends_of(sources: Sources, names: Iterable[str]) -> Ends:
    """Ask each Kafka cluster, and return the ends of these sources. The topics of a silent cluster are missing."""
    names = list(names)
    context, silent = sources.context, dict[str, KafkaError]()
    found, missing = sources.ends(name for name in names if not is_topic(name))
    topics = [name for name in names if is_topic(name)]
    for kafka in context.clusters:
        there = [name for name in topics if context.of(kind_and_place(name)[1]) is kafka]
        try:
            if there:
                ends, lacking = sources.ends(there)
            else:
                check_answers(kafka, timeout_s=ANSWER_S)
                continue
        except KafkaError as error:
            silent[kafka.bootstrap] = error
            missing |= dict.fromkeys(there, str(error))
        else:
            found |= ends
            missing |= lacking
    unread = next(iter(silent.values())) if topics and len(silent) == len(context.clusters) else None
    return Ends(found, missing, silent, unread)
