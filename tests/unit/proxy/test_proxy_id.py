"""A proxy's id: from the settings, or kept in the state directory."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from moorage.common.aio.clock import SystemClock
from moorage.common.config.settings import ProxySettings
from moorage.common.model.errors import ConfigError
from moorage.proxy.proxy_id import proxy_id

CLOCK = SystemClock()


@pytest.fixture(autouse=True)
def same_host_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "localhost")


def id_of(home: Path, **settings: str) -> str:
    return proxy_id(ProxySettings(**settings), home, CLOCK)


def test_two_hosts_of_one_name_are_two_proxies(tmp_path: Path) -> None:
    first = id_of(tmp_path / "a")
    second = id_of(tmp_path / "b")
    assert first != second
    assert all(one.startswith("localhost-8800-") for one in (first, second))


def test_it_survives_restarts_and_another_host_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = id_of(tmp_path)
    monkeypatch.setattr(socket, "gethostname", lambda: "a-container-that-was-made-anew")
    assert id_of(tmp_path) == first
    assert id_of(tmp_path, listen="0.0.0.0:8800") == first
    assert id_of(tmp_path, listen="0.0.0.0:8900") != first, "another proxy of the same host"


@pytest.mark.parametrize(
    "kept", ["proxy-localhost-8800/routes.json", "joined/proxy-localhost-8800.json"]
)
def test_proxy_of_an_earlier_release_keeps_its_id(tmp_path: Path, kept: str) -> None:
    path = tmp_path / kept
    path.parent.mkdir()
    path.write_text(IDENTITY if "joined" in kept else "{}")
    assert id_of(tmp_path) == "localhost-8800"
    assert id_of(tmp_path) == "localhost-8800"


def test_settings_win(tmp_path: Path) -> None:
    assert id_of(tmp_path, id="edge-1") == "edge-1"
    assert not list(tmp_path.iterdir())


def test_unreadable_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "proxy-id-8800.json").write_text("{")
    with pytest.raises(ConfigError, match=r"proxy-id-8800\.json cannot be read"):
        id_of(tmp_path)


IDENTITY = """{"id": "1", "kind": "proxy", "name": "localhost-8800", "resource_group": null, "link": "m:1",
"key": "", "certificate": "", "authority": "", "begins": "2026-01-01T00:00:00+00:00",
"ends": "2026-02-01T00:00:00+00:00"}"""
