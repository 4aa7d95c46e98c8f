"""Commands that an SSH client requests in a session. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from moorage.common.model.commands import ExecSpec, Size

SFTP = "sftp"
# The same as `AcceptEnv` of Debian's sshd.
_ACCEPTED = ("LANG", "COLORTERM", "NO_COLOR")
_SHELL = "if command -v bash >/dev/null; then exec bash; fi; exec sh"
# The paths at which Debian, Fedora, Alpine, Arch and openSUSE install it.
_SFTP_SERVER = """
for program in /usr/lib/openssh/sftp-server /usr/libexec/openssh/sftp-server /usr/lib/ssh/sftp-server \\
  /usr/libexec/ssh/sftp-server /usr/lib/sftp-server /usr/libexec/sftp-server; do
  if [ -x "$program" ]; then exec "$program"; fi
done
echo "moorage: the session has no sftp-server: install openssh-sftp-server there, or use moorage cp" >&2
exit 127
"""
# Connects to $1:$2 from the session and copies in both directions, using the first of these
# programs that the session has.
_CONNECT = """
if command -v python3 >/dev/null; then exec python3 -c '
import os, socket, sys, threading
s = socket.create_connection((sys.argv[1], int(sys.argv[2])), 10)
s.settimeout(None)
def send():
    for data in iter(lambda: os.read(0, 65536), b""):
        s.sendall(data)
    s.shutdown(socket.SHUT_WR)
threading.Thread(target=send, daemon=True).start()
for data in iter(lambda: s.recv(65536), b""):
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
' "$1" "$2"; fi
if command -v socat >/dev/null; then exec socat - "TCP:$1:$2"; fi
if command -v nc >/dev/null; then exec nc "$1" "$2"; fi
if command -v bash >/dev/null; then exec bash -c '
exec 3<>"/dev/tcp/$0/$1" && { cat >&3 & cat <&3; }' "$1" "$2"; fi
echo "moorage: ports are forwarded with python3, socat, nc or bash, and the session has none of them" >&2
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
    *,
    kernel: str,
) -> ExecSpec:
    """The command to run; a shell if neither a command nor a subsystem is given.

    Raises ``ValueError`` for requests that no session can run, such as a command with a NUL
    character.
    """
    if "\0" in (command or ""):
        raise ValueError("it contains a NUL character, which no argument of a program can")

    script = _SFTP_SERVER if subsystem == SFTP else command if command is not None else _SHELL
    given = {
        name: value for name, value in env.items() if name in _ACCEPTED or name.startswith("LC_")
    }
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


def connection_to(host: str, port: int, kernel: str) -> ExecSpec:
    """Command that connects, in the session, to an address as the session sees it.

    Raises ``ValueError`` for an invalid address.
    """
    if not host or "\0" in host or host.startswith("-") or len(host) > 255 or not 0 < port < 65536:
        raise ValueError(f"{host[:300]!r}, port {port}, is not an address")
    return ExecSpec(
        command=["sh", "-c", _CONNECT, "sh", host, str(port)], stdin=True, kernel=kernel
    )


def size_of(rows: int, cols: int) -> Size:
    """Terminal size. A client may send any 32 bits; a size out of bounds is treated as unknown."""
    allowed = 0 <= rows <= 0xFFFF and 0 <= cols <= 0xFFFF
    return Size(rows=rows, cols=cols) if allowed else Size()
