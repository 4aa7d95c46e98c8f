"""SFTP server process on standard input and output: ``process.py DIR [UID GID]``.

The agent starts one for each connection to a session's files, as the user who owns them. It
accesses the files only through ``Root``, so nothing that a client or the session does leads out of
the tree.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import sys
from typing import BinaryIO

from moorage.common.sftp import wire
from moorage.common.sftp.confined import Root
from moorage.common.sftp.memory import keep_freed_blocks
from moorage.common.sftp.server import Server
from moorage.common.sftp.wire import Malformed

_PIPE_BYTES = 1024 * 1024


def serve(server: Server, source: BinaryIO, sink: io.RawIOBase) -> None:
    """Answer packets until the input ends. Raises ``Malformed``."""
    while True:
        head = source.read(4)
        if len(head) < 4:
            return

        size = int.from_bytes(head)
        if not 1 <= size <= wire.MAX_PACKET:
            raise Malformed(f"a packet of {size} bytes")

        packet = source.read(size)
        if len(packet) < size:
            return

        sink.write(server.answer(packet))


def main() -> None:
    """The arguments are the directory (a path, or the number of a descriptor), and the user and
    group that the process switches to once it has loaded the files that this user may be unable to
    read."""
    os.umask(0o022)
    keep_freed_blocks()
    given, *owner = sys.argv[1:]

    # By default, a pipe has room for only a quarter of a request, so both ends would wake up
    # several times for each request.
    with contextlib.suppress(OSError):
        fcntl.fcntl(1, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)

    if owner:
        os.setgroups(())
        os.setgid(int(owner[1]))
        os.setuid(int(owner[0]))

    try:
        root = Root(f"/proc/self/fd/{given}" if given.isdigit() else given)
    except OSError as error:
        print(f"moorage: the session's files cannot be opened: {error.strerror}", file=sys.stderr)
        sys.exit(1)

    try:
        with os.fdopen(1, "wb", buffering=0, closefd=False) as sink:
            serve(Server(root), sys.stdin.buffer, sink)
    except (Malformed, ConnectionError):
        sys.exit(1)


if __name__ == "__main__":
    main()
