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
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import is_zipfile

from qod_magics.errors import SetupError
from qod_magics.machine.cache import cache_dir, locked
from qod_magics.machine.jars import remote_repositories, sha256

_COORDINATE = re.compile(r"[\w.-]+:[\w.-]+:[\w.+-]+")
_TIMEOUT_S = 30
#: Of the files with the pinned checksums; others are written again.
_FORMAT = 1

_log = logging.getLogger(__name__)


def check_packages(packages: Sequence[str]) -> None:
    """Refuse text that is not a Maven coordinate. Raises SetupError."""
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


def package_jars(packages: Sequence[str], home: Path) -> list[Path]:
    """Return the jars of these packages and of what they need, without those that the Spark at `home` has.

    The first call for these packages downloads them; later ones read the cache.

    Raises:
        SetupError: a package is in no repository, a repository can't be reached, or a jar is not the one that was
            downloaded first.

    """
    if not packages:
        return []
    place = _place(packages, home)
    pin = place.with_suffix(".json")
    with locked(cache_dir() / "packages.lock"):
        pinned = _read(pin)
        if pinned is None or not place.is_dir():
            _fill(place, packages, home, pinned)
            pin.write_text(json.dumps({"format": _FORMAT, "sha256": _checksums(place)}, indent=1))
        elif (changed := sorted(pinned.items() ^ _checksums(place).items())) != []:
            raise SetupError(
                f"{changed[0][0]} must be the jar that was downloaded first, got another; remove {place} to download "
                "it again",
                name=changed[0][0],
                rule="checksum",
            )
    return sorted(place.glob("*.jar"))


def _place(packages: Sequence[str], home: Path) -> Path:
    """Return the directory of the jars of these packages, for a Spark with the same jars as that at `home`."""
    has = "".join(sorted(path.name for path in (home / "jars").glob("*.jar")))
    digest = hashlib.sha256("\n".join([*sorted(packages), has]).encode()).hexdigest()[:12]
    return cache_dir() / "packages" / digest


def _checksums(place: Path) -> dict[str, str]:
    return {file.name: sha256(file) for file in sorted(place.glob("*.jar"))}


def _read(pin: Path) -> dict[str, str] | None:
    """Return the pinned SHA-256 of each jar, by its name; None where nothing is pinned, or not in this format."""
    try:
        pinned = json.loads(pin.read_text("utf-8"))
        if pinned["format"] == _FORMAT:
            return dict(pinned["sha256"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        pass
    _log.warning("%s has no checksums of format %d: the packages are resolved again", pin, _FORMAT)
    return None


def _fill(place: Path, packages: Sequence[str], home: Path, pinned: Mapping[str, str] | None) -> None:
    """Download the jars to a directory that appears once all are there: a broken download leaves none. Raises
    SetupError: also where they are not the pinned ones."""
    place.parent.mkdir(parents=True, exist_ok=True)
    for unfinished in place.parent.glob(".*"):  # of a process that was killed: the caller holds the lock
        shutil.rmtree(unfinished, ignore_errors=True)
    with TemporaryDirectory(dir=place.parent, prefix=".") as made:
        jars = Path(made) / "jars"
        jars.mkdir()
        for file in _resolved(packages, home, Path(made) / "repository"):
            same = (jars / file.name).exists()  # of another group
            file.rename(jars / (f"{file.parents[2].name}-{file.name}" if same else file.name))
        if pinned is not None and pinned != _checksums(jars):
            pin = place.with_suffix(".json")
            raise SetupError(
                f"the jars of {', '.join(packages)} must be those that {pin} pins, got others; remove it to accept "
                "these",
                rule="checksum",
            )
        shutil.rmtree(place, ignore_errors=True)  # without a pin: a kill came between
        jars.rename(place)


def _resolved(packages: Sequence[str], home: Path, repository: Path) -> list[Path]:
    """Download the jars to a Maven repository in this directory, by jgo. Raises SetupError."""
    from jgo.maven import MavenContext

    _log.info("resolving %s", ", ".join(packages))
    try:
        context = MavenContext(repo_cache=repository, remote_repos=remote_repositories(), timeout=_TIMEOUT_S)
        asked = [context.create_dependency(each) for each in packages]
        _, needs = context.resolver.resolve(asked)
        needed = [each for each in needs if each.scope in ("compile", "runtime") and each.type == "jar"]
        found = {(each.groupId, each.artifactId, each.classifier): each for each in (*needed, *asked)}
        has = {_name(path.stem) for path in (home / "jars").glob("*.jar")}
        wanted = [each for each in found.values() if each in asked or each.artifactId not in has]
        jars = [Path(each.artifact.resolve()) for each in wanted]
        if broken := [file.name for file in jars if not is_zipfile(file)]:
            raise ValueError(f"{broken[0]} is no jar")
        return jars
    except Exception as error:  # jgo raises RuntimeError, requests its own
        why = str(error).split("\n")[0][:200]
        raise SetupError(
            f"packages must be in a Maven repository, got {', '.join(packages)} ({why}); check the network, or name "
            "a mirror in QOD_MAVEN_REPOSITORY",
            rule="published",
        ) from error


def _name(stem: str) -> str:
    """Return the artifact's name of a jar: "xz" of "xz-1.10"."""
    return re.split(r"-\d", stem, maxsplit=1)[0]


def spark_words(files: Sequence[Path]) -> list[str]:
    """Return the words for spark-submit that add these jars: behind Spark's own, as `--jars` does everywhere."""
    return ["--jars", ",".join(file.absolute().as_uri() for file in files)] if files else []


def expanded(names: Sequence[str | os.PathLike[str]]) -> tuple[Path, ...]:
    """Return the files of these names, `~` and relative ones too, for a process that works elsewhere."""
    return tuple(Path(name).expanduser().absolute() for name in names)
