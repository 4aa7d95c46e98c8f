"""Tunnels of the test server: real TCP forwards from HEAppE's own ports to nodes.

As in HEAppE there are two lists: records, one per task and user, and forwards per task. They can
disagree, and then neither closing nor requesting a tunnel fixes it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import datetime

from moorage.common.aio.tasks import cancel_and_wait, spawn
from tests.heappe.site import User
from tests.heappe.wire import Problem


@dataclass(eq=False)
class Forward:
    """``port``: the number that HEAppE reports; ``real_port``: where this machine listens.
    ``address``: the address to which the login node resolves ``host``."""

    port: int
    host: str
    node_port: int
    address: str = ""
    real_port: int = 0
    alive: bool = True
    server: asyncio.Server | None = None
    copies: set[asyncio.Task[None]] = field(default_factory=set)

    async def open(self) -> None:
        self.server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.real_port = self.server.sockets[0].getsockname()[1]

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = spawn("forward", self._forward(reader, writer))
        self.copies.add(task)
        task.add_done_callback(self.copies.discard)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection(self.address or self.host, self.node_port)
        except OSError:
            writer.transport.abort()
            return

        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(_copy(reader, back))
                both.create_task(_copy(there, writer))
        finally:
            writer.transport.abort()
            back.transport.abort()

    async def close(self) -> None:
        self.alive = False
        if self.server is not None:
            self.server.close()
        await cancel_and_wait(*self.copies)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()


@dataclass
class Record:
    task: int
    user: str
    forward: Forward


class Tunnels:
    """``last_use``: when the jobs' pooled SSH connection was last used; HTTP through a tunnel does
    not count as use."""

    def __init__(self, ports: tuple[int, int]) -> None:
        self.ports = ports
        self.records: dict[tuple[int, str], Record] = {}
        self.forwards: dict[int, list[Forward]] = {}
        self.leaked: set[int] = set()
        self.last_use: datetime | None = None

    def of(self, task: int, user: User) -> Record | None:
        return self.records.get((task, user.name))

    async def request(
        self, task: int, user: User, host: str, port: int, *, address: str = "", others: int = 0
    ) -> Record:
        """This user's only tunnel to this task, whatever port is requested. ``others``: ports held
        by other users of the instance."""
        if (record := self.of(task, user)) is not None:
            return record

        used = {
            forward.port for forwards in self.forwards.values() for forward in forwards
        } | self.leaked
        free = [number for number in range(*self.ports) if number not in used][others:]
        if not free:
            raise Problem("tunnel", "There is no free local port available for the tunnel.")

        forward = Forward(free[0], host, port, address)
        await forward.open()
        self.forwards.setdefault(task, []).append(forward)
        record = self.records[task, user.name] = Record(task, user.name, forward)

        return record

    async def close(self, task: int, user: User) -> None:
        """Stops the forwards of all users of the task, but removes only this user's record."""
        if (task, user.name) not in self.records:
            raise EmptyError

        forwards = self.forwards.pop(task, [])
        if not forwards:
            raise Problem("tunnel", f"There is no tunnel for the task {task}.")

        for forward in forwards:
            await forward.close()

        del self.records[task, user.name]
        self.leaked |= {
            record.forward.port for record in self.records.values() if record.task == task
        }

    async def kill(self, task: int | None = None) -> None:
        """The SSH connection is gone, but HEAppE still lists the tunnels."""
        for number, forwards in self.forwards.items():
            if task in (None, number):
                for forward in forwards:
                    await forward.close()

    async def closed_by_another(self) -> None:
        """Another user closed that user's tunnel to each task: the forwards of all users are gone,
        but the records stay."""
        for forwards in self.forwards.values():
            for forward in forwards:
                await forward.close()
        self.forwards.clear()
        self.leaked |= {record.forward.port for record in self.records.values()}

    async def forget(self, task: int) -> None:
        for forward in self.forwards.pop(task, []):
            await forward.close()
        for key in [key for key in self.records if key[0] == task]:
            del self.records[key]

    async def clear(self) -> None:
        for task in {*self.forwards, *(task for task, _ in self.records)}:
            await self.forget(task)
        self.leaked.clear()


class EmptyError(Exception):
    """A failure without a body: 500 and nothing else."""
