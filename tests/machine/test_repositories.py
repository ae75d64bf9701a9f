"""The user's own Maven settings decide where artifacts come from."""

from __future__ import annotations

from pathlib import Path

import pytest

from qod_magics.machine.jars import maven_mirrors, mirror_of, remote_repositories

SETTINGS = """\
<settings xmlns="http://maven.apache.org/SETTINGS/1.2.0">
  <mirrors>
    <mirror><id>blocker</id><mirrorOf>external:http:*</mirrorOf><url>http://0.0.0.0/</url><blocked>true</blocked></mirror>
    <mirror><id>house</id><mirrorOf>{of}</mirrorOf><url>https://${{env.MIRROR_HOST}}/maven/</url></mirror>
  </mirrors>
</settings>
"""


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    (tmp_path / ".m2").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("JGO_CONFIG_FILE", str(tmp_path / "jgo.conf"))
    monkeypatch.setenv("MIRROR_HOST", "mirror.example")
    for name in ("MAVEN_HOME", "M2_HOME", "QOD_MAVEN_REPOSITORY"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.mark.parametrize("of", ["central", "*", "external:*", "jboss,central"])
def test_a_mirror_of_central_stands_for_it(home: Path, of: str) -> None:
    (home / ".m2" / "settings.xml").write_text(SETTINGS.format(of=of))
    assert remote_repositories() == {"central": "https://mirror.example/maven"}


@pytest.mark.parametrize("of", ["jboss", "*,!central"])
def test_a_mirror_of_others_does_not(home: Path, of: str) -> None:
    (home / ".m2" / "settings.xml").write_text(SETTINGS.format(of=of))
    assert "mirror.example" not in remote_repositories()["central"]


def test_repositories_of_jgo_are_asked_first(home: Path) -> None:
    (home / "jgo.conf").write_text("[repositories]\nhouse = https://house.example/maven/\n")
    assert list(remote_repositories()) == ["house", "central"]
    assert remote_repositories()["house"] == "https://house.example/maven"


def test_our_own_variable_is_all_there_is(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QOD_MAVEN_REPOSITORY", "https://only.example/")
    assert remote_repositories() == {"QOD_MAVEN_REPOSITORY": "https://only.example"}


def test_settings_that_are_no_xml_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "settings.xml").write_text("<settings>")
    assert maven_mirrors([tmp_path / "settings.xml", tmp_path / "missing.xml"]) == []


def test_an_exact_name_goes_before_a_pattern() -> None:
    assert mirror_of("central", [("*", "https://all"), ("central", "https://one")]) == "https://one"
