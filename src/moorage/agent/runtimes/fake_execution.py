"""Commands in pretended kernels. They know a few words and no programs: ``echo WORDS``, ``warn WORDS`` (to
stderr), ``exit CODE``, ``cat`` (says what it is told, until the end of its input), ``env NAME``, ``size``
(says its terminal's size, at first and at each change) and ``sleep`` (until it is ended)."""

from __future__ import annotations

from collections.abc import Mapping

from moorage.agent.runtimes.execution import NOT_FOUND, STDERR, STDOUT, Command
from moorage.common.aio.pipe import Pipe

_SIGHUP, _WAITING_MAX = -1, 16


class FakeExecution:
    def __init__(self, command: Command, env: Mapping[str, str]) -> None:
        self._command, self._env = command, {**env, **command.env}
        self._said: Pipe[tuple[int, bytes]] = Pipe(_WAITING_MAX)
        self._code: int | None = None
        self._first: list[tuple[int, bytes]] = []
        self._begin()

    def _begin(self) -> None:
        word, *rest = self._command.argv
        text = " ".join(rest)
        if word in ("echo", "warn"):
            self._first.append((STDOUT if word == "echo" else STDERR, f"{text}\n".encode()))
            self.end(0)
        elif word == "env":
            self._first.append((STDOUT, f"{self._env.get(text, '')}\n".encode()))
            self.end(0)
        elif word == "exit":
            self.end(int(text))
        elif word == "size":
            self._first.append((STDOUT, f"{self._command.rows} {self._command.cols}\n".encode()))
        elif word == "cat" and not self._command.stdin:
            self.end(0)
        elif word not in ("cat", "sleep"):
            self._first.append((STDERR, f"moorage: there is no {word!r} in the session\n".encode()))
            self.end(NOT_FOUND)

    def end(self, code: int) -> None:
        if self._code is None:
            self._code = code
            self._said.close()

    async def read(self) -> tuple[int, bytes] | None:
        if self._first:
            channel, data = self._first.pop(0)
            return (STDOUT if self._command.tty else channel), data
        return await self._said.get()

    async def write(self, data: bytes) -> None:
        if self._command.argv[0] == "cat":
            await self._said.put((STDOUT, data))

    async def end_input(self) -> None:
        if self._command.argv[0] == "cat":
            self.end(0)

    async def resize(self, rows: int, cols: int) -> None:
        if self._command.argv[0] == "size" and self._command.tty:
            await self._said.put((STDOUT, f"{rows} {cols}\n".encode()))

    async def wait(self) -> int:
        while self._code is None:
            await self._said.get()
        return self._code

    def disconnect(self) -> None:
        self.end(_SIGHUP)
