"""A Maven repository on the loopback interface, for tests: real POMs and jars, and what can go wrong with them."""

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
        self.lying: set[str] = set()  #: its published checksum is another file's
        self.url = ""

    def publish(self, coordinate: str, *needs: str) -> None:
        group, artifact, version = coordinate.split(":")
        base = f"/{group.replace('.', '/')}/{artifact}/{version}/{artifact}-{version}"
        dependencies = "".join(
            "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>".format(
                *need.split(":")
            )
            for need in needs
        )
        self._put(
            f"{base}.pom",
            f"<project><modelVersion>4.0.0</modelVersion><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
            f"<version>{version}</version><dependencies>{dependencies}</dependencies></project>".encode(),
        )
        jar = io.BytesIO()
        with zipfile.ZipFile(jar, "w") as file:
            file.writestr("META-INF/MANIFEST.MF", f"Name: {coordinate}\n" + "x" * 100_000)
        self._put(f"{base}.jar", jar.getvalue())

    def swap(self, path: str) -> None:
        """Publish another jar under this path, with its checksum."""
        self._put(path, self.files[path] + b"more")

    def jars_sent(self) -> int:
        return sum(count for path, count in self.asked.items() if path.endswith(".jar"))

    def _put(self, path: str, content: bytes) -> None:
        self.files[path] = content
        self.files[f"{path}.sha1"] = hashlib.sha1(content).hexdigest().encode()


@contextmanager
def serving(repository: Repository) -> Iterator[Repository]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            repository.asked[self.path] += 1
            content = repository.files.get(self.path)
            if content is None:
                self.send_error(404)
                return
            if self.path.removesuffix(".sha1") in repository.lying and self.path.endswith(".sha1"):
                content = hashlib.sha1(b"another file").hexdigest().encode()
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
