"""Addresses of listeners, as people and programs on the same machine use them."""

from __future__ import annotations

import pytest

from moorage.common.model.addresses import reach_of, usable_address


@pytest.mark.parametrize(
    ("host", "shown", "reach"),
    [
        ("127.0.0.1", "127.0.0.1:8700", ""),
        ("gpu-01.lab", "gpu-01.lab:8700", ""),
        ("0.0.0.0", "127.0.0.1:8700", " (on every address of this machine)"),
        ("::", "127.0.0.1:8700", " (on every address of this machine)"),
        ("::1", "[::1]:8700", ""),
        ("2001:db8::1", "[2001:db8::1]:8700", ""),
    ],
)
def test_address_that_can_be_opened(host: str, shown: str, reach: str) -> None:
    assert usable_address(host, 8700) == shown
    assert reach_of(host) == reach
