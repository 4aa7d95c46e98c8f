"""Logs by byte number, from an agent's log store through a real manager to the client."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest
from manager_harness import TOKEN, Stream, attach, client, manager

from moorage.agent.link.answers import send_log
from moorage.agent.state.log_times import LogRange
from moorage.agent.state.log_writer import Log
from moorage.agent.state.logs import LogStore, data_of
from moorage.common.aio.tasks import cancel_and_wait, spawn
from moorage.common.link import codec
from moorage.common.link.log_request import LogPiece
from moorage.common.link.messages import LogRequest
from moorage.common.link.pb import agent_pb2
from moorage.common.model.ids import KernelId
from moorage.common.model.spec import SessionSpec
from moorage.manager import Manager
from moorage.manager.rpc import logs
from moorage.sdk import Client, log_following

__all__ = ["client", "manager"]  # fixtures
K = KernelId("k")
# A file that is rotated away while it is read may have lost its timestamps, which are then "-".
TIME = re.compile(rb"([0-9-]{10}T[0-9:.]{12}Z|-) ")


class Node:
    """An agent with one log. ``numbered``: False makes it behave like one of the previous release,
    which sends no numbers. ``random``: ends its answers at any point."""

    def __init__(self, agent: Stream, root: Path, *, numbered: bool = True) -> None:
        self._agent = agent
        self._numbered = numbered
        self._store = LogStore(root)
        self.log = Log(str(root / K), 200, 2)
        self.random: Random | None = None
        self.is_running = True
        self.written = b""
        self.offsets = list[int | None]()

    def write(self, lines: int) -> None:
        for _ in range(lines):
            line = b"%07d\n" % (len(self.written) // 8)
            self.written += line
            self.log.write(line)

    def lose(self, size: int) -> None:
        """Bytes that a full disk refuses."""
        self.written += b"?" * size
        self.log.skip_to(len(self.written))

    async def answer(self) -> None:
        """All requests for logs."""
        answers = list[asyncio.Task[None]]()
        try:
            while True:
                request = await self._agent.next()
                if isinstance(request, LogRequest):
                    self.offsets.append(request.offset)
                    metadata = [("authorization", f"Bearer {TOKEN}")]
                    work = send_log(self._agent.stub, metadata, request, self._open)
                    answers.append(spawn("test.answer", work))
        finally:
            await cancel_and_wait(*answers)

    def _open(self, request: LogRequest) -> AsyncGenerator[LogPiece | bytes, None]:
        offset = request.offset if self._numbered else None
        wanted = LogRange(
            request.tail_lines,
            request.follow,
            timestamps=request.timestamps,
            since_ms=request.since_ms,
            offset=offset,
        )
        pieces = self._store.read_range(K, wanted, lambda: self.is_running)
        return self._cut(pieces if self._numbered else data_of(pieces))

    async def _cut(
        self, pieces: AsyncGenerator[LogPiece, None] | AsyncGenerator[bytes, None]
    ) -> AsyncGenerator[LogPiece | bytes, None]:
        try:
            async for piece in pieces:
                yield piece
                data = piece.data if isinstance(piece, LogPiece) else piece
                if data and self.random is not None and self.random.random() < 0.2:
                    await asyncio.sleep(0.02)  # known to the manager about the answer
                    raise asyncio.CancelledError  # the agent is killed
        finally:
            await pieces.aclose()


@asynccontextmanager
async def node(
    manager: Manager, client: Client, root: Path, *, numbered: bool = True
) -> AsyncIterator[Node]:
    async with attach(manager) as agent:
        await client.sessions.create(SessionSpec(name="job", command=["x"], resources={"cpu": 1}))
        await agent.orders_with(1)
        made = Node(agent, root, numbered=numbered)
        answering = spawn("test.node", made.answer())
        try:
            yield made
        finally:
            await cancel_and_wait(answering)


async def read(
    client: Client,
    random: Random | None = None,
    begun: asyncio.Event | None = None,
    **options: object,
) -> list[bytes]:
    """The data received before each reported loss, and after the last one. With ``random``, the
    data is read at any speed. ``begun``: set when the first piece arrives."""
    found = [b""]
    pieces = client.sessions.logs("job", on_loss=lambda: found.append(b""), **options)  # type: ignore[arg-type]
    async for piece in pieces:
        found[-1] += piece
        if begun is not None:
            begun.set()
        if random is not None and random.random() < 0.2:
            await asyncio.sleep(random.random() / 20)

    return [TIME.sub(b"", part) for part in found]


def places(parts: list[bytes], whole: bytes) -> list[tuple[int, int]]:
    """The positions of the parts in ``whole``, each after the previous one."""
    found = list[tuple[int, int]]()
    at = 0
    for part in parts:
        begin = whole.find(part, at)
        assert begin >= 0, "doubled, or not in its order"
        at = begin + len(part)
        found.append((begin, at))
    return found


@pytest.mark.parametrize("numbered", [True, False], ids=["numbered", "previous release"])
@pytest.mark.parametrize("timestamps", [False, True], ids=["plain", "timed"])
async def test_bytes_come_once_or_are_told_as_lost(
    manager: Manager,
    client: Client,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    timestamps: bool,
    numbered: bool,
) -> None:
    """With rotations, killed agents, full disks and slow readers."""
    monkeypatch.setattr(log_following, "FIRST_PAUSE_S", 0.0)

    # An agent's statement about its answer may end with the agent before it is sent.
    monkeypatch.setattr(logs, "FIRST_ANSWER_S", 1.0)
    random = Random(f"{timestamps} {numbered}")
    async with node(manager, client, tmp_path, numbered=numbered) as agent, asyncio.timeout(60):
        agent.write(3)
        begun = asyncio.Event()
        reading = spawn(
            "test.read", read(client, random, begun, follow=True, timestamps=timestamps)
        )
        await begun.wait()
        agent.random = random
        for _ in range(40):
            agent.write(random.choice([1, 5, 20, 20, 120]))
            # An agent of the previous release does not know which bytes its disk has refused.
            if numbered and random.random() < 0.1:
                agent.lose(8)

            await asyncio.sleep(random.random() / 20)

        agent.write(1)
        agent.is_running = False
        agent.random = None
        parts = await reading

    found = places(parts, agent.written)
    assert (found[0][0], found[-1][1]) == (0, len(agent.written))
    assert len(agent.offsets) > 2, "the answers were cut off"
    assert len(parts) > 1, "bytes were lost"

    if numbered:
        assert all(before[1] < behind[0] for before, behind in itertools.pairwise(found)), (
            "not lost"
        )
        assert max(offset or 0 for offset in agent.offsets) > 0


@pytest.mark.parametrize("timestamps", [False, True], ids=["plain", "timed"])
async def test_a_gap_is_told_to_a_reading_that_does_not_follow(
    manager: Manager, client: Client, tmp_path: Path, timestamps: bool
) -> None:
    async with node(manager, client, tmp_path) as agent, asyncio.timeout(30):
        agent.write(10)
        agent.lose(16)
        agent.write(10)
        assert await read(client, timestamps=timestamps) == [agent.written[:80], agent.written[96:]]
        assert await read(client, tail=15, timestamps=timestamps) == [
            agent.written[40:80], agent.written[96:]
        ]  # fmt: skip
        assert await read(client, tail=5, timestamps=timestamps) == [agent.written[-40:]]
        agent.write(100)
        [nothing, kept] = await read(client, timestamps=timestamps)
        assert nothing == b"", "what is rotated away before the first byte is told"
        assert agent.written.endswith(kept)


def test_a_request_of_the_previous_release_asks_for_no_number() -> None:
    sent = agent_pb2.ManagerMessage(logs=agent_pb2.LogRequest(request_id="r", kernel_id="k"))
    request = codec.manager_message_from_wire(
        agent_pb2.ManagerMessage.FromString(sent.SerializeToString())
    )
    assert isinstance(request, LogRequest)
    assert request.offset is None
    assert not LogRange(offset=request.offset).tells_gaps
