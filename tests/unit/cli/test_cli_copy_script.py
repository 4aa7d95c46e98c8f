"""The script that receives a copy in a session removes a partial copy, no matter what interrupts
the script, and when."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from moorage.cli.commands.cp import RECEIVE_SCRIPT

# Its group gets the signal as `rm` starts, as from an agent that closes the input first.
_RM = """#!/bin/sh
kill -s {signal} 0
exec /bin/rm "$@"
"""


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT, signal.SIGPIPE, signal.SIGTERM])
def test_a_partial_copy_is_removed_by_a_script_that_is_signalled(
    tmp_path: Path, number: signal.Signals
) -> None:
    programs = tmp_path / "programs"
    into = tmp_path / "into"
    programs.mkdir()
    into.mkdir()
    rm = programs / "rm"
    rm.write_text(_RM.format(signal=number.name.removeprefix("SIG")))
    rm.chmod(0o755)
    done = subprocess.run(
        ["sh", "-c", RECEIVE_SCRIPT, "sh", str(into), "copied", "id"],
        input=b"no archive" * 100,
        env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"},
        start_new_session=True,
        capture_output=True,
        timeout=30,
        check=False,
    )
    assert done.returncode != 0
    assert list(into.iterdir()) == []
