"""The connection file: daemons on one node that start at the same time."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from moorage.server.process import write_connection_file

WRITERS = [f"address_{number}" for number in range(16)]


def test_no_daemon_loses_the_address_of_another(tmp_path: Path) -> None:
    with ThreadPoolExecutor(len(WRITERS)) as pool:
        for _ in range(20):
            list(pool.map(lambda name: write_connection_file(tmp_path, **{name: name}), WRITERS))
            path = tmp_path / "connection.json"
            assert json.loads(path.read_text()) == {name: name for name in WRITERS}
            path.unlink()


def test_unreadable_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "connection.json").write_text('{"url": ')
    write_connection_file(tmp_path, url="http://localhost:1")
    assert json.loads((tmp_path / "connection.json").read_text()) == {"url": "http://localhost:1"}
