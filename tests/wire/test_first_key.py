"""The first administrator's key, given to several managers with one database."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from moorage.common.aio.clock import SystemClock
from moorage.common.config.settings import ManagerSettings
from moorage.manager import Manager
from moorage.sdk import Client

GIVEN = "mg-0123456789abcdef0123456789abcdef"


async def test_a_given_key_is_the_first_one_wherever_a_manager_starts(
    migrated_database: str, tmp_path: Path
) -> None:
    settings = ManagerSettings(
        dsn=migrated_database, listen="127.0.0.1:0", link_listen="127.0.0.1:0", admin_key=GIVEN
    )
    made = []
    for name in ("one", "two"):  # a pod that replaces another has an empty state directory
        home = tmp_path / name
        home.mkdir()
        async with Manager(settings, clock=SystemClock(), link_token="link", home=home) as manager:
            made.append(manager.first_key)
            async with Client(f"http://{manager.api_address}", GIVEN) as client:
                assert [key.name for key in await client.keys.list()] == ["admin"]

    assert made == [GIVEN, None]


@pytest.mark.parametrize("key", ["", "mg-short", "0123456789abcdef0123456789abcdef", f"{GIVEN} "])
def test_a_key_that_can_be_guessed_is_refused(key: str) -> None:
    with pytest.raises(ValidationError, match="admin_key"):
        ManagerSettings(admin_key=key)
