"""The jars that Spark and the embedded broker need: pinned in one file, downloaded once, offline ever after.

`jars.json` has the Maven coordinates of each set with the SHA-256 that this release was tested with, so that nothing
is resolved and no repository, mirror or cache can swap a jar. A jar set is a directory in the user's cache, created
under a temporary name and renamed when complete: it exists complete or not at all.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from qod_magics.errors import SetupError
from qod_magics.machine.cache import cache_dir, locked
from qod_magics.machine.releases import installed_spark, numbers

if TYPE_CHECKING:
    import pooch

_CONNECTOR = "org.apache.spark:spark-sql-kafka"


@dataclass(frozen=True, slots=True)
class JarSet:
    """Jars that are used together: the SHA-256 of each, in hexadecimal, by its coordinate (group:artifact:version)."""

    name: str
    checksums: Mapping[str, str]

    @property
    def directory(self) -> Path:
        """Return where the set is, or will be, in the cache."""
        digest = hashlib.sha256(repr(sorted(self.checksums.items())).encode()).hexdigest()[:12]
        return cache_dir() / "jars" / f"{self.name}-{digest}"

    def cached(self) -> list[Path] | None:
        """Return the jars in the cache, sorted, or None before they are downloaded."""
        return sorted(self.directory.glob("*.jar")) or None


@cache
def _sets() -> dict[str, dict[str, str]]:
    return dict(json.loads(Path(__file__).with_name("jars.json").read_text("utf-8")))


def _released(name: str) -> JarSet:
    return JarSet(name, _sets()[name])


def connector_set(release: str | None = None) -> JarSet:
    """Return Spark's Kafka connector and its dependencies that Spark lacks, for this release of Spark; None: that of
    the installed pyspark. A release without a set of its own takes the newest one.

    Raises:
        SetupError: pyspark is not installed.

    """
    major, minor = numbers(release or installed_spark())
    own = f"connector-{major}.{minor}"
    return _released(own if own in _sets() else "connector")


def broker_set() -> JarSet:
    """Return Apache Kafka's broker with its logger."""
    return _released("broker")


def connector_jars(release: str | None = None) -> list[Path]:
    """Return files for `spark.jars`: the Kafka connector of this release of Spark, as `connector_set` chooses it. See
    `resolve` for what is raised."""
    return resolve(connector_set(release))


def broker_jars() -> list[Path]:
    """Return files for the class path of the embedded broker. See `resolve` for what is raised."""
    return resolve(broker_set())


def connector_advice(release: str | None = None) -> str:
    """Return how to start a session of this release of Spark with the Kafka connector that it lacks."""
    jars = connector_set(release)
    coordinate = next(each for each in jars.checksums if each.startswith(_CONNECTOR))
    advice = f"start it with spark.jars.packages={coordinate}"
    return f"{advice} or, on this machine, spark.jars={jars.directory}/*.jar" if jars.cached() else advice


def resolve(jars: JarSet, *, progress: bool = True) -> list[Path]:
    """Return the files of this set: from the cache, without network access, else downloaded with a progress bar.
    Concurrent processes download it once.

    Raises:
        SetupError: a jar is published nowhere or is another one, a repository can't be reached, or the cache can't be
            written.

    """
    if found := jars.cached():
        return found
    with locked(cache_dir() / "jars.lock"):
        if found := jars.cached():
            return found
        try:
            _fill(jars, progress)
        except OSError as error:
            raise SetupError(
                f"The jars can't be kept in {cache_dir()}: {error.strerror or error}. Make room there, or set "
                "QOD_CACHE to another place.",
                rule="room",
            ) from error
    return jars.cached() or []


def _fill(jars: JarSet, progress: bool) -> None:
    jars.directory.parent.mkdir(parents=True, exist_ok=True)
    _remove_stale()
    made = Path(tempfile.mkdtemp(prefix=f".{jars.name}-", dir=jars.directory.parent))
    try:
        for file in download(jars.checksums, jars.name, progress):
            shutil.copyfile(file, made / file.name)
        made.chmod(0o755)
        made.rename(jars.directory)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _remove_stale() -> None:
    """Remove what a killed process left half-done. The caller holds the lock: nobody uses it."""
    for unfinished in (cache_dir() / "jars").glob(".*"):
        shutil.rmtree(unfinished, ignore_errors=True)
    for part in (cache_dir() / "maven").rglob("tmp*"):
        part.unlink(missing_ok=True)


# --- Downloads, each checked against its SHA-256 by pooch -------------------------------------------------------------
# The repositories are those configured by the user for jgo or Maven, else Maven Central.

_ENVIRONMENT = re.compile(r"\$\{env\.([^}]+)\}")
_TIMEOUT_S = 30.0
_RETRIES = 2


class NotPublished(SetupError):
    """No repository has the jar."""


def download(checksums: Mapping[str, str], name: str, progress: bool = True) -> list[Path]:
    """Return the jars of these coordinates (group:artifact:version), each with its SHA-256 in hexadecimal.

    Files in Maven's local repository are used where they have that SHA-256. `name` labels the progress bar.

    Raises:
        NotPublished: a repository answered and none has a jar.
        SetupError: a repository can't be reached, or sent a broken file or one with another SHA-256.

    """
    import pooch

    pooch.get_logger().setLevel("ERROR")
    local, paths = local_repository(), {_path(coordinate): digest for coordinate, digest in checksums.items()}
    repositories = [_repository(url, paths) for url in remote_repositories().values()]
    with _Progress(name, len(paths), progress) as bar:
        return [_stored(local / path, digest) or _fetched(path, repositories, bar) for path, digest in paths.items()]


def _path(coordinate: str) -> str:
    group, artifact, version = coordinate.split(":")
    return f"{group.replace('.', '/')}/{artifact}/{version}/{artifact}-{version}.jar"


def _repository(url: str, checksums: Mapping[str, str]) -> pooch.Pooch:
    import pooch

    registry = {path: f"sha256:{digest}" for path, digest in checksums.items()}
    return pooch.create(cache_dir() / "maven", f"{url}/", registry=registry, retry_if_failed=_RETRIES)


def _stored(file: Path, digest: str) -> Path | None:
    """Return a file of Maven's local repository if it is the released one."""
    return file if file.is_file() and sha256(file) == digest else None


class _Missing(Exception):
    """The repository does not have the file: no second try."""


def _fetched(path: str, repositories: list[pooch.Pooch], bar: _Progress) -> Path:
    import requests

    for repository in repositories:
        try:
            file = Path(repository.fetch(path, downloader=bar.get))
        except _Missing:
            continue
        except requests.RequestException as error:
            raise SetupError(
                f"Can't download from the Maven repository {repository.base_url}: {error}. Check the network and "
                "HTTPS_PROXY, or name a mirror in ~/.m2/settings.xml or QOD_MAVEN_REPOSITORY, then run "
                "`python -m qod_magics doctor --fetch`.",
                rule="reachable",
            ) from error
        except ValueError as error:
            raise SetupError(
                f"{Path(path).name} must have the SHA-256 that this version of qod_magics was released with, got "
                f"another: the repository {repository.base_url}, its mirror or a proxy sends another file or a broken "
                "one; name another repository in QOD_MAVEN_REPOSITORY",
                rule="checksum",
            ) from error
        return file
    where = ", ".join(repository.base_url for repository in repositories)
    raise NotPublished(f"{path} is in none of the Maven repositories ({where}).", name=path, rule="published")


class _Progress:
    """A progress bar that appears with the first download; one line once all is there, where there is neither a
    terminal nor a notebook to draw it in."""

    def __init__(self, name: str, jars: int, shown: bool) -> None:
        self._name, self._jars, self._shown = name, jars, shown
        self._drawn = shown and (sys.stderr.isatty() or _in_a_kernel())
        self._bar: Any = None
        self._count = self._bytes = 0
        self._closing = ExitStack()

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._closing.close()
        if self._shown and not self._drawn and self._count and kind is None:
            found = f"{self._count} jar{'' if self._count == 1 else 's'}"
            print(f"{self._name}: {found}, {self._bytes / 1e6:.1f} MB downloaded", file=sys.stderr, flush=True)

    def get(self, url: str, output: str, _: object) -> None:
        """Download a file: a downloader of pooch."""
        import pooch
        import requests

        if self._bar is None and self._drawn:
            from tqdm.auto import tqdm

            self._bar = self._closing.enter_context(tqdm(desc=self._name, total=self._jars, unit="jar"))
        try:
            pooch.HTTPDownloader(timeout=_TIMEOUT_S, chunk_size=1 << 16)(url, output, None)
        except requests.HTTPError as error:
            if error.response is not None and error.response.status_code == requests.codes.not_found:
                raise _Missing(url) from error
            raise
        self._count += 1
        self._bytes += Path(output).stat().st_size
        if self._bar is not None:
            self._bar.set_postfix_str(f"{self._bytes / 1e6:.1f} MB", refresh=False)
            self._bar.update(1)


def _in_a_kernel() -> bool:
    """Return whether this is a notebook's kernel, where tqdm draws a widget: what it prints goes to the notebook."""
    return type(sys.stderr).__module__.partition(".")[0] == "ipykernel"


def remote_repositories() -> dict[str, str]:
    """Name -> URL of the repositories to query, in order.

    `$QOD_MAVEN_REPOSITORY` alone where it is set; else the repositories of jgo's settings file before Maven Central,
    each replaced by its mirror where the user's Maven settings name one. Proxies and certificates are taken from the
    environment (`HTTPS_PROXY`, `REQUESTS_CA_BUNDLE` ...), passwords from `~/.netrc`.
    """
    from jgo.config import GlobalSettings
    from jgo.constants import MAVEN_CENTRAL_URL

    if own := os.environ.get("QOD_MAVEN_REPOSITORY"):
        return {"QOD_MAVEN_REPOSITORY": own.rstrip("/")}
    asked = {**GlobalSettings.load().repositories, "central": MAVEN_CENTRAL_URL}
    mirrors = maven_mirrors(settings_files())
    return {name: mirror_of(name, mirrors) or url.rstrip("/") for name, url in asked.items()}


def local_repository() -> Path:
    """Maven's local repository, read and never written here."""
    from jgo.config import GlobalSettings

    return Path(GlobalSettings.load().repo_cache)


def settings_files() -> list[Path]:
    """Maven's settings files that exist, the user's before the installation's."""
    homes = [os.environ.get("MAVEN_HOME"), os.environ.get("M2_HOME")]
    files = [Path.home() / ".m2" / "settings.xml", *(Path(h) / "conf" / "settings.xml" for h in homes if h)]
    return [file for file in files if file.is_file()]


def maven_mirrors(files: list[Path]) -> list[tuple[str, str]]:
    """Return the (mirrorOf, URL) pairs of these settings files, in order; a file that isn't XML has none."""
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
    """Return the URL of the mirror that stands for the remote repository `name`, by Maven's rules: an exact name first,
    then patterns (`*`, `external:*`, `a,b`, `*,!a`)."""
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
