"""A hostile SFTP client: each of its packets is answered or ends the channel, within bounds, and
nothing outside the tree is read or written."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from hypothesis import given
from tests.examples import examples
from tests.sftp_packets import SESSIONS, Part, packet_of

from moorage.common.sftp.confined import Root
from moorage.common.sftp.server import Server
from moorage.common.sftp.wire import MAX_PACKET, Malformed, PacketKind

SECRET = b"quokka"


def tree() -> Path:
    """``root`` with some files and a link that leads outside, and ``outside`` beside it."""
    folder = Path(tempfile.mkdtemp(prefix="moorage-sftp-"))
    (folder / "outside").write_bytes(SECRET)
    root = folder / "root"
    (root / "d").mkdir(parents=True)
    (root / "a").write_bytes(b"hello")
    (root / "link").symlink_to("a")
    (root / "out").symlink_to("../outside")
    return folder


def test_any_session_is_answered_within_bounds_and_stays_inside() -> None:
    kinds = set()

    @examples(150)
    @given(SESSIONS)
    def run(session: list[tuple[int, list[Part]]]) -> None:
        folder = tree()
        server = Server(Root(str(folder / "root")))
        handles = list[bytes]()
        before = len(os.listdir("/proc/self/fd"))
        try:
            for number, (kind, parts) in enumerate(session):
                try:
                    answer = bytes(server.answer(packet_of(number, kind, parts, handles)))
                except Malformed:
                    continue

                kinds.add(answer[4])
                assert len(answer) <= MAX_PACKET
                assert SECRET not in answer
                if answer[4] == PacketKind.HANDLE:
                    handles.append(answer[13:])

            assert (folder / "outside").read_bytes() == SECRET
            assert sorted(os.listdir(folder)) == ["outside", "root"]
            server.close()
            assert len(os.listdir("/proc/self/fd")) == before, "files stay open"
        finally:
            server.close()
            shutil.rmtree(folder)

    run()
    made = {
        PacketKind.STATUS,
        PacketKind.HANDLE,
        PacketKind.NAME,
        PacketKind.ATTRS,
        PacketKind.DATA,
        PacketKind.EXTENDED_REPLY,
    }
    assert made <= kinds, "it would try the refusals only"
