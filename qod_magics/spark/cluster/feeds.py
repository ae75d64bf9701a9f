"""What tasks read: for each feed its topic, its partitions, which instance reads which of them, and its row accounting.

A feed is what one task reads of one topic: of a source, or of the stream that another task sends. Nothing here asks the
broker or Spark.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from qod_magics.application.tasks import TaskSpec
from qod_magics.spark.cluster.books import Account
from qod_magics.spark.plans.checking import Checked
from qod_magics.spark.plans.job import feeds_of, reader

#: The partitions of one topic that each instance reads, in ascending order.
Assignment: TypeAlias = tuple[tuple[int, ...], ...]


def assigned(
    partitions: int, instances: int, before: Sequence[Iterable[int]] = (), *, some: bool = False
) -> Assignment:
    """Assign partitions 0, 1, ... to instances: each partition to exactly one, and to each instance as many as to any
    other, or one more.

    Instances keep as many of their partitions as that allows, so that few instances change. Without an assignment
    `before`, partition p goes to instance p mod `instances`. More partitions take none away from a balanced assignment
    to as many instances. `some`: with fewer partitions than instances, some instances get none.

    Raises:
        ValueError: there are fewer partitions than instances, and not `some`; or no instances.

    """
    if not 0 < instances <= (max(instances, 1) if some else partitions):
        raise ValueError(f"{partitions} partitions can't be assigned to {instances} instances: each needs one")
    share, larger = divmod(partitions, instances)
    had = [sorted(p for p in each if p < partitions) for each in before[:instances]]
    kept: list[list[int]] = [[] for _ in range(instances)]
    for index in sorted(range(len(had)), key=lambda index: -len(had[index])):  # the larger shares go to whoever has one
        most = share + (larger > 0 and len(had[index]) > share)
        larger -= most > share
        kept[index] = had[index][:most]
    left = sorted(set(range(partitions)).difference(*kept))
    for partition in left:
        kept[min(range(instances), key=lambda index: len(kept[index]))].append(partition)
    return tuple(tuple(sorted(each)) for each in kept)


@dataclass(slots=True)
class Pipe:
    """A stream between two tasks: one Kafka topic, with a partition or more for each instance of the consumer."""

    name: str  #: "from>to"
    source: str
    target: str
    topic: str
    partitions: int
    key: str | None

    @property
    def begin(self) -> dict[int, int]:
        """Return the first offset of each partition."""
        return dict.fromkeys(range(self.partitions), 0)


#: The fields of `Feeds` that a change of the application replaces.
FEED_BOOKS = ("pipes", "source_partitions", "assignments", "accounts")


@dataclass(slots=True, kw_only=True)
class Feeds:
    """The feeds of the tasks that run, by name. Only its own methods write its fields."""

    pipes: dict[str, Pipe] = field(default_factory=dict)  #: of those from another task
    source_partitions: dict[str, int] = field(default_factory=dict)  #: of those from a source
    assignments: dict[str, Assignment] = field(default_factory=dict)  #: of those whose reader was scaled
    accounts: dict[str, Account] = field(default_factory=dict)
    checked: Checked = field(default_factory=Checked)  #: facts about the tasks

    def partitions(self, feed: str) -> int:
        """Return the number of partitions of a feed's topic."""
        pipe = self.pipes.get(feed)
        return self.source_partitions[feed] if pipe is None else pipe.partitions

    def topics(self) -> list[str]:
        """Return the topics of sources and streams, whose end offsets are sampled."""
        return sorted({account.topic for account in self.accounts.values() if account.gone is None})

    def deleted_feeds(self, task: str) -> list[str]:
        """Return the feeds of a task whose topics were deleted."""
        return [name for name, account in self.accounts.items() if account.gone is not None and reader(name) == task]

    def accounts_of(self, task: str) -> dict[str, Account]:
        """Return the accounts of what a task reads, by feed."""
        return {name: account for name, account in self.accounts.items() if reader(name) == task}

    def instances(self, spec: TaskSpec) -> int:
        """Return how many instances a task has: as declared, until it is scaled."""
        return next(
            (len(self.assignments[name]) for name in feeds_of(spec) if name in self.assignments), spec.parallelism
        )

    def assignment(self, feed: str, spec: TaskSpec) -> Assignment:
        """Return which partitions of a feed each instance of the task that reads it has."""
        before, some = self.assignments.get(feed, ()), spec.pattern is not None
        return assigned(self.partitions(feed), self.instances(spec), before, some=some)

    def max_parallelism(self, spec: TaskSpec) -> int:
        """Return to how many instances a task can be scaled: a topic of the user's keeps its partitions, streams get
        more."""
        feeds = feeds_of(spec)
        table = self.checked.tables.get(spec.id)
        if (table is not None and table.by_insert) or (spec.sink is not None and spec.sink.file_log):
            return 1
        topics = [self.source_partitions[name] for name in feeds if name in self.source_partitions]
        if topics:
            most = min(topics) if spec.pattern is None else max(topics)
            return min(spec.stated_max_parallelism or most, most)
        return spec.max_parallelism if feeds else 1

    def grown_to(self, spec: TaskSpec) -> int:
        """Return how many partitions streams to a task get once there are too few of them: enough for all later
        rescaling, so that senders restart once, and few enough for instances to share them evenly."""
        return max(self.max_parallelism(spec), spec.partitions)

    def assignments_for(self, spec: TaskSpec, instances: int) -> dict[str, Assignment]:
        """Return the assignment of a task's partitions to another number of instances, by feed. A stream with too few
        partitions counts with those that `grown_to` says."""
        found = {}
        for name in feeds_of(spec):
            there, some = self.partitions(name), spec.pattern is not None
            found[name] = assigned(
                self.grown_to(spec) if there < instances and not some else there,
                instances,
                self.assignment(name, spec),
                some=some,
            )
        return found

    def replace_feeds(
        self, pipes: dict[str, Pipe], accounts: Mapping[str, Account], deleted: Mapping[str, Account]
    ) -> None:
        """Make these the feeds, given their accounts and those of feeds whose topics were deleted. The feeds that stay
        keep their assignments."""
        self.pipes, self.accounts = pipes, {**deleted, **accounts}
        self.assignments = {name: assignment for name, assignment in self.assignments.items() if name in accounts}
        self.source_partitions = {name: len(each.first) for name, each in accounts.items() if name not in pipes}

    def restore_feeds(self, before: Feeds) -> None:
        """Return to the feeds and facts of `before`, whose accounts are shared."""
        self.pipes, self.source_partitions = dict(before.pipes), dict(before.source_partitions)
        self.assignments, self.accounts = dict(before.assignments), dict(before.accounts)
        self.know(before.checked)

    def know(self, checked: Checked) -> None:
        """Replace the facts about the tasks."""
        self.checked = checked

    def enter_feed(
        self, feed: str, account: Account, partitions: int, upstream: str | None, assignment: Assignment | None
    ) -> None:
        """Enter a feed, given its topic's partitions, the task that sends it (None: it is a source's) and their
        assignment (None: as declared)."""
        self.count_on(feed, account)
        if upstream is None:
            self.source_partitions[feed] = partitions
        else:
            self.pipes[feed] = Pipe(feed, upstream, reader(feed), account.topic, partitions, None)
        if assignment is not None:
            self.assignments[feed] = assignment

    def count_on(self, feed: str, account: Account) -> None:
        """Go on with this account of a feed."""
        self.accounts[feed] = account

    def read_topic(self, feed: str, topic: str, first: Mapping[int, int]) -> None:
        """Read a source's topic from these offsets. If one of this name was deleted, its account goes on."""
        self.count_on(feed, self.accounts.get(feed, Account(topic, {})).reopened(topic, first))
        self.source_partitions[feed] = len(first)

    def assign_as_declared(self, tasks: Collection[str]) -> None:
        """Let these tasks have the instances that they were declared with."""
        self.assignments = {name: each for name, each in self.assignments.items() if reader(name) not in tasks}

    def reassign(self, spec: TaskSpec, instances: int) -> set[str]:
        """Assign partitions as `assignments_for` says; the topics have them by now. Return the tasks that send to
        streams with more partitions than before."""
        self.assignments |= self.assignments_for(spec, instances)
        senders = set()
        for name, pipe in self.pipes.items():
            there = sum(map(len, self.assignments.get(name, ())))
            if pipe.target == spec.id and there > pipe.partitions:
                pipe.partitions = there
                self.accounts[name].first.update({p: 0 for p in range(there) if p not in self.accounts[name].first})
                senders.add(pipe.source)
        return senders

    def read_more(self, grown: Mapping[str, int]) -> None:
        """Take note of the numbers of partitions of these feeds, which have got more: read from their first rows."""
        self.source_partitions |= grown
        for name, count in grown.items():
            first = self.accounts[name].first
            first.update({partition: 0 for partition in range(count) if partition not in first})

    def read_no_more(self, ends: Mapping[str, Mapping[int, int]]) -> None:
        """Take note that the topics of these feeds were deleted, given where each ended. Their accounts stay."""
        for name, end in ends.items():
            self.accounts[name].gone = dict(end)
            self.source_partitions.pop(name, None)
            self.assignments.pop(name, None)

    def rename(self, before: str, after: str) -> None:
        """Give a feed another name, that of its new reader; its offsets stay."""
        books: Sequence[dict[str, Any]] = (self.pipes, self.accounts, self.source_partitions, self.assignments)
        for book in books:
            if before in book:
                moved = {after if name == before else name: each for name, each in book.items()}
                book.clear()
                book.update(moved)
        if after in self.pipes:
            self.pipes[after] = replace(self.pipes[after], name=after, target=reader(after))
