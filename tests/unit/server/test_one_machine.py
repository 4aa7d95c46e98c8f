"""A laptop that runs everything: idle models do not fill its memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from moorage.common.config.loader import load
from moorage.server.one_machine import INVENTORY, with_shared_cpus


@pytest.mark.parametrize(
    ("flags", "inventory"),
    [
        ({}, INVENTORY),
        ({"agent.inventory": "auto"}, "auto"),
        ({"agent.inventory": "fake:8xH100"}, "fake:8xH100"),
    ],
)
def test_cpus_are_shared_unless_the_inventory_is_set(
    tmp_path: Path, flags: dict[str, str], inventory: str
) -> None:
    loaded = with_shared_cpus(load(None, {"MOORAGE_HOME": str(tmp_path)}, flags))
    assert loaded.settings.agent.inventory == inventory
