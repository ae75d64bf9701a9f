"""The Maven repositories: those configured by the user for jgo or Maven, else Maven Central."""

from __future__ import annotations

import os
import re
from pathlib import Path
from xml.etree import ElementTree

_ENVIRONMENT = re.compile(r"\$\{env\.([^}]+)\}")


def remote_repositories() -> dict[str, str]:
    """Name -> URL of the repositories to query, in order.

    `$QOD_MAVEN_REPOSITORY` alone where it is set; else the repositories of jgo's settings file before Maven Central,
    each replaced by its mirror where the user's Maven settings name one. Proxies and certificates are taken from the
    environment (`HTTPS_PROXY`, `REQUESTS_CA_BUNDLE` ...), passwords from `~/.netrc`.
    """
    if own := os.environ.get("QOD_MAVEN_REPOSITORY"):
        return {"QOD_MAVEN_REPOSITORY": own.rstrip("/")}
    from jgo.config import GlobalSettings
    from jgo.constants import MAVEN_CENTRAL_URL

    asked = {**GlobalSettings.load().repositories, "central": MAVEN_CENTRAL_URL}
    mirrors = maven_mirrors(settings_files())
    return {name: mirror_of(name, mirrors) or url.rstrip("/") for name, url in asked.items()}


def local_repository() -> Path:
    """Maven's local repository, read and never written here."""
    from jgo.config import GlobalSettings

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
