"""The Kafka clusters of a session: the user's or an embedded broker, and perhaps a second one for its own topics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from qod_magics.errors import UsageProblem
from qod_magics.kafka.broker import EmbeddedBroker
from qod_magics.kafka.cluster import ExternalKafka, Kafka
from qod_magics.kafka.topics import id_of, topic_partitions

#: Timeout for the first answer of the user's cluster.
ANSWER_S = 10.0


def configure(
    bootstrap: str | None, options: Mapping[str, str] | None, cpus: set[int] | None = None, prefix: str = ""
) -> Kafka:
    """Return the user's cluster, not yet connected to, or an embedded broker, not yet started: nothing is downloaded or
    run.

    Args:
        bootstrap: `host:port` of the user's cluster; None means an embedded broker.
        options: client options in librdkafka's names.
        cpus: cores for the embedded broker, default all.
        prefix: of the session's own topics and consumer groups on the user's cluster.

    Raises:
        KafkaError: `bootstrap` is not of that form, or Spark does not support an option.
        UsageProblem: an option is for the other kind of broker, or the prefix can't be one.

    """
    if bootstrap is None and options:
        raise UsageProblem(
            f"--kafka-option {next(iter(options))} is for your own broker: name it, --kafka HOST:PORT",
            rule="own broker",
        )
    if bootstrap is not None and cpus is not None:
        raise UsageProblem(
            "--kafka-cpus pins the broker that is started here, and --kafka names yours: leave one out",
            rule="embedded broker",
        )
    if bootstrap is None:
        return EmbeddedBroker(cpus=cpus)
    kafka = ExternalKafka(bootstrap, options, prefix)
    kafka.spark_options()  # one that Spark does not support is refused before anything starts
    return kafka


def access(kafka: Kafka) -> Kafka:
    """Start the embedded broker, or connect to the user's cluster; return `kafka` once it answers.

    Raises:
        SetupError, KafkaError: nothing is left running.

    """
    if isinstance(kafka, EmbeddedBroker):
        kafka.start()
    else:
        topic_partitions(kafka, timeout_s=ANSWER_S)
    return kafka


def _servers(kafka: Kafka) -> set[str]:
    return set(kafka.bootstrap.lower().split(","))


#: Of `--internal-kafka`: the session starts that broker.
STARTED = "own"


@dataclass(frozen=True, slots=True)
class Clusters:
    """The Kafka clusters of a session: one, or two where it makes no topic on the user's.

    Make it by `of`; nothing is downloaded or run before `access`.
    """

    users: Kafka  #: has the topics that cells name, of sources and of sinks
    internal: Kafka | None = None  #: has those that the session makes for itself; None: `users` has them, too

    @classmethod
    def of(
        cls,
        bootstrap: str | None,
        options: Mapping[str, str] | None,
        internal: str | None = None,
        internal_options: Mapping[str, str] | None = None,
        cpus: set[int] | None = None,
        prefix: str = "",
    ) -> Clusters:
        """Return the clusters that a session is asked to use.

        Args:
            bootstrap: `host:port` of the user's cluster; None means an embedded broker.
            options: its client options in librdkafka's names.
            internal: `host:port` of the cluster for the session's own topics, or "own", an embedded broker; None: there
                is none.
            internal_options: as `options`.
            cpus: cores for the embedded broker, default all.
            prefix: as of `configure`, on each cluster of the user's.

        Raises KafkaError, UsageProblem: as `configure`, or an option lacks the one that it goes with.

        """
        if internal is not None and bootstrap is None:
            raise UsageProblem(
                "--internal-kafka must go with a broker of yours, on which the session makes no topic, got none; name "
                "it, --kafka HOST:PORT",
                option="--internal-kafka",
                rule="own broker",
            )
        if internal_options and internal in (None, STARTED):
            raise UsageProblem(
                f"--internal-kafka-option {next(iter(internal_options))} must go with a broker of yours, got "
                f"{'none' if internal is None else internal}; name it, --internal-kafka HOST:PORT",
                option="--internal-kafka-option",
                rule="own broker",
            )
        if prefix and bootstrap is None:
            raise UsageProblem(
                f"--kafka-prefix {prefix} must go with a broker of yours, got none; name it, --kafka HOST:PORT",
                option="--kafka-prefix",
                rule="own broker",
            )
        if internal is None:
            return cls(configure(bootstrap, options, cpus, prefix))
        users = configure(bootstrap, options, prefix=prefix)
        own = configure(None if internal == STARTED else internal, internal_options, cpus, prefix)
        if internal != STARTED and (both := _servers(users) & _servers(own)):
            raise _same(min(both), min(both))
        return cls(users, own)

    @property
    def own(self) -> Kafka:
        """Return the cluster with the topics that the session makes for itself."""
        return self.internal or self.users

    @property
    def embedded(self) -> EmbeddedBroker | None:
        """Return the broker that the session starts; None: there is none."""
        return self.own if isinstance(self.own, EmbeddedBroker) else None

    @property
    def all(self) -> tuple[Kafka, ...]:
        """Return the clusters, the user's first."""
        return (self.users,) if self.internal is None else (self.users, self.internal)

    def access(self) -> Clusters:
        """Start or connect to each: see `access`.

        Raises:
            SetupError, KafkaError: nothing is left running.
            UsageProblem: both are the same cluster, under two addresses.

        """
        for kafka in self.all:
            access(kafka)
        if self.internal is not None and not isinstance(self.internal, EmbeddedBroker):
            users, own = (id_of(kafka, timeout_s=ANSWER_S) for kafka in self.all)
            if users and users == own:
                raise _same(self.users.bootstrap, self.internal.bootstrap)
        return self


def _same(users: str, internal: str) -> UsageProblem:
    both = f"{users} for both" if users == internal else f"{internal}, which is the same cluster as {users}"
    return UsageProblem(
        f"--internal-kafka must be another broker than --kafka, got {both}; name another, or leave it out",
        option="--internal-kafka",
        value=internal,
        rule="another broker",
    )
