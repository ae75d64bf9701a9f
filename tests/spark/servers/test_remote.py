"""What a user says of servers, and of which of them it is."""

from __future__ import annotations

from typing import Any

import pytest

from qod_magics.errors import UsageProblem
from qod_magics.spark.servers.connection import Ours
from qod_magics.spark.servers.remote import Remote, asked_for, remotes
from tests.raising import breaks

A, B = "sc://a:1", "sc://b:2"
TOKEN = {"Authorization": "Bearer s3cret"}


@pytest.mark.parametrize(
    ("urls", "local", "cores", "of_local", "of_servers"),
    [
        ([], 1, None, None, []),
        ([], 2, [2], 2, []),
        ([], 2, 2, 2, []),
        ([A], 0, None, None, [None]),
        ([A], 0, 4, None, [4]),
        ([A, B], 0, [4], None, [4, 4]),
        ([A, B], 0, [4, 8], None, [4, 8]),
        ([A, B], 1, [2], 2, [None, None]),
        ([A, B], 1, [2, 4], 2, [4, 4]),
        ([A, B], 1, [2, 4, 8], 2, [4, 8]),
    ],
)
def test_cores_are_of_the_local_ones_and_of_each_server(
    urls: list[str], local: int, cores: Any, of_local: int | None, of_servers: list[int | None]
) -> None:
    found, servers = remotes(urls, local, cores, (), {})
    assert (found, [each.cores for each in servers], [each.url for each in servers]) == (of_local, of_servers, urls)


def test_headers_go_to_the_uis_that_are_named_and_nowhere_else() -> None:
    _, servers = remotes([A, B], 0, 2, ["none", "https://b:4040"], TOKEN)
    assert [(each.ui, each.headers) for each in servers] == [("", {}), ("https://b:4040", TOKEN)]
    assert "s3cret" not in repr(servers)
    assert "token" not in repr(Remote(f"{A}/;token=s3cret"))


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ({"cores": [1, 2]}, "one for each"),
        ({"urls": [A, B], "local": 0, "cores": [1, 2, 3]}, "one for each"),
        ({"urls": [A], "local": 1, "cores": [1, 2, 3]}, "one for each"),
        ({"urls": [A], "local": 0, "uis": ["http://a", "http://b"]}, "one for each"),
        ({"urls": [A, B], "local": 0, "uis": ["http://a"]}, "one for each"),
        ({"urls": [A], "local": 0, "uis": ["a:4040"]}, "http://HOST:PORT"),
        ({"urls": [A], "local": 0, "headers": TOKEN}, "a UI"),
        ({"urls": [A], "local": 0, "cores": 0}, "positive"),
        ({"urls": ["a:1"], "local": 0}, "sc://HOST:PORT"),
    ],
)
def test_what_is_of_no_server_is_refused_in_one_line(given: dict[str, Any], rule: str) -> None:
    asked: dict[str, Any] = {"urls": [], "local": 1, "cores": None, "uis": (), "headers": {}, **given}
    with pytest.raises(UsageProblem, check=breaks(rule)) as caught:
        remotes(**asked)
    assert "s3cret" not in str(caught.value)


def test_the_server_of_the_environment_is_one_that_we_did_not_put_there(
    monkeypatch: pytest.MonkeyPatch, ours: Ours
) -> None:
    monkeypatch.delenv("SPARK_REMOTE", raising=False)
    assert asked_for() is None
    monkeypatch.setenv("SPARK_REMOTE", "local[2]")
    assert asked_for() is None
    monkeypatch.setenv("SPARK_REMOTE", A)
    assert asked_for() == A
    ours.remote = A
    assert asked_for() is None
