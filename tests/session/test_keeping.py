"""Named sessions, without Spark or Kafka: which may begin, and what they are told."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError as ClientError
from confluent_kafka import KafkaException

from qod_magics.application.application import Application
from qod_magics.errors import KafkaError, TaskManagerError, UsageProblem
from qod_magics.named.manifest import FILE, VERSION, KeptStream, KeptTask, Manifest, read, write
from qod_magics.session.keeping import Keeper
from qod_magics.session.session import Session
from qod_magics.spark.changes.resuming import Resuming
from tests.application.frames import application, stream
from tests.raising import breaks
from tests.spark.fakes import cluster
from tests.texts import tells


@pytest.mark.parametrize("name", ["", "1st", "a b", "../other", "a" * 41, "a.b"])
def test_a_name_is_one_of_topics_and_directories(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageProblem, check=breaks("name", option="--name", value=name)):
        Keeper.open(name, str(tmp_path))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("place", "rule"), [(None, "checkpoints"), ("s3a://bucket/trips", "local")])
def test_the_manifest_needs_a_directory_that_stays(place: str | None, rule: str) -> None:
    with pytest.raises(UsageProblem, check=breaks(rule, option="--checkpoints")):
        Keeper.open("trips", place)


def test_a_take_over_is_of_a_named_session() -> None:
    with pytest.raises(UsageProblem, check=breaks(option="--name")):
        Session.up(take_over=True)


def test_a_session_that_is_held_is_refused_before_anything_starts(tmp_path: Path) -> None:
    Keeper.open("trips", str(tmp_path))
    with pytest.raises(UsageProblem, check=breaks("one holder", value=os.getpid())):
        Session.up(name="trips", checkpoints=str(tmp_path))


def test_a_session_keeps_its_id_and_others_have_their_own(tmp_path: Path) -> None:
    made = Keeper.open("trips", f"file:{tmp_path}")
    other = Keeper.open("zones", str(tmp_path))
    assert made.id != other.id
    write(made.directory, Manifest(VERSION, "trips", made.id))
    made.close()
    again = Keeper.open("trips", str(tmp_path))
    assert (again.id, again.lease.epoch) == (made.id, 2)


def test_a_manifest_of_a_later_release_stays_as_it_is_and_is_not_held(tmp_path: Path) -> None:
    (tmp_path / "trips").mkdir()
    text = json.dumps({"version": VERSION + 1})
    (tmp_path / "trips" / FILE).write_text(text)
    for _ in range(2):
        with pytest.raises(UsageProblem, check=breaks("version")):
            Keeper.open("trips", str(tmp_path))
    assert (tmp_path / "trips" / FILE).read_text() == text


class Runtime:
    """In the place of a runtime: what it keeps, and who asks before a start."""

    def __init__(self, manifest: Manifest | None = None) -> None:
        self.cluster = cluster()
        self.resuming = Resuming(self.cluster, manifest)
        self.deployer = SimpleNamespace(kept=lambda: dict(self.resuming.left))
        self.deployment = self.cluster.deployment
        self.at_close: Any = None


def begun(keeper: Keeper, runtime: Runtime, whole: Application, learned: Any = None) -> list[str]:
    """Begin to keep; returns who has taken the session over, once somebody has."""
    taken: list[str] = []
    controller: Any = SimpleNamespace(learned=learned, subscribe=lambda call: None)
    keeper.begin(runtime, controller, lambda: whole, taken.append)  # type: ignore[arg-type]
    return taken


def test_what_is_declared_and_what_has_not_returned_are_both_kept(tmp_path: Path) -> None:
    before = Manifest(
        VERSION,
        "trips",
        "trips-00ff00",
        streams={"a": KeptStream("1"), "b": KeptStream("2"), "gone": KeptStream("3")},
        tasks={"b": KeptTask(["b"], "", "", "")},
        learned={"of": "b"},
    )
    (tmp_path / "trips").mkdir()
    write(tmp_path / "trips", before)
    keeper = Keeper.open("trips", str(tmp_path))
    runtime = Runtime(keeper.manifest)
    begun(keeper, runtime, application(stream("a", priority=1)), learned={"of": "a"})
    runtime.cluster.before_start()
    found = read(keeper.directory)
    assert found is not None
    assert found.streams.keys() == {"a", "b"}
    assert found.tasks.keys() == {"b"}
    assert found.learned == {"of": "b"}, "what was learned of streams that have not returned is forgotten"
    runtime.resuming.forget("b")
    keeper.save()
    found = read(keeper.directory)
    assert found is not None
    assert (found.streams.keys(), found.learned) == ({"a"}, {"of": "a"})
    keeper.close()


def test_who_was_taken_over_starts_nothing_and_writes_nothing(tmp_path: Path) -> None:
    keeper = Keeper.open("trips", str(tmp_path))
    runtime = Runtime()
    begun(keeper, runtime, application())
    keeper.save()
    after = Keeper("trips", keeper.directory)
    after.lease.take(take_over=True, wait_s=0.1)
    with pytest.raises(TaskManagerError, check=breaks("held")):
        runtime.cluster.before_start()
    write(keeper.directory, Manifest(VERSION, "trips", "of the next one"))
    keeper.save()
    found = read(keeper.directory)
    assert found is not None
    assert found.id == "of the next one"
    keeper.close()


def test_restrictions_that_differ_from_those_that_were_set_are_told_once(tmp_path: Path) -> None:
    keeper = Keeper("trips", tmp_path)
    keeper.manifest = Manifest(
        VERSION, "trips", "i", streams={"a": KeptStream("1", restrictions={"priority": 3, "min_accuracy": 0.4})}
    )
    cell = stream("a", priority=2, min_accuracy=0.4)
    (told,) = keeper.compared(cell)
    assert "3" in told
    assert "2" in told
    assert keeper.compared(cell) == ()
    assert keeper.compared(stream("new", priority=1)) == ()


def test_a_broker_that_does_not_answer_is_no_other_cluster(tmp_path: Path) -> None:
    def silent(timeout: float) -> None:
        raise KafkaException(ClientError(ClientError._TRANSPORT))

    kafka: Any = SimpleNamespace(admin=lambda: SimpleNamespace(list_topics=silent), bootstrap="broker:1")
    with pytest.raises(KafkaError, check=breaks("answers")):
        Keeper.open("trips", str(tmp_path)).uses(kafka)


class Ided:
    """A Kafka cluster that tells its id."""

    bootstrap = "broker:1"

    def __init__(self, id: str) -> None:
        self._id = id

    def admin(self) -> Any:
        return SimpleNamespace(list_topics=lambda timeout: SimpleNamespace(cluster_id=self._id))


@pytest.mark.parametrize(
    ("before", "now", "told"),
    [
        ("A", ["A"], None),
        ("A B", ["A", "B"], None),
        ("A", ["A", "A"], None),
        ("", ["A"], None),
        ("A", ["B"], ("another Kafka cluster", "(A)", "qod.i.a.out.1")),
        ("A", ["A", "B"], ("own topics", "your Kafka is the same", "(A)", "qod.i.a.out.1")),
        ("A B", ["A", "C"], ("own topics", "your Kafka is the same", "(B)", "qod.i.a.out.1")),
        ("A B", ["C", "B"], ("your Kafka is another", "same")),
        ("A B", ["C", "D"], ("another Kafka cluster", "(B)", "qod.i.a.out.1")),
    ],
)
def test_of_two_clusters_it_says_which_is_another(
    tmp_path: Path, before: str, now: list[str], told: tuple[str, ...] | None
) -> None:
    keeper = Keeper("trips", tmp_path)
    kept = KeptTask(["a"], "", "", "", results="qod.i.a.out.1")
    keeper.manifest = Manifest(VERSION, "trips", "i", kafka=before, tasks={"a": kept})
    notes = keeper.uses(*map(Ided, now))  # type: ignore[arg-type]
    assert keeper.same_kafka is (told is None)
    assert len(notes) == (told is not None)
    assert all(tells(note, *told or ()) for note in notes)
    assert all(("qod.i.a.out.1" in note) == (before.split(" ")[-1] != now[-1]) for note in notes)
