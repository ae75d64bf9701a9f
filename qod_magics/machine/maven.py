"""Resolving Maven coordinates with jgo, with atomic downloads.

jgo writes a download straight to its final name and only warns of a wrong checksum. Here a temporary file is written,
checked against the published SHA-1, and renamed. The repositories are those configured by the user for jgo or Maven,
else Maven Central.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import requests
from jgo.config import GlobalSettings
from jgo.constants import MAVEN_CENTRAL_URL
from jgo.maven import MavenContext
from jgo.maven._resolver import PythonResolver
from jgo.parse import Coordinate
from jgo.util import http

from qod_magics.errors import SetupError
from qod_magics.machine.cache import cache_dir

if TYPE_CHECKING:
    from jgo.maven import Artifact

_ENVIRONMENT = re.compile(r"\$\{env\.([^}]+)\}")
_CHUNK = 1 << 16
_ATTEMPTS = 3


class NotPublished(SetupError):
    """No repository has the artifact."""


def download(
    coordinates: tuple[str, ...],
    name: str,
    only: frozenset[str] = frozenset(),
    checksums: Mapping[str, str] = MappingProxyType({}),
    progress: bool = True,
) -> list[Path]:
    """The jars of these coordinates (group:artifact:version) and of their runtime dependencies.

    `only` restricts them to these artifact names; an empty set means all. Intact files in Maven's local repository are
    reused if their SHA-256 is the one that `checksums` has for their name. `name` labels the progress bar.

    Raises:
        NotPublished: a repository answered and none has the artifact.
        SetupError: a repository can't be reached, or sent a broken file or one with another SHA-256.

    """
    with _Bar(name, progress) as bar:
        try:
            return _download(coordinates, only, checksums, bar, [local_repository()])
        except _Broken:
            return _download(coordinates, only, checksums, bar, [])


def _download(
    coordinates: tuple[str, ...], only: frozenset[str], checksums: Mapping[str, str], bar: _Bar, local: list[Path]
) -> list[Path]:
    remote = remote_repositories()
    context = MavenContext(
        resolver=_Resolver(bar), repo_cache=cache_dir() / "maven", local_repos=local, remote_repos=remote, timeout=30
    )
    asked = [context.create_dependency(replace(Coordinate.parse(c), scope="compile", raw=True)) for c in coordinates]
    try:
        inputs, others = context.resolver.resolve(asked)
    except (SetupError, requests.RequestException) as error:
        raise _download_error(error, remote) from error
    except Exception as error:
        if local:  # e.g. a POM cut short by another tool's interrupted download
            raise _Broken(str(error)) from error
        raise SetupError(f"Can't resolve {' + '.join(coordinates)}: {error}") from error
    named = {(d.groupId, d.artifactId) for d in inputs}  # a requested coordinate wins over a transitive one
    along = [d for d in others if (d.groupId, d.artifactId) not in named and d.scope in ("compile", "runtime")]
    needed = [d.artifact for d in [*inputs, *along] if d.type == "jar" and (not only or d.artifactId in only)]
    bar.total(len(needed))
    files = []
    for artifact in needed:
        try:
            file = artifact.resolve()
        except requests.RequestException as error:
            raise _download_error(error, remote) from error
        if not zipfile.is_zipfile(file):
            if local:
                raise _Broken(str(file))
            raise SetupError(f"{file} is not a jar: delete it and try again.")
        _check(file, checksums.get(file.name), is_local=any(store in file.parents for store in local))
        files.append(file)
        bar.advance(artifact.artifactId)
    return files


class _Broken(Exception):
    """A file in Maven's local repository is incomplete, or not the released one."""


def _check(file: Path, released: str | None, *, is_local: bool) -> None:
    found = None if released is None else sha256(file)
    if is_local and (released is None or found != released):
        raise _Broken(f"{file} has SHA-256 {found}, released was {released}")
    if found != released:
        file.unlink(missing_ok=True)
        raise SetupError(
            f"{file.name} has SHA-256 {found}, but this version of qod_magics was released with {released}: the "
            "repository, its mirror or a proxy sends another file. Name another one in QOD_MAVEN_REPOSITORY."
        )


class _Resolver(PythonResolver):
    """jgo's resolver with a download that is atomic and checked."""

    def __init__(self, bar: _Bar) -> None:
        super().__init__()
        self._bar = bar

    def download(self, artifact: Artifact) -> Path:
        target = artifact.cached_path
        assert target is not None
        path = artifact.component.path_prefix.as_posix()
        for repository in artifact.context.remote_repos.values():
            url = f"{repository}/{path}/{artifact.filename}"
            if _fetch(url, target, artifact.context.timeout, self._bar.received):
                return target
        where = ", ".join(artifact.context.remote_repos)
        raise NotPublished(f"{artifact} is in none of the Maven repositories ({where}).")


def _fetch(url: str, target: Path, timeout_s: float, received: Callable[[int], None]) -> bool:
    """Download `url` to `target`; False if it does not exist (404). Broken downloads are retried."""
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            return _fetch_once(url, target, timeout_s, received)
        except requests.HTTPError:
            raise
        except requests.RequestException:
            if attempt == _ATTEMPTS:
                raise
    raise AssertionError("unreachable")


class _WrongChecksum(requests.RequestException):
    """The bytes received are not the ones published."""


def _fetch_once(url: str, target: Path, timeout_s: float, received: Callable[[int], None]) -> bool:
    with http.get(url, stream=True, timeout=timeout_s) as response:
        if response.status_code == 404:
            return False
        response.raise_for_status()
        target.parent.mkdir(parents=True, exist_ok=True)
        digest = hashlib.sha1(usedforsecurity=False)
        handle, part = tempfile.mkstemp(prefix=".part-", dir=target.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                for chunk in response.iter_content(_CHUNK):
                    file.write(chunk)
                    digest.update(chunk)
                    received(len(chunk))
            published = _published_sha1(url, timeout_s)
            if published and published != digest.hexdigest():
                raise _WrongChecksum(f"{url} has SHA-1 {digest.hexdigest()}, published is {published}")
            Path(part).replace(target)
        finally:
            Path(part).unlink(missing_ok=True)
    return True


def _published_sha1(url: str, timeout_s: float) -> str | None:
    response = http.get(f"{url}.sha1", timeout=timeout_s)
    words = response.text.split() if response.status_code == 200 else []
    return words[0].lower() if words else None


def _download_error(error: Exception, remote: dict[str, str]) -> SetupError:
    if isinstance(error, SetupError):
        return error
    return SetupError(
        f"Can't download from the Maven repository ({', '.join(remote)}): {error}. Check the network and "
        "HTTPS_PROXY, or name a mirror in ~/.m2/settings.xml or QOD_MAVEN_REPOSITORY, then run "
        "`python -m qod_magics doctor --fetch`."
    )


class _Bar:
    """A progress bar that appears with the first byte from the network; one line once all is there, where there is
    neither a terminal nor a notebook to draw it in."""

    def __init__(self, name: str, shown: bool) -> None:
        self._name, self._shown, self._count, self._bytes = name, shown, 0, 0
        self._drawn = shown and (sys.stderr.isatty() or _in_a_kernel())
        self._bar: object | None = None
        self._known: int | None = None
        logging.getLogger("jgo").setLevel(logging.ERROR)

    def __enter__(self) -> _Bar:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()  # type: ignore[attr-defined]
        elif self._shown and self._bytes and kind is None:
            found = f"{self._count} jar{'' if self._count == 1 else 's'}"
            print(f"{self._name}: {found}, {self._bytes / 1e6:.1f} MB downloaded", file=sys.stderr, flush=True)

    def total(self, jars: int) -> None:
        self._known = jars
        if self._bar is not None:
            self._bar.reset(total=jars)  # type: ignore[attr-defined]

    def advance(self, what: str) -> None:
        self._count += 1
        if self._bar is not None:
            self._bar.set_description_str(f"{self._name}: {what}", refresh=False)  # type: ignore[attr-defined]
            self._bar.update(self._count - self._bar.n)  # type: ignore[attr-defined]

    def received(self, size: int) -> None:
        self._bytes += size
        if self._bar is None and self._drawn:
            from tqdm.auto import tqdm

            self._bar = tqdm(desc=f"{self._name}: dependencies", total=self._known, unit="jar", initial=self._count)
        if self._bar is not None:
            self._bar.set_postfix_str(f"{self._bytes / 1e6:.1f} MB", refresh=False)  # type: ignore[attr-defined]
            self._bar.update(0)  # type: ignore[attr-defined]


def _in_a_kernel() -> bool:
    """Whether this is a notebook's kernel, where tqdm draws a widget: what it prints goes to the notebook."""
    return type(sys.stderr).__module__.partition(".")[0] == "ipykernel"


def remote_repositories() -> dict[str, str]:
    """Name -> URL of the repositories to query, in order.

    `$QOD_MAVEN_REPOSITORY` alone where it is set; else the repositories of jgo's settings file before Maven Central,
    each replaced by its mirror where the user's Maven settings name one. Proxies and certificates are taken from the
    environment (`HTTPS_PROXY`, `REQUESTS_CA_BUNDLE` ...), passwords from `~/.netrc`.
    """
    if own := os.environ.get("QOD_MAVEN_REPOSITORY"):
        return {"QOD_MAVEN_REPOSITORY": own.rstrip("/")}
    asked = {**GlobalSettings.load().repositories, "central": MAVEN_CENTRAL_URL}
    mirrors = maven_mirrors(settings_files())
    return {name: mirror_of(name, mirrors) or url.rstrip("/") for name, url in asked.items()}


def local_repository() -> Path:
    """Maven's local repository, read and never written here."""
    return GlobalSettings.load().repo_cache


def settings_files() -> list[Path]:
    """Maven's settings files that exist, the user's before the installation's."""
    homes = [os.environ.get("MAVEN_HOME"), os.environ.get("M2_HOME")]
    files = [Path.home() / ".m2" / "settings.xml", *(Path(h) / "conf" / "settings.xml" for h in homes if h)]
    return [file for file in files if file.is_file()]


def maven_mirrors(files: list[Path]) -> list[tuple[str, str]]:
    """The (mirrorOf, URL) pairs of these settings files, in order; a file that isn't XML has none."""
    mirrors = []
    for file in files:
        try:
            root = ElementTree.parse(file).getroot()
        except (OSError, ElementTree.ParseError):
            continue
        for mirror in root.iterfind(".//{*}mirrors/{*}mirror"):
            of, url = mirror.findtext("{*}mirrorOf"), mirror.findtext("{*}url")
            if of and url and mirror.findtext("{*}blocked") != "true":
                mirrors.append((of.strip(), _interpolate(url.strip()).rstrip("/")))
    return mirrors


def mirror_of(name: str, mirrors: list[tuple[str, str]]) -> str | None:
    """The URL of the mirror that stands for the remote repository `name`, by Maven's rules: an exact name first, then
    patterns (`*`, `external:*`, `a,b`, `*,!a`)."""
    for of, url in mirrors:
        if of == name:
            return url
    for of, url in mirrors:
        parts = [part.strip() for part in of.split(",")]
        if f"!{name}" not in parts and any(part in (name, "*", "external:*") for part in parts):
            return url
    return None


def _interpolate(url: str) -> str:
    return _ENVIRONMENT.sub(lambda found: os.environ.get(found.group(1), ""), url)


def sha256(file: Path) -> str:
    """Return the SHA-256 of a file's content, in hexadecimal. Raises OSError when it can't be read."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
