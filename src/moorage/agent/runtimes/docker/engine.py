"""Client for a Docker Engine.

Requests go through Docker's SDK, which negotiates the API version, each in a thread with a time
limit. Log and event streams run on the event loop, because they last for weeks and would occupy a
thread (decision 9).
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import threading
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from moorage.agent.runtimes.base import OnProgress, RuntimeFailed
from moorage.agent.runtimes.docker.errors import EngineUnavailable, NoSuchObject, RequestRefused
from moorage.agent.runtimes.docker.pull_progress import PullProgress, ThrottledCallback

T = TypeVar("T")
_SOCKET = Path("/var/run/docker.sock")
_THREADS = 16
_PULL_THREADS = 2
_CALL_TIMEOUT_S = 20.0
_HTTP_TIMEOUT_S = 40
_PULL_TIMEOUT_S = 300
_BATCH_BYTES = 64 * 1024
_TIME = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
# Longest silence within a response that does not wait for anything. Followed logs may be silent for
# weeks.
_STREAM_IDLE_S = 20.0


def engine_socket(setting: str) -> Path | None:
    """The socket for the setting ``agent.docker``; None for ``off``, or for an engine on another
    machine."""
    address = os.environ.get("DOCKER_HOST") or f"unix://{_SOCKET}" if setting == "auto" else setting
    return Path(address.removeprefix("unix://")) if address.startswith("unix://") else None


@dataclass(frozen=True, slots=True)
class OutputLine:
    """A line of output, or a piece of a long line. ``time`` is in RFC 3339; empty if the log driver
    does not record times."""

    channel: int
    time: str
    data: bytes

    @classmethod
    def parse(cls, channel: int, payload: bytes) -> OutputLine:
        stamp, space, rest = payload.partition(b" ")
        if not space or not _TIME.fullmatch(stamp):
            return cls(channel, "", payload)
        return cls(channel, stamp.decode(), rest)


class DockerEngine:
    """A Docker Engine. ``socket``: its Unix socket. It connects at the first request, and again
    after each failure, so that the API version is renegotiated after an engine upgrade."""

    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self.id = ""
        """The identity of the last engine that answered."""
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="docker")
        self._pull_threads = ThreadPoolExecutor(_PULL_THREADS, thread_name_prefix="docker-pull")
        self._api: Any = None
        self._connecting = threading.Lock()

    async def call(self, request: Callable[[Any], T], timeout_s: float = _CALL_TIMEOUT_S) -> T:
        """Call ``request`` with the SDK's ``APIClient`` in a thread. Raises ``EngineUnavailable``,
        ``RequestRefused`` and ``NoSuchObject``."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout_s):
                return await loop.run_in_executor(self._threads, self._request, request)
        except TimeoutError:
            raise EngineUnavailable(f"no answer within {timeout_s:g} s") from None

    async def pull(self, image: str, on_progress: OnProgress) -> None:
        """Pull an image. ``on_progress`` is called in the event loop at most once a second. A
        cancelled pull is aborted at the engine's next progress message. Raises ``RequestRefused``
        with the registry's or the engine's message, and ``EngineUnavailable``."""
        cancelled = threading.Event()
        progress = PullProgress(image)
        throttled = ThrottledCallback(
            asyncio.get_running_loop(), lambda: on_progress(progress.text())
        )
        on_progress(f"waiting to pull {image}: {_PULL_THREADS} other pulls are running")

        try:
            await asyncio.get_running_loop().run_in_executor(
                self._pull_threads,
                self._request,
                lambda _: self._pull(image, cancelled, progress, throttled.trigger),
            )
        finally:
            cancelled.set()
            throttled.close()

    async def messages(self, container: str, tail: int) -> AsyncGenerator[list[OutputLine], None]:
        """Yield both outputs of a container in order: the last ``tail`` messages, where 0 means all
        that are kept."""
        query = {"stdout": "1", "stderr": "1", "timestamps": "1", "tail": str(tail or "all")}
        demultiplexer = StreamDemultiplexer()
        messages = list[OutputLine]()
        size = 0
        async for data in self._stream(f"/containers/{container}/logs", query, _STREAM_IDLE_S):
            # The engine sends each message separately.
            messages += [
                OutputLine.parse(channel, payload) for channel, payload in demultiplexer.feed(data)
            ]
            size += len(data)
            if size >= _BATCH_BYTES:
                yield messages
                messages = []
                size = 0

        if messages:
            yield messages

    async def count_messages(self, container: str) -> AsyncGenerator[int, None]:
        """Yield the numbers of messages that a container writes from now on, starting with 0 once
        the stream is open."""
        query = {"stdout": "1", "stderr": "1", "follow": "1", "tail": "0"}
        demultiplexer = StreamDemultiplexer()
        async for data in self._stream(f"/containers/{container}/logs", query):
            yield len(demultiplexer.feed(data))

    async def has_ended(self, container: str) -> bool:
        state = (await self.call(lambda api: api.inspect_container(container)))["State"]
        return state["Status"] in ("exited", "dead")

    async def events(self, filters: dict[str, list[str]]) -> AsyncGenerator[dict[str, Any], None]:
        """Yield an empty event once the stream is open, and then each event."""
        rest = b""
        async for data in self._stream("/events", {"filters": json.dumps(filters)}):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines or [b"{}"]:
                yield json.loads(line) if line.strip() else {}

    def close(self) -> None:
        """Close the client. Returns immediately. A hanging request ends at its own time limit."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._pull_threads.shutdown(wait=False, cancel_futures=True)
        self._disconnect()

    def _stream(
        self, path: str, query: dict[str, str], idle_s: float | None = None
    ) -> AsyncGenerator[bytes, None]:
        # Imported here because only nodes with an engine need h11.
        from moorage.agent.runtimes.docker.streams import stream

        return stream(self.socket, path, query, idle_s)

    # The methods below run in a thread.

    def _request(self, request: Callable[[Any], T]) -> T:
        api = self._connected()
        import docker.errors
        import requests.exceptions

        try:
            return request(api)
        except docker.errors.NotFound as error:
            raise NoSuchObject(_message(error), 404) from None
        except docker.errors.APIError as error:
            raise RequestRefused(_message(error), error.status_code or 500) from None
        except (
            docker.errors.DockerException,
            requests.exceptions.RequestException,
            OSError,
        ) as error:
            self._disconnect()
            raise EngineUnavailable(_root_cause(error)) from None

    def _connected(self) -> Any:
        with self._connecting:
            if self._api is not None:
                return self._api
            if not self.socket.exists():
                raise EngineUnavailable(f"there is no {self.socket}", unsent=True)
            api, info = self._connect(_HTTP_TIMEOUT_S)
            self.id = str(info["ID"])
            self._api = api
            return self._api

    def _connect(self, timeout_s: int) -> tuple[Any, dict[str, Any]]:
        """A new client, and the engine's ``/info``."""
        try:
            import docker
            import docker.errors
            import requests.exceptions
        except ImportError as error:
            raise RuntimeFailed(
                f"the package {error.name} is not installed",
                next_step="pip install 'moorage[agent]'",
            ) from None

        try:
            # Without an explicit version, the SDK negotiates the highest common one.
            api = docker.APIClient(
                base_url=f"unix://{self.socket}", timeout=timeout_s, max_pool_size=_THREADS
            )
            return api, api.info()
        except (
            docker.errors.DockerException,
            requests.exceptions.RequestException,
            OSError,
        ) as error:
            raise EngineUnavailable(_root_cause(error), unsent=True) from None

    def _disconnect(self) -> None:
        with self._connecting:
            api = self._api
            self._api = None
        if api is not None:
            api.close()

    def _pull(
        self,
        image: str,
        cancelled: threading.Event,
        progress: PullProgress,
        trigger: Callable[[], None],
    ) -> None:
        trigger()
        api, _ = self._connect(_PULL_TIMEOUT_S)
        try:
            for message in api.pull(image, stream=True, decode=True):
                if "error" in message:
                    raise RequestRefused(str(message["error"]), 404)
                if cancelled.is_set():
                    return

                progress.feed(message)
                trigger()
        finally:
            api.close()


class StreamDemultiplexer:
    """A splitter for the engine's multiplexed output stream. Each frame has a header of 8 bytes:
    the channel, three zeros, and the length of the payload (big endian)."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """Return the payloads of all complete frames, each with its channel."""
        buffer = self._rest + data
        at = 0
        frames = list[tuple[int, bytes]]()
        while len(buffer) - at >= 8:
            size = int.from_bytes(buffer[at + 4 : at + 8], "big")
            if len(buffer) - at - 8 < size:
                break

            frames.append((buffer[at], buffer[at + 8 : at + 8 + size]))
            at += 8 + size

        self._rest = buffer[at:]
        return frames


def _message(error: Any) -> str:
    return str(error.explanation or error).strip()


def _root_cause(error: Exception) -> str:
    """The message of the innermost exception, which the SDK and its libraries wrap several
    times."""
    cause: BaseException = error
    while (inner := cause.__cause__ or cause.__context__) is not None:
        cause = inner
    return (str(cause) or type(cause).__name__)[:300]
