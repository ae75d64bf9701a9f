"""The schemas with which records were written, from a schema registry by the API that Confluent's has, and Apicurio's.

Each value begins with a byte 0 and four bytes that name its schema. A plan knows the schemas of the topic's subject,
"TOPIC-value", when it is made. A record with another one ends the query, and the plan that follows has its schema: a
schema registered later loses no record. What the registry does not have, or what Spark can't read, is noted, and its
records are malformed. Where the registry does not answer, the query waits.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import re
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from functools import cache
from http.client import HTTPException
from typing import Any
from urllib.parse import SplitResult, quote, unquote, urlsplit, urlunsplit

from qod_magics.errors import ApplicationError

#: Seconds for an answer.
ANSWER_S = 5.0
#: The newest versions of a subject that a plan knows from the start; older ones are asked for when records have them.
VERSIONS = 20
#: Unknown schema ids for which a query restarts, at most: garbage would restart it forever. Records with further ones
#: are malformed.
MOST_ABSENT = 16
#: How the message begins with which a query waits for a registry.
SILENT = "the schema registry must answer"
#: Bytes in front of a value: 0, and the id of its schema.
FRAME = 5
_VARIABLE = re.compile(r"\$\{(\w+)\}")
_VERSIONS = "/versions"
_MISSING = "the registry does not have it"
_ABSENT = object()  #: stands for the answer "not found"
_CONTENT = "application/vnd.schemaregistry.v1+json"
_ACCEPT = f"{_CONTENT}, application/json"
#: With what a registry answers to a schema that does not fit those of its subject, or is none.
_REFUSED = (409, 422)

_log = logging.getLogger(__name__)

Fetch = Callable[[str], Any]


class RegistryError(ApplicationError):
    """A registry that does not answer, or not as it should."""


class SchemaRegistry:
    """A registry behind a URL, `http://host:8081`; `${NAME}` in it is a variable of the environment.

    Raises ApplicationError: the URL is none of http or https.
    """

    def __init__(self, url: str) -> None:
        _parts(url)
        self._url = url

    def __repr__(self) -> str:
        return f"schema registry at {self.host}"

    @property
    def host(self) -> str:
        """Return where it is, without a login."""
        return urlsplit(self._url).netloc.rpartition("@")[2]

    def latest(self, subject: str) -> str:
        """Return the newest Avro schema of a subject. Raises RegistryError."""
        found = self.get(f"subjects/{quote(subject, safe='')}/versions/latest")
        if found is None:
            raise RegistryError(
                f"{self.host} must have the subject {subject!r}, got none; register its schema, or give --schema FILE",
                name=subject,
                rule="subject",
            )
        if why := unreadable(found):
            raise RegistryError(f"{subject!r} of {self.host} must be Avro by itself, but {why}; give --schema FILE")
        return str(found["schema"])

    def register(self, subject: str, schema: str) -> int:
        """Return the id of an Avro schema, which becomes the newest of a subject unless the subject has it. Raises
        RegistryError: the registry does not take it, or does not answer."""
        path = f"subjects/{quote(subject, safe='')}{_VERSIONS}"
        found = self._answer(path, json.dumps({"schema": schema}).encode())
        if not isinstance(found, dict) or not isinstance(found.get("id"), int):
            raise self._silent("no id")
        return int(found["id"])

    def get(self, path: str) -> Any:
        """Return an answer; None: not found. Raises RegistryError."""
        found = self._answer(path)
        if found is _ABSENT:
            return None
        if not _fits(path, found):
            raise self._silent(f"no {'versions' if path.endswith(_VERSIONS) else 'schema'}")
        return found

    def _answer(self, path: str, body: bytes | None = None) -> Any:
        """Return the answer to a question, or to a `body` that is sent; `_ABSENT`: not found."""
        url, login = self._address(path)
        sent = {} if body is None else {"Content-Type": _CONTENT}
        request = urllib.request.Request(url, body, headers={"Accept": _ACCEPT, **sent})
        if login:  # not to the host of a redirect
            request.add_unredirected_header("Authorization", f"Basic {login}")
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:
                found = json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                absent = body is None and error.code == 404 and _is_absent(error)
                refused = "" if body is None or error.code not in _REFUSED else _message(error)
            if absent:
                return _ABSENT
            if refused:
                raise RegistryError(
                    f"{path.split('/')[1]!r} of {self.host} must take the schema, got: {refused}; give one that fits",
                    name=unquote(path.split("/")[1]),
                    rule="compatible",
                ) from None
            raise self._silent(f"HTTP {error.code}") from None
        except urllib.error.URLError as error:
            raise self._silent(str(error.reason)) from None
        except (OSError, HTTPException, ValueError) as error:
            raise self._silent(f"{type(error).__name__}: {error}") from None
        return found

    def _silent(self, why: str) -> RegistryError:
        first = " ".join(why.split())[:120]
        return RegistryError(f"{SILENT} at {self.host}, got {first}; start it, or correct --registry", rule="answers")

    def _address(self, path: str) -> tuple[str, str]:
        """Return URL and login of a path."""

        def value(found: re.Match[str]) -> str:
            known = os.environ.get(found[1])
            if known is None:
                raise ApplicationError(
                    f"--registry must name variables of the environment that are set, got {found[0]}",
                    option="--registry",
                    rule="set",
                )
            return quote(known, safe="") if found.end() <= self._url.rfind("@") else known

        parts = _parts(_VARIABLE.sub(value, self._url))
        login, _, host = parts.netloc.rpartition("@")
        url = urlunsplit((parts.scheme, host, f"{parts.path.rstrip('/')}/{path}", parts.query, ""))
        return url, base64.b64encode(unquote(login).encode()).decode() if login else ""


def _parts(url: str) -> SplitResult:
    """Return the parts of a registry's URL. Raises ApplicationError, without the login: it is none of http or https, or
    its login has characters that end it."""
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = urlsplit("")
    if "@" in parts.path + parts.query + parts.fragment and parts.netloc:
        raise ApplicationError(
            f"the login of a schema registry must have /, ? and # quoted, got others before @{_shown(url)}; write %2F, "
            "%3F and %23, or ${NAME} for a variable of the environment",
            option="--registry",
            rule="quoted",
        )
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ApplicationError(
            f"a schema registry must be an http or https URL, got {_shown(url)!r}; such as http://localhost:8081",
            option="--registry",
            rule="http",
        )
    return parts


def _shown(url: str) -> str:
    return url.rpartition("@")[2]


def _is_absent(error: urllib.error.HTTPError) -> bool:
    """Return whether the registry itself answers "not found", not a proxy or a server of another path."""
    try:
        code = json.load(error)["error_code"]
    except (OSError, HTTPException, KeyError, TypeError, ValueError):
        return False
    return isinstance(code, int) and code // 100 == 404


def _message(error: urllib.error.HTTPError) -> str:
    """Return what a registry says of a schema that it refuses."""
    try:
        return " ".join(str(json.load(error)["message"]).split())[:200]
    except (OSError, HTTPException, KeyError, TypeError, ValueError):
        return f"HTTP {error.code}"


def _fits(path: str, found: Any) -> bool:
    """Tell whether an answer is what the API has at this path."""
    if path.endswith(_VERSIONS):
        return isinstance(found, list) and all(isinstance(each, int) for each in found)
    if not isinstance(found, dict) or not isinstance(found.get("schema"), str):
        return False
    return isinstance(found.get("id"), int) or not path.startswith("subjects/")


def unreadable(found: Mapping[str, Any]) -> str:
    """Return why a registered schema can't be read, as a clause about it; "": it can."""
    kind = str(found.get("schemaType") or "AVRO").upper()
    if kind != "AVRO":
        return f"it is {kind}"
    if found.get("references"):
        return "it refers to other schemas"
    try:
        json.loads(str(found["schema"]))
    except (KeyError, ValueError):
        return "it is no JSON"
    return ""


class Written:
    """The schemas with which the records of a topic were written, as far as they are known. Thread-safe; only `look`
    waits for the registry.

    Args:
        get: asks the registry, as `SchemaRegistry.get`.
        subject: of the topic's values.

    """

    def __init__(self, get: Fetch, subject: str) -> None:
        self._get, self.subject = get, subject
        self._looking = threading.Lock()
        self._changing = threading.Lock()
        self._known: dict[int, str] = {}
        self._absent: dict[int, str] = {}  #: by id, why its records can't be read
        self._wanted: set[int] = set()
        self._versions: set[int] = set()

    def __repr__(self) -> str:
        return f"{len(self._known)} schemas of {self.subject}"

    @property
    def known(self) -> dict[int, str]:
        """Return the writers' schemas by id."""
        with self._changing:
            return dict(self._known)

    @property
    def absent(self) -> dict[int, str]:
        """Return by id why its records can't be read: "it is PROTOBUF"."""
        with self._changing:
            return dict(self._absent)

    @property
    def closed(self) -> bool:
        """Tell whether records with an id that is not known are malformed without asking for each."""
        return len(self.absent) >= MOST_ABSENT

    def want(self, id: int) -> None:
        """Note the id of a schema that a record has: the next look asks for it."""
        with self._changing:
            if id not in self._known:
                self._wanted.add(id)

    def look(self) -> None:
        """Ask the registry for new versions of the subject, for the ids that are wanted, and again for those that it
        did not have. Raises RegistryError: it does not answer, and the plan needs what it has."""
        with self._looking:
            with self._changing:
                wanted, any_known = sorted(self._wanted), bool(self._known)
                missing = [id for id, why in self._absent.items() if why == _MISSING and id not in wanted]
            try:
                self._look_for_versions()
                for id in missing[-MOST_ABSENT:]:
                    self._take(id, self._get(f"schemas/ids/{id}"))
            except RegistryError:
                if not any_known or wanted:
                    raise
                _log.warning("%s: the schema registry does not answer; the schemas known are used", self.subject)
            for id in wanted:
                self._take(id, self._get(f"schemas/ids/{id}"))

    def why(self, id: int) -> str:
        """Return why records with this id can't be read, as a clause. One that was not asked for is wanted."""
        if id in self.known:
            return f"it is no Avro of schema {id}, or the stream's schema does not fit that one"
        if (why := self.absent.get(id)) is None:
            self.want(id)
            why = "too many ids were unknown; this one is asked for when the query restarts"
        return f"its schema {id} can't be used: {why}"

    def _look_for_versions(self) -> None:
        path = f"subjects/{quote(self.subject, safe='')}{_VERSIONS}"
        for version in sorted(self._get(path) or ())[-VERSIONS:]:
            if version not in self._versions and (found := self._get(f"{path}/{version}")) is not None:
                self._take(int(found["id"]), found)
                self._versions.add(version)

    def _take(self, id: int, found: Mapping[str, Any] | None) -> None:
        why = _MISSING if found is None else unreadable(found)
        with self._changing:
            self._wanted.discard(id)
            if why:
                self._absent[id] = why
            else:
                assert found is not None
                self._absent.pop(id, None)
                self._known[id] = str(found["schema"])


@cache
def registered(url: str, subject: str, schema: str) -> int:
    """Return the id of an Avro schema in a subject, for which the registry is asked once. Raises RegistryError."""
    return SchemaRegistry(url).register(subject, schema)


@cache
def written(url: str, subject: str) -> Written:
    """Return the schemas of a subject, which all queries share that read it."""
    return Written(SchemaRegistry(url).get, subject)
