"""The user's own jars for local task managers: files, and Maven packages with what these depend on.

Packages are resolved together, once: their jars and the SHA-256 of each are pinned in the cache, so that a session a
year later, or one without a network, starts the same jars.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qod_magics.errors import SetupError
from qod_magics.machine.cache import cache_dir, locked
from qod_magics.machine.jars import remote_repositories, sha256

if TYPE_CHECKING:
    from jgo.maven import Dependency, MavenContext

_COORDINATE = re.compile(r"[\w.-]+:[\w.-]+:[\w.+-]+")
_TIMEOUT_S = 30
_HOW = "check the network, or name a mirror in QOD_MAVEN_REPOSITORY"

_log = logging.getLogger(__name__)


def check_packages(packages: Sequence[str]) -> None:
    """Refuse what is no Maven coordinate. Raises SetupError."""
    for each in packages:
        if not _COORDINATE.fullmatch(each):
            raise SetupError(
                f"a package must be GROUP:ARTIFACT:VERSION, got {each!r}; "
                "an example is org.apache.spark:spark-avro_2.13:4.2.0",
                value=each,
                rule="coordinate",
            )


def check_files(files: Sequence[Path]) -> None:
    """Refuse jars that are not there. Raises SetupError."""
    for each in files:
        if not each.is_file():
            raise SetupError(
                f"a jar must be a file of this machine, got {str(each)!r}; a package from Maven goes in --packages",
                value=str(each),
                rule="file exists",
            )


@dataclass(frozen=True, slots=True)
class _Pinned:
    """Jars that were resolved together: the path of each below Maven's cache of ours, and its SHA-256."""

    checksums: dict[str, str]

    def files(self) -> list[Path] | None:
        """Return the jars in the cache; None if one is missing. Raises SetupError: one was changed."""
        root = _repository()
        found = [root / path for path in self.checksums]
        if not all(file.is_file() for file in found):
            return None
        for file, digest in zip(found, self.checksums.values(), strict=True):
            if sha256(file) != digest:
                raise SetupError(
                    f"{file.name} must have the SHA-256 of its first download, got another; "
                    f"remove {file} to download it again",
                    name=file.name,
                    rule="checksum",
                )
        return found


def package_jars(packages: Sequence[str], home: Path) -> list[Path]:
    """Return the jars of these packages and of what they need, without those that the Spark at `home` has.

    The first call for these packages downloads them; later ones read the cache.

    Raises:
        SetupError: a package is in no repository, a repository can't be reached, or a jar in the cache was changed.

    """
    if not packages:
        return []
    pin = _pin(packages, home)
    with locked(cache_dir() / "packages.lock"):
        pinned = _read(pin)
        if pinned is not None and (files := pinned.files()) is not None:
            return files
        found = _resolved(packages, home, pinned)
        root = _repository()
        made = _Pinned({str(file.relative_to(root)): sha256(file) for file in found})
        if pinned is not None and pinned != made:
            raise SetupError(
                f"the jars of {', '.join(packages)} must be those that {pin} pins, got others; "
                f"remove {pin} to accept these",
                rule="checksum",
            )
        pin.parent.mkdir(parents=True, exist_ok=True)
        part = pin.with_suffix(".part")
        part.write_text(json.dumps(made.checksums, indent=1))
        part.replace(pin)
    return found


def _repository() -> Path:
    return cache_dir() / "packages" / "repository"


def _pin(packages: Sequence[str], home: Path) -> Path:
    """Return the file that pins the jars of these packages, for a Spark with the same jars."""
    has = "".join(sorted(path.name for path in (home / "jars").glob("*.jar")))
    digest = hashlib.sha256("\n".join([*sorted(packages), has]).encode()).hexdigest()[:12]
    return cache_dir() / "packages" / f"{digest}.json"


def _read(pin: Path) -> _Pinned | None:
    try:
        return _Pinned(json.loads(pin.read_text("utf-8")))
    except FileNotFoundError:
        return None
    except ValueError:
        _log.warning("%s can't be read: the packages are resolved again", pin)
        return None


def _resolved(packages: Sequence[str], home: Path, pinned: _Pinned | None) -> list[Path]:
    """Download the jars, by jgo. Raises SetupError."""
    from jgo.maven import MavenContext

    context = MavenContext(repo_cache=_repository(), remote_repos=remote_repositories(), timeout=_TIMEOUT_S)
    asked = [context.create_dependency(each) for each in packages]
    with redirect_stdout(StringIO()):  # its progress bars
        _log.info("resolving %s", ", ".join(packages))
        found = {each.artifact.key[:2]: each for each in (*_needs(context, asked, packages), *asked)}
        has = {_name(path.stem) for path in (home / "jars").glob("*.jar")}
        wanted = [each for each in found.values() if each in asked or each.artifactId not in has]
        return sorted(_downloaded(each) for each in wanted)


def _needs(context: MavenContext, asked: list[Dependency], packages: Sequence[str]) -> list[Dependency]:
    try:
        _, needs = context.resolver.resolve(asked)
    except Exception as error:  # jgo raises RuntimeError, requests its own
        raise SetupError(
            f"packages must be in a Maven repository, got {', '.join(packages)}: {_line(error)}; {_HOW}",
            rule="published",
        ) from error
    return [each for each in needs if each.scope in ("compile", "runtime") and each.type == "jar"]


def _downloaded(dependency: Dependency) -> Path:
    try:
        return Path(dependency.artifact.resolve())
    except Exception as error:
        raise SetupError(
            f"{dependency.artifact.filename} must be in a Maven repository: {_line(error)}; {_HOW}", rule="published"
        ) from error


def _line(error: Any) -> str:
    return str(error).split("\n")[0][:200]


def _name(stem: str) -> str:
    """Return the artifact's name of a jar: "xz" of "xz-1.10"."""
    return re.split(r"-\d", stem, maxsplit=1)[0]


def spark_words(files: Sequence[Path]) -> list[str]:
    """Return the words for spark-submit that add these jars: behind Spark's own, as `--jars` does everywhere."""
    return ["--jars", ",".join(file.absolute().as_uri() for file in files)] if files else []


def expanded(names: Sequence[str | os.PathLike[str]]) -> tuple[Path, ...]:
    """Return the files of these names, `~` and relative ones too, for a process that works elsewhere."""
    return tuple(Path(name).expanduser().absolute() for name in names)
