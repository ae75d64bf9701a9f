"""The client of schema registries, against a small HTTP server that speaks their API."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator

import pytest

from qod_magics.errors import ApplicationError
from qod_magics.formats.schema_registry import (
    MOST_ABSENT,
    SILENT,
    VERSIONS,
    RegistryError,
    SchemaRegistry,
    Written,
)
from tests.formats.registry_server import Registry, served

SCHEMA = {"type": "record", "name": "T", "fields": [{"name": "a", "type": "int"}]}
WIDER = {**SCHEMA, "fields": [*SCHEMA["fields"], {"name": "b", "type": "string", "default": ""}]}  # type: ignore[misc]


@pytest.fixture
def registry() -> Iterator[Registry]:
    with served() as found:
        yield found


def written(registry: Registry) -> Written:
    return Written(SchemaRegistry(registry.url).get, "t-value")


def test_the_newest_schema_of_a_subject_is_found(registry: Registry) -> None:
    registry.register("t-value", SCHEMA)
    registry.register("t-value", WIDER)
    assert '"b"' in SchemaRegistry(registry.url).latest("t-value")


@pytest.mark.parametrize("more", [{"schemaType": "PROTOBUF"}, {"references": [{"name": "x"}]}])
def test_a_subject_that_is_no_avro_by_itself_is_refused(registry: Registry, more: dict[str, object]) -> None:
    registry.register("t-value", SCHEMA, **more)
    with pytest.raises(RegistryError):
        SchemaRegistry(registry.url).latest("t-value")


def test_a_subject_that_is_not_there_is_refused(registry: Registry) -> None:
    with pytest.raises(RegistryError) as caught:
        SchemaRegistry(registry.url).latest("t-value")
    assert (caught.value.name, caught.value.rule) == ("t-value", "subject")


def test_a_registry_that_is_down_or_broken_is_one_line(registry: Registry) -> None:
    registry.broken = True
    for url in (registry.url, "http://127.0.0.1:9"):
        with pytest.raises(RegistryError) as caught:
            SchemaRegistry(url).latest("t-value")
        assert caught.value.rule == "answers"
        assert SILENT in str(caught.value)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("url", ["localhost:8081", "ftp://host", "http://", ""])
def test_a_url_of_another_kind_is_refused(url: str) -> None:
    with pytest.raises(ApplicationError) as caught:
        SchemaRegistry(url)
    assert caught.value.option == "--registry"


def test_a_login_is_sent_from_the_environment_and_not_shown(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.register("t-value", SCHEMA)
    registry.login = "Basic " + base64.b64encode(b"me:p@ss:/word").decode()
    url = registry.url.replace("http://", "http://${SR_USER}:${SR_PASSWORD}@")
    with pytest.raises(ApplicationError) as caught:
        SchemaRegistry(url).latest("t-value")
    assert caught.value.rule == "set"
    monkeypatch.setenv("SR_USER", "me")
    monkeypatch.setenv("SR_PASSWORD", "p@ss:/word")
    found = SchemaRegistry(url)
    assert '"a"' in found.latest("t-value")
    assert "p@ss" not in repr(found)


def test_versions_are_known_from_the_start_and_others_once_they_are_wanted(registry: Registry) -> None:
    ids = [registry.register("t-value", SCHEMA) for _ in range(VERSIONS + 2)]
    other = registry.register(None, WIDER)
    schemas = written(registry)
    schemas.look()
    assert list(schemas.known) == ids[2:]
    for id in (ids[0], other, 999):
        schemas.want(id)
    schemas.look()
    assert set(schemas.known) == {*ids[2:], ids[0], other}
    assert list(schemas.absent) == [999]
    assert "999" in schemas.why(999)
    asked = len(registry.asked)
    schemas.look()
    assert len(registry.asked) == asked + 2  # for new versions, and for 999


def test_what_is_known_serves_while_the_registry_is_down_unless_more_is_wanted(registry: Registry) -> None:
    id = registry.register("t-value", SCHEMA)
    schemas = written(registry)
    registry.broken = True
    with pytest.raises(RegistryError):
        schemas.look()
    registry.broken = False
    schemas.look()
    registry.broken = True
    schemas.look()
    assert list(schemas.known) == [id]
    schemas.want(7)
    for _ in range(2):  # it stays wanted
        with pytest.raises(RegistryError):
            schemas.look()
    registry.broken = False
    schemas.look()
    assert list(schemas.absent) == [7]


def test_after_many_unknown_schemas_a_query_no_longer_asks_for_each(registry: Registry) -> None:
    schemas = written(registry)
    for id in range(100, 100 + MOST_ABSENT):
        assert not schemas.closed
        schemas.want(id)
        schemas.look()
    assert schemas.closed
    late = registry.register(None, WIDER, id=5)
    assert "restarts" in schemas.why(late)
    schemas.look()  # as each start of the query does
    assert late in schemas.known


def test_a_login_does_not_follow_a_redirect(registry: Registry) -> None:
    registry.register("t-value", SCHEMA)
    with served() as first:
        first.elsewhere = registry.url
        assert SchemaRegistry(first.url.replace("http://", "http://me:secret@")).latest("t-value")
        assert "authorization" in first.headers[0]
    assert "authorization" not in registry.headers[0]


@pytest.mark.parametrize(
    ("url", "rule"),
    [
        ("https://KEY:sec/ret@host", "quoted"),
        ("https://KEY:sec?ret@host", "quoted"),
        ("https://KEY:sec#ret@host:8081", "quoted"),
        ("KEY:secret@host:8081", "http"),
        ("ftp://KEY:secret@host", "http"),
        ("https://KEY:sec[ret@host", "http"),
    ],
)
def test_a_url_that_is_refused_shows_no_login(url: str, rule: str) -> None:
    with pytest.raises(ApplicationError) as caught:
        SchemaRegistry(url)
    assert (caught.value.option, caught.value.rule) == ("--registry", rule)
    assert "KEY" not in str(caught.value)
    assert "sec" not in str(caught.value)
    assert "host" in str(caught.value)


def test_host_and_path_of_a_url_with_a_login_may_be_a_variable(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.register("t-value", SCHEMA)
    registry.login = "Basic " + base64.b64encode(b"me:p@ss").decode()
    place = registry.url.partition("//")[2] + "/"
    for name, value in (("SR_USER", "me"), ("SR_PASSWORD", "p@ss"), ("SR_PLACE", place)):
        monkeypatch.setenv(name, value)
    assert SchemaRegistry("http://${SR_USER}:${SR_PASSWORD}@${SR_PLACE}").latest("t-value")
    monkeypatch.setenv("SR_WHOLE", "KEY:sec/ret@host")
    with pytest.raises(ApplicationError) as caught:
        SchemaRegistry("http://${SR_WHOLE}").latest("t-value")
    assert "ret" not in str(caught.value)


@pytest.mark.parametrize(
    "answer",
    [
        (404, {"message": "Not Found"}),
        (404, {"error_code": 404000}),
        (404, "nothing here"),
        (404, []),
        (200, {"status": "ok"}),
        (200, {"schema": {"type": "int"}}),
        (200, [1, "2"]),
        (200, None),
    ],
)
def test_what_is_not_of_the_registry_is_no_answer(registry: Registry, answer: tuple[int, object]) -> None:
    schemas = written(registry)
    schemas.want(7)
    registry.answers = answer
    with pytest.raises(RegistryError) as caught:
        schemas.look()
    assert caught.value.rule == "answers"
    for path in ("schemas/ids/7", "subjects/t-value/versions/1"):
        with pytest.raises(RegistryError):
            SchemaRegistry(registry.url).get(path)
    registry.answers = None
    registry.register(None, WIDER, id=7)
    schemas.look()
    assert list(schemas.known) == [7]


def test_ids_that_a_registry_did_not_have_are_asked_for_again(registry: Registry) -> None:
    schemas = written(registry)
    ids = range(100, 100 + MOST_ABSENT)
    for id in ids:
        schemas.want(id)
    schemas.look()
    assert schemas.closed
    for id in ids:
        registry.register(None, SCHEMA, id=id)
    schemas.look()
    assert not schemas.closed
    assert set(schemas.known) == set(ids)


def test_a_registry_that_is_down_when_it_is_asked_again_changes_nothing(registry: Registry) -> None:
    id = registry.register("t-value", SCHEMA)
    schemas = written(registry)
    schemas.want(9)
    schemas.look()
    registry.broken = True
    schemas.look()
    assert (list(schemas.known), list(schemas.absent)) == ([id], [9])


def test_what_is_known_can_be_read_while_the_registry_is_slow(registry: Registry) -> None:
    """Sessions explain malformed values under a lock."""
    asked, answer = threading.Event(), threading.Event()
    get = SchemaRegistry(registry.url).get

    def slow(path: str) -> object:
        asked.set()
        assert answer.wait(10)
        return get(path)

    schemas = Written(slow, "t-value")
    looking = threading.Thread(target=schemas.look)
    looking.start()
    assert asked.wait(10)
    schemas.want(3)
    assert "schema 3" in schemas.why(3)
    assert not schemas.known
    answer.set()
    looking.join(10)
    schemas.look()
    assert list(schemas.absent) == [3]


def test_a_schema_is_registered_once_and_one_that_does_not_fit_is_one_line(registry: Registry) -> None:
    client, text = SchemaRegistry(registry.url), json.dumps(SCHEMA, separators=(",", ":"))
    first = client.register("t-value", text)
    assert client.register("t-value", text) == first
    assert client.latest("t-value") == text
    registry.refuses = "Schema being registered is incompatible"
    with pytest.raises(RegistryError, match="incompatible") as caught:
        client.register("t-value", json.dumps(WIDER))
    assert (caught.value.name, caught.value.rule) == ("t-value", "compatible")
    registry.broken = True
    with pytest.raises(RegistryError) as caught:
        client.register("t-value", text)
    assert caught.value.rule == "answers"
