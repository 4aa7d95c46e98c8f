"""Files shared by the daemons of a host: concurrent writers, each the daemon of a different
component."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from moorage.server.shared_settings import keep_copy

WRITER = """
import sys
from pathlib import Path
from moorage.server.shared_settings import keep_copy
print("ready", flush=True)
sys.stdin.readline()
for _ in range(300):
    keep_copy(Path(sys.argv[1]), {"a": sys.argv[2] * 1000})
"""


def test_daemons_that_start_together_keep_a_whole_copy(tmp_path: Path) -> None:
    path = tmp_path / "etcd-settings.json"
    command = [sys.executable, "-c", WRITER, str(path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    writers = [subprocess.Popen([*command, mark], text=True, **pipes) for mark in "xyz"]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"

    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()

    found = [writer.communicate(timeout=60)[1] for writer in writers]
    assert found == ["", "", ""]
    assert json.loads(path.read_text())["a"] in [mark * 1000 for mark in "xyz"]
    assert [left.name for left in tmp_path.iterdir()] == [path.name]
    keep_copy(path, {})
    assert json.loads(path.read_text()) == {}
