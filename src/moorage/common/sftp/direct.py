"""Connection straight to a server of files: TLS, with a credential that was made for this
connection alone.

The credential is a key with its certificate, which both ends present, and is the only one that both
trust. The server listens until one end with the credential has connected, or the files are used
through the link.
"""

from __future__ import annotations

import os
import select
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

# The server stops listening after this time, or after so many connections without the credential.
LISTENS_S = 30.0
_TRIES = 8
_HANDSHAKE_S = 2.0
_CHUNK = 512 * 1024


@contextmanager
def credential_file(credential: str) -> Iterator[int]:
    """A descriptor of the credential, which is on no disk. Raises ``OSError``."""
    fd = os.memfd_create("credential", os.MFD_CLOEXEC)
    try:
        os.write(fd, credential.encode())
        yield fd
    finally:
        os.close(fd)


def tls_context(fd: int, *, server: bool) -> ssl.SSLContext:
    """``fd``: of ``credential_file``. Raises ``OSError``."""
    path = f"/proc/self/fd/{fd}"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False  # there is one certificate
    context.verify_mode = ssl.CERT_REQUIRED
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    if server:
        context.num_tickets = 0

    context.load_cert_chain(path)
    context.load_verify_locations(path)
    return context


def accept(listener: socket.socket, context: ssl.SSLContext, link: int) -> TlsStream | None:
    """The first connection with the credential. None: the files are used through ``link``, a
    descriptor that has become readable, or nobody has come."""
    with listener:
        for _ in range(_TRIES):
            ready = select.select([listener.fileno(), link], [], [], LISTENS_S)[0]
            if not ready or link in ready:
                return None

            connection, _ = listener.accept()
            try:
                connection.settimeout(_HANDSHAKE_S)
                stream = TlsStream(connection, context)
                stream.do_handshake()
            except OSError:
                connection.close()
                continue

            connection.settimeout(None)
            return stream

    return None


class TlsStream:
    """The server's end, as a file. Records are decrypted from large pieces: a system call for each
    takes as long as the decryption."""

    def __init__(self, connection: socket.socket, context: ssl.SSLContext) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection = connection
        self._in = ssl.MemoryBIO()
        self._out = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_side=True)
        self._chunk = memoryview(bytearray(_CHUNK))

    def do_handshake(self) -> None:
        """Raises ``OSError``, also for a peer without the credential."""
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._flush()
                if not self._fill():
                    raise ConnectionResetError from None
            else:
                self._flush()
                return

    def read(self, size: int) -> bytes:
        """Fewer than ``size`` bytes only at the end."""
        found = bytearray(size)
        at = 0
        view = memoryview(found)
        while at < size:
            try:
                count = cast(int, self._tls.read(size - at, view[at:]))
            except ssl.SSLWantReadError:
                if not self._fill():
                    break
                continue
            except ssl.SSLZeroReturnError:
                break

            if not count:
                break

            at += count

        view.release()
        return bytes(found) if at == size else bytes(found[:at])

    def write(self, data: bytes | bytearray) -> None:
        self._tls.write(data)
        self._flush()

    def flush(self) -> None:
        """Everything was sent by ``write``."""

    def _fill(self) -> int:
        count = self._connection.recv_into(self._chunk)
        self._in.write(self._chunk[:count])
        return count

    def _flush(self) -> None:
        if self._out.pending:
            self._connection.sendall(self._out.read())
