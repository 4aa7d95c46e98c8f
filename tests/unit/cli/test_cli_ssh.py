"""Commands requested by SSH clients."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.common.model.commands import Size
from moorage.common.ssh.requests import Terminal, command_of, connection_to, size_of


def test_command_is_passed_to_the_shell_as_one_argument() -> None:
    spec = command_of("rsync --server . 'a b'", None, None, {}, kernel="sub1")
    assert (spec.command, spec.stdin, spec.tty) == (
        ["sh", "-c", "rsync --server . 'a b'"],
        True,
        False,
    )
    assert spec.kernel == "sub1"


def test_empty_command_is_a_command_and_no_shell() -> None:
    assert command_of("", None, None, {}, kernel="main1").command == ["sh", "-c", ""]


def test_sftp_is_the_server_in_the_session() -> None:
    assert "openssh-sftp-server" in command_of(None, "sftp", None, {}, kernel="main1").command[2]


def test_terminal_gives_type_and_size() -> None:
    spec = command_of(None, None, Terminal("xterm", 40, 120), {}, kernel="main1")
    assert (spec.tty, spec.size, spec.env) == (True, Size(rows=40, cols=120), {"TERM": "xterm"})


def test_only_accepted_variables_reach_the_session() -> None:
    env = {"LANG": "C", "LC_ALL": "C", "LD_PRELOAD": "/tmp/x.so", "PATH": "/tmp", "TERM": "x"}
    assert command_of("true", None, None, env, kernel="main1").env == {"LANG": "C", "LC_ALL": "C"}


@pytest.mark.parametrize("command", ["echo \0", "\0"])
def test_nul_in_a_command_is_refused(command: str) -> None:
    with pytest.raises(ValueError, match="NUL"):
        command_of(command, None, None, {}, kernel="main1")


@given(rows=st.integers(), cols=st.integers())
def test_any_size_of_a_window_is_valid_or_unknown(rows: int, cols: int) -> None:
    assert size_of(rows, cols) in (Size(), Size.model_construct(rows=rows, cols=cols))


def test_address_is_no_part_of_the_script() -> None:
    spec = connection_to("$(reboot)", 80, "sub1")
    assert (spec.command[0], spec.command[3:], spec.kernel) == (
        "sh",
        ["sh", "$(reboot)", "80"],
        "sub1",
    )
    assert "reboot" not in spec.command[2]
    assert spec.stdin


@pytest.mark.parametrize(
    ("host", "port"),
    [("", 80), ("a\0b", 80), ("-e", 80), ("a" * 256, 80), ("a", 0), ("a", 65536), ("a", -1)],
)
def test_what_is_no_address(host: str, port: int) -> None:
    with pytest.raises(ValueError, match="is not an address"):
        connection_to(host, port, "main1")
