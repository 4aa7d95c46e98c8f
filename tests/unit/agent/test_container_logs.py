"""Messages of an engine with their times: a table of cases."""

from __future__ import annotations

import pytest

from moorage.agent.runtimes.docker.container_logs import split_time

AT_MS = 1_795_652_986_958


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (b"2026-11-26T00:29:46.958538123Z line\n", (AT_MS, b"line\n")),
        (b"2026-11-26T00:29:46.958538123Z \n", (AT_MS, b"\n")),
        (b"2026-11-26T01:29:46.958+01:00 of another zone\n", (AT_MS, b"of another zone\n")),
        (b"2026-11-26T00:29:46.958538123Z two words\n", (AT_MS, b"two words\n")),
        (b"no time\n", (0, b"no time\n")),
        (b"2026-11-26T00:29:46 without a zone\n", (0, b"2026-11-26T00:29:46 without a zone\n")),
        (b"\xff\xfe bytes\n", (0, b"\xff\xfe bytes\n")),
        (b"", (0, b"")),
    ],
)
def test_split_time(message: bytes, expected: tuple[int, bytes]) -> None:
    assert split_time(message) == expected
