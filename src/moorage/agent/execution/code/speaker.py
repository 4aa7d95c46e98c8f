"""Speaker of the Jupyter protocol: a program that the agent starts for each code kernel.

Only this program imports ``jupyter_client``. It imports none of our modules, so it starts quickly,
and a hostile kernel cannot reach the agent's memory. It reads commands and writes events as lines
of JSON, and exits when its input ends. The first line is the kernel's connection, with ``folder``,
the directory of its sockets. Socket paths are relative to that directory, because a path has at
most 107 bytes. A speaker started by root switches to the directory's owner, so that a link in the
directory cannot lead anywhere that the session could not reach.

Reading never stops, because a subscriber that falls behind loses messages silently. A run's output
beyond ``max_bytes`` is dropped here, and a run that keeps printing is interrupted.
"""

from __future__ import annotations

import asyncio
import json
import os
import queue
import resource
import sys
from typing import Any

# IDLE_S: the longest time between a reply and the idle status, even on a busy node.
READY_S = 60.0
IDLE_S = 10.0
REPLY_S = 20.0
# A run is interrupted once it has printed this many times the amount that is kept.
FLOOD = 8
PROMPT = 4096  # characters that are kept
PIECE = 16 * 1024  # maximum characters of text in an item
# The kernel is one of the session's programs, so its messages must not fill the memory of the
# agent's node.
MEMORY_BYTES = 2 * 1024 * 1024 * 1024
_NO_CLIENT = 3  # exit status without jupyter_client


def emit(**event: Any) -> None:
    data = memoryview(json.dumps(event, default=str).encode() + b"\n")
    while data:
        data = data[os.write(1, data) :]


class Speaker:
    def __init__(self, client: Any, max_bytes: int) -> None:
        self._client = client
        self._max_bytes = max_bytes

        # the message id of the current run's request, and the run
        self._parent = ""
        self._run = ""
        self._reply: dict[str, Any] | None = None
        self._idle = False
        self._bytes = 0
        self._flooded = False
        self._completions: dict[str, int] = {}

    async def serve(self, commands: asyncio.StreamReader) -> None:
        client = self._client
        channels = (
            (client.get_iopub_msg, self._on_iopub),
            (client.get_shell_msg, self._on_shell),
            (client.get_stdin_msg, self._on_stdin),
            (client.get_control_msg, lambda message: None),
        )
        readers = [asyncio.create_task(self._read(*channel)) for channel in channels]

        try:
            while line := await commands.readline():
                self._obey(json.loads(line))
        finally:
            for reader in readers:
                reader.cancel()

    async def _read(self, receive: Any, handle: Any) -> None:
        while True:
            try:
                message = await receive(timeout=None)
            except ValueError:  # a wrong signature, or not a message
                continue
            handle(message)

    def _obey(self, command: dict[str, Any]) -> None:
        match command["op"]:
            case "execute":
                self._run = command["run"]
                self._reply = None
                self._idle = False
                self._bytes = 0
                self._flooded = False
                self._parent = self._client.execute(command["code"], allow_stdin=command["stdin"])
            case "input":
                self._client.input(command["text"])
            case "interrupt":
                self._send_control("interrupt_request")
            case "shutdown":
                self._send_control("shutdown_request", restart=False)
            case "complete":
                asked = self._client.complete(command["code"], command["cursor"])
                self._completions[asked] = command["id"]

    def _send_control(self, kind: str, **content: Any) -> None:
        self._client.control_channel.send(self._client.session.msg(kind, content))

    def _on_iopub(self, message: dict[str, Any]) -> None:
        if not self._parent or message["parent_header"].get("msg_id") != self._parent:
            return

        content = message["content"]
        match message["header"]["msg_type"]:
            case "stream":
                self._output(type="stream", name=content["name"], text=content["text"])
            case "display_data" | "update_display_data":
                shown = {
                    "data": content["data"],
                    "display_id": content.get("transient", {}).get("display_id"),
                }
                update = message["header"]["msg_type"].startswith("update")
                self._output(type="display", update=update, **shown)
            case "execute_result":
                self._output(type="result", data=content["data"])
            case "error":
                named = {"name": content["ename"], "message": content["evalue"]}
                self._output(type="error", **named, traceback=content["traceback"])
            case "clear_output":
                self._output(type="clear", wait=bool(content.get("wait")))
            case "execute_input":
                emit(event="begun", run=self._run)
            case "status" if content["execution_state"] == "idle":
                self._idle = True
                self._end_if_complete()
                if self._parent:
                    asyncio.get_running_loop().call_later(
                        IDLE_S, self._end_without_reply, self._parent
                    )

    def _on_shell(self, message: dict[str, Any]) -> None:
        parent = message["parent_header"].get("msg_id")
        content = message["content"]
        if parent in self._completions:
            found = {name: content.get(name) for name in ("matches", "cursor_start", "cursor_end")}
            emit(event="completions", id=self._completions.pop(parent), found=found)
        elif parent == self._parent and message["header"]["msg_type"] == "execute_reply":
            self._reply = content
            self._end_if_complete()
            if self._parent:
                asyncio.get_running_loop().call_later(IDLE_S, self._end_without_idle, parent)

    def _on_stdin(self, message: dict[str, Any]) -> None:
        if message["parent_header"].get("msg_id") == self._parent:
            content = message["content"]
            asked = {
                "prompt": str(content["prompt"])[:PROMPT],
                "password": bool(content.get("password")),
            }
            self._bytes += len(json.dumps(asked)) + 64
            if self._bytes <= FLOOD * self._max_bytes:  # even if the run's output is cut off
                emit(event="output", run=self._run, item={"type": "input", **asked})

    def _output(self, **item: Any) -> None:
        """Send output. Sizes are measured on the JSON that is sent and kept. Long text is sent in
        pieces."""
        text = item.get("text")
        if text is not None and len(text) > PIECE:
            for start in range(0, len(text), PIECE):
                self._output(**item | {"text": text[start : start + PIECE]})
            return

        left = self._max_bytes - self._bytes
        self._bytes += len(json.dumps(item, default=str)) + 64
        if self._bytes <= self._max_bytes:
            emit(event="output", run=self._run, item=item)
        elif left > 0:
            emit(
                event="output",
                run=self._run,
                item={"type": "truncated", "kept_bytes": self._max_bytes},
            )
        elif self._bytes > FLOOD * self._max_bytes and not self._flooded:
            self._flooded = True
            emit(event="flooded", run=self._run)

    def _end_without_idle(self, parent: str) -> None:
        if self._parent == parent:  # the kernel dropped messages, including the idle status
            emit(event="output", run=self._run, item={"type": "gap"})
            self._idle = True
            self._end_if_complete()

    def _end_without_reply(self, parent: str) -> None:
        """End a run that got no reply: ipykernel drops the reply if an interrupt arrives while no
        code is running."""
        if self._parent == parent:
            emit(event="output", run=self._run, item={"type": "gap"})
            self._reply = {"status": "aborted"}
            self._end_if_complete()

    def _end_if_complete(self) -> None:
        """End the run once both its reply and the idle status have arrived."""
        if self._reply is None or not self._idle:
            return
        emit(event="done", run=self._run, ok=self._reply.get("status") == "ok")
        self._parent = ""


async def main() -> None:
    commands = asyncio.StreamReader(limit=64 << 20)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(commands), sys.stdin
    )
    try:
        from jupyter_client.asynchronous.client import AsyncKernelClient
    except ImportError as error:
        emit(
            event="failed", detail=f"the agent cannot import jupyter_client: {error}", install=True
        )
        sys.exit(_NO_CLIENT)

    connection = json.loads(await commands.readline())
    try:
        enter(connection.pop("folder"))
    except OSError as error:
        emit(
            event="failed", detail=f"the agent's user cannot enter the session's directory: {error}"
        )
        return

    max_bytes = connection.pop("max_bytes")
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    client = AsyncKernelClient()
    client.load_connection_info(connection)
    client.start_channels(hb=False)

    try:
        async with asyncio.timeout(READY_S):
            await wait_until_ready(client)
    except TimeoutError:
        emit(event="failed", detail=f"the code kernel does not answer within {READY_S:g} s")
        return

    emit(event="ready")
    await Speaker(client, max_bytes).serve(commands)


async def wait_until_ready(client: Any) -> None:
    """Return once the kernel answers and its published messages arrive: a subscription takes effect
    with a delay.

    The client's own ``wait_for_ready`` is not used because it mistakes a slow heartbeat on a busy
    node for a death.
    """
    answered = published = False
    while not (answered and published):
        client.kernel_info()
        answered = answered or await arrives(client.get_shell_msg)
        published = published or await arrives(client.get_iopub_msg)


async def arrives(receive: Any) -> bool:
    try:
        await receive(timeout=1)
    except (queue.Empty, ValueError):
        return False
    return True


def enter(folder: str) -> None:
    """Make ``folder`` the working directory, and switch to its owner. Raises ``OSError``."""
    os.chdir(folder)
    if os.geteuid() == 0:
        owner = os.stat(".")
        os.setgroups([])
        os.setresgid(owner.st_gid, owner.st_gid, owner.st_gid)
        os.setresuid(owner.st_uid, owner.st_uid, owner.st_uid)


if __name__ == "__main__":
    asyncio.run(main())
