"""A Maven repository on the loopback interface, for tests: jars, and what can go wrong with them."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread


class Repository:
    """Files by path, how often each was asked for, and the paths that are sent broken."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.asked: Counter[str] = Counter()
        self.cut: set[str] = set()  #: ends after half of the bytes that it promised
        self.url = ""

    def publish(self, coordinate: str) -> str:
        """Publish a jar under this coordinate. Return its SHA-256."""
        group, artifact, version = coordinate.split(":")
        jar = io.BytesIO()
        with zipfile.ZipFile(jar, "w") as file:
            file.writestr(zipfile.ZipInfo("META-INF/MANIFEST.MF"), f"Name: {coordinate}\n" + "x" * 100_000)
        path = f"/{group.replace('.', '/')}/{artifact}/{version}/{artifact}-{version}.jar"
        self.files[path] = jar.getvalue()
        return hashlib.sha256(jar.getvalue()).hexdigest()

    def publish_with_pom(self, coordinate: str, *needs: str, scope: str = "compile") -> None:
        """Publish a jar that needs these others."""
        self.publish(coordinate)
        tags = ("groupId", "artifactId", "version")
        parts = ["".join(f"<{t}>{v}</{t}>" for t, v in zip(tags, c.split(":"), strict=True)) for c in needs]
        below = "".join(f"<dependency>{part}<scope>{scope}</scope></dependency>" for part in parts)
        own = "".join(f"<{t}>{v}</{t}>" for t, v in zip(tags, coordinate.split(":"), strict=True))
        group, artifact, version = coordinate.split(":")
        self.files[f"/{group.replace('.', '/')}/{artifact}/{version}/{artifact}-{version}.pom"] = (
            f"<project><modelVersion>4.0.0</modelVersion>{own}<dependencies>{below}</dependencies></project>"
        ).encode()

    def swap(self, path: str) -> None:
        """Publish another jar under this path."""
        self.files[path] += b"more"

    def jars_sent(self) -> int:
        return sum(count for path, count in self.asked.items() if path.endswith(".jar"))


@contextmanager
def serving(repository: Repository) -> Iterator[Repository]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            repository.asked[self.path] += 1
            content = repository.files.get(self.path)
            if content is None:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[: len(content) // 2] if self.path in repository.cut else content)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    repository.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield repository
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
