"""Addresses and keys of clients that specify none: they use the command line's."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_manager import KEY, FakeManager
from scripted_session import batch

from moorage.common.model.errors import ConfigError
from moorage.sdk import ApiError, Client, SyncClient
from moorage.sdk.installation.contexts import Context, Contexts, write_contexts
from moorage.sdk.installation.local_manager import INSECURE_LOOPBACK


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state directory, without any other source of an address or a key."""
    for name in ("MOORAGE_URL", "MOORAGE_API_KEY", "MOORAGE_API_KEY_FILE", "MOORAGE_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MOORAGE_HOME", str(tmp_path))
    monkeypatch.setenv(INSECURE_LOOPBACK, "1")
    return tmp_path


async def test_address_and_key_come_from_the_environment(
    manager: FakeManager, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager.add_session(batch("job"))
    monkeypatch.setenv("MOORAGE_URL", manager.url)
    monkeypatch.setenv("MOORAGE_API_KEY", KEY)
    async with Client() as client:
        assert [view.name async for view in client.sessions.list()] == ["job"]


async def test_address_and_key_come_from_the_context_in_use(
    manager: FakeManager, home: Path
) -> None:
    manager.add_session(batch("job"))
    (home / "key").write_text(f"{KEY}\n")
    saved = Contexts("site", {"site": Context(manager.url, key_file=str(home / "key"))})
    write_contexts(home, saved)
    async with Client() as client:
        assert [view.name for view in await client.sessions.list()] == ["job"]


def test_a_client_with_an_address_reads_no_other_source(
    manager: FakeManager, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOORAGE_API_KEY", KEY)
    (home / "contexts.json").write_text("no JSON")
    with SyncClient(manager.url) as client, pytest.raises(ApiError) as refused:
        client.sessions.list().page()
    assert refused.value.status == 401, "the key of another installation is not sent"


def test_bad_sources_are_reported_at_once(home: Path) -> None:
    (home / "contexts.json").write_text("no JSON")
    with pytest.raises(ConfigError, match="not a contexts file"):
        Client()
