"""A small HTTP server that speaks the API of a schema registry, as far as readers use it. It is no registry: there is
none among the packages of the tests."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Registry:
    """Subjects with versions of schemas, behind a URL."""

    def __init__(self) -> None:
        self.schemas: dict[int, dict[str, Any]] = {}  #: by id
        self.subjects: dict[str, list[int]] = {}
        self.asked: list[str] = []  #: paths, in their order
        self.login: str | None = None  #: the header that is asked for
        self.headers: list[dict[str, str]] = []  #: of what was asked, with names in lower case
        self.answers: tuple[int, Any] | None = None  #: status and body for all paths
        self.elsewhere: str | None = None  #: the URL that it redirects to
        self.broken = False  #: whether it answers with an error
        self.refuses: str | None = None  #: what it says of a schema that is sent
        self.url = ""

    def register(self, subject: str | None, schema: dict[str, Any], id: int | None = None, **more: Any) -> int:
        """Register a schema, under a subject or none."""
        number = id if id is not None else max(self.schemas, default=0) + 1
        self.schemas[number] = {"schema": json.dumps(schema, separators=(",", ":")), **more}
        if subject is not None:
            self.subjects.setdefault(subject, []).append(number)
        return number

    def answer(self, path: str) -> tuple[int, Any]:
        """Return status and body for a path."""
        if self.broken:
            return 503, {"error_code": 50301, "message": "out of order"}
        if self.answers is not None:
            return self.answers
        if (found := re.fullmatch(r"/schemas/ids/(\d+)", path)) is not None:
            number = int(found[1])
            known = self.schemas.get(number)
            return (404, {"error_code": 40403, "message": "Schema not found"}) if known is None else (200, known)
        found = re.fullmatch(r"/subjects/([^/]+)/versions(?:/(\w+))?", path)
        if found is None or found[1] not in self.subjects:
            return 404, {"error_code": 40401, "message": f"Subject not found: {path}"}
        ids = self.subjects[found[1]]
        if found[2] is None:
            return 200, list(range(1, len(ids) + 1))
        version = len(ids) if found[2] == "latest" else int(found[2])
        number = ids[version - 1]
        return 200, {"subject": found[1], "version": version, "id": number, **self.schemas[number]}

    def take(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        """Return status and body for a schema that is sent: it is new to its subject, or has its id."""
        found = re.fullmatch(r"/subjects/([^/]+)/versions", path)
        if self.broken or found is None:
            return self.answer(path)
        if self.refuses is not None:
            return 409, {"error_code": 409, "message": self.refuses}
        known = [id for id in self.subjects.get(found[1], []) if self.schemas[id]["schema"] == body["schema"]]
        return 200, {"id": known[0] if known else self.register(found[1], json.loads(body["schema"]))}


@contextmanager
def served(registry: Registry | None = None, port: int = 0) -> Iterator[Registry]:
    """Serve a registry on the loopback interface."""
    held = registry if registry is not None else Registry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.answer(lambda: held.answer(self.path))

        def do_POST(self) -> None:
            sent = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.answer(lambda: held.take(self.path, sent))

        def answer(self, of: Callable[[], tuple[int, Any]]) -> None:
            held.asked.append(self.path)
            held.headers.append({name.lower(): value for name, value in self.headers.items()})
            if held.login is not None and self.headers.get("Authorization") != held.login:
                status, body = 401, {"error_code": 401, "message": "Unauthorized"}
            else:
                status, body = of()
            data = json.dumps(body).encode()
            if held.elsewhere is not None:
                status = 302
            self.send_response(status)
            if held.elsewhere is not None:
                self.send_header("Location", f"{held.elsewhere}{self.path}")
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    held.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield held
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
