"""The example policy, as pip would leave the package that has it."""

from __future__ import annotations

from pathlib import Path

import pytest

from qod_magics.policies import GROUP


def install(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put it, and two entry points that are wrong, on the path until the test ends."""
    info = directory / "alike-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: alike\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        f"[{GROUP}]\nalike = alike_package:Alike\nbroken = alike_package:Missing\nno-policy = alike_package:Any\n"
    )
    source = Path(__file__).with_name("example_policy.py").read_text(encoding="utf-8")
    assert len(source.splitlines()) < 60
    (directory / "alike_package.py").write_text(source)
    monkeypatch.syspath_prepend(directory)
