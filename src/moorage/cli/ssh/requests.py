"""Commands of a session that an SSH client asks for. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from moorage.common.model.commands import ExecSpec, Size

SFTP = "sftp"
# As `AcceptEnv` of Debian's sshd.
_ACCEPTED = ("LANG", "COLORTERM", "NO_COLOR")
_SHELL = "if command -v bash >/dev/null; then exec bash; fi; exec sh"
# Where Debian, Fedora, Alpine, Arch and openSUSE install it.
_SFTP_SERVER = """
for program in /usr/lib/openssh/sftp-server /usr/libexec/openssh/sftp-server /usr/lib/ssh/sftp-server \\
  /usr/libexec/ssh/sftp-server /usr/lib/sftp-server /usr/libexec/sftp-server; do
  if [ -x "$program" ]; then exec "$program"; fi
done
echo "moorage: the session has no sftp-server: install openssh-sftp-server there, or use moorage cp" >&2
exit 127
"""


@dataclass(frozen=True)
class Terminal:
    type: str
    rows: int
    cols: int


def command_of(
    command: str | None,
    subsystem: str | None,
    terminal: Terminal | None,
    env: Mapping[str, str],
    kernel: str,
) -> ExecSpec:
    """A shell when neither a command nor a subsystem is given.

    Raises ``ValueError`` for what no session can run, such as a command with a NUL character.
    """
    if "\0" in (command or ""):
        raise ValueError("it contains a NUL character, which no argument of a program can")
    script = _SFTP_SERVER if subsystem == SFTP else command if command is not None else _SHELL
    given = {name: value for name, value in env.items() if name in _ACCEPTED or name.startswith("LC_")}
    size = Size()
    if terminal is not None:
        given["TERM"] = terminal.type or "dumb"
        size = size_of(terminal.rows, terminal.cols)
    return ExecSpec(
        command=["sh", "-c", script],
        stdin=True,
        tty=terminal is not None,
        size=size,
        env=given,
        kernel=kernel,
    )


def size_of(rows: int, cols: int) -> Size:
    """A client may send any 32 bits: a size out of bounds is unknown."""
    allowed = 0 <= rows <= 0xFFFF and 0 <= cols <= 0xFFFF
    return Size(rows=rows, cols=cols) if allowed else Size()
