"""Process of an SFTP server, on its standard input and output: ``process.py DIR LISTENER KEY [UID
GID]``.

The agent starts one for each connection to the files of a session, as the user who owns them. It
has no other way to the files than ``Root``, so nothing that a client or the session does leads out
of the tree.

After the first packet, the others may come over a connection of their own (``direct``).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
from typing import TYPE_CHECKING, Protocol

from moorage.common.sftp import wire
from moorage.common.sftp.confined import Root
from moorage.common.sftp.memory import keep_freed_blocks
from moorage.common.sftp.server import Server
from moorage.common.sftp.wire import Malformed

if TYPE_CHECKING:
    import socket
    import ssl

_PIPE_BYTES = 1024 * 1024


class Source(Protocol):
    def read(self, size: int, /) -> bytes: ...


class Sink(Protocol):
    def write(self, data: bytes | bytearray, /) -> object: ...


def serve(server: Server, source: Source, sink: Sink, *, most: int | None = None) -> None:
    """Answer packets until the end of the input, or ``most`` of them. Raises ``Malformed``."""
    while most is None or most > 0:
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
        most = None if most is None else most - 1


def _serve_streams(
    server: Server, listener: socket.socket | None, context: ssl.SSLContext | None
) -> None:
    with os.fdopen(1, "wb", buffering=0, closefd=False) as sink:
        if listener is not None and context is not None:
            from moorage.common.sftp import direct

            # Unbuffered: whether there is more to read is asked of the descriptor.
            with os.fdopen(0, "rb", buffering=0, closefd=False) as first:
                serve(server, first, sink, most=1)

            if (stream := direct.accept(listener, context, 0)) is not None:
                stream.write(server.hello())
                serve(server, stream, stream)
                return

        serve(server, sys.stdin.buffer, sink)


def main() -> None:
    """The arguments are the directory (a path, or the number of a descriptor), the descriptors of a
    listener and its credential (``-``: none), and the user and group that the process becomes, once
    it has loaded what they may not read."""
    os.umask(0o022)
    keep_freed_blocks()
    given, listens, credential, *owner = sys.argv[1:]

    # A pipe has room for a quarter of a request by default, so that both ends would wake up several
    # times.
    with contextlib.suppress(OSError):
        fcntl.fcntl(1, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)

    listener = context = None
    if listens != "-":
        listener, context = _listener(int(listens), int(credential))

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
        _serve_streams(Server(root), listener, context)
    except (Malformed, ConnectionError):
        sys.exit(1)


def _listener(listens: int, credential: int) -> tuple[socket.socket, ssl.SSLContext]:
    import socket  # 3 MB with ssl, which most servers do not need

    from moorage.common.sftp import direct

    context = direct.tls_context(credential, server=True)
    os.close(credential)
    return socket.socket(fileno=listens), context


if __name__ == "__main__":
    main()
