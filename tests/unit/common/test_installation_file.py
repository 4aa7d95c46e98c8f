"""The file in which an agent or a proxy stores the installation to which it belongs."""

from __future__ import annotations

from pathlib import Path

import pytest

from moorage.common.link.installation import InstallationFile, installation_file
from moorage.common.model.errors import ConfigError


@pytest.fixture
def file(tmp_path: Path) -> InstallationFile:
    return installation_file(tmp_path, "agent", "node-1")


def test_the_first_one_is_kept(file: InstallationFile) -> None:
    file.check("a", "m:1")
    assert not file.path.exists()
    file.admit("", "m:0")  # from the previous release
    assert not file.path.exists()
    file.admit("a", "m:1")
    file.admit("a", "m:2")
    file.admit("", "m:0")

    for refuse in (file.admit, file.check):
        with pytest.raises(
            ConfigError, match=r"m:3 .* of installation b, .* installation a"
        ) as found:
            refuse("b", "m:3")

        assert str(file.path) in found.value.next_step
        assert "correct agent.manager" in found.value.next_step

    file.forget()
    file.forget()
    file.admit("b", "m:3")


@pytest.mark.parametrize("text", ["", "[]", "{}", "no JSON"])
def test_a_file_that_is_not_valid_admits_nobody(file: InstallationFile, text: str) -> None:
    file.path.parent.mkdir()
    file.path.write_text(text)
    with pytest.raises(ConfigError, match="cannot be stored"):
        file.admit("a", "m:1")
    file.check("a", "m:1")


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "joined").write_text("in the way")
    with pytest.raises(ConfigError, match="make it writable"):
        installation_file(tmp_path, "proxy", "edge").admit("a", "m:1")
