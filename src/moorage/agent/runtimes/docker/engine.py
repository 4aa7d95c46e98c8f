"""The connection to a Docker Engine: questions by its SDK, each in a thread and with a time limit; streams,
which may last for weeks and must not hold a thread, on the event loop."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from moorage.agent.runtimes.base import RuntimeFailed
from moorage.agent.runtimes.docker.container_config import Frames, lists_gpus
from moorage.agent.runtimes.docker.errors import EngineUnavailable, NoSuchObject, RequestRefused
from moorage.agent.runtimes.docker.progress import PullProgress

T = TypeVar("T")
_SOCKET = Path("/var/run/docker.sock")
_THREADS, _PULLS = 16, 2
_QUESTION_S, _REQUEST_S, _PULL_SILENCE_S = 20.0, 40, 300
_TELL_S = 1.0


def engine_socket(setting: str) -> Path | None:
    """From ``agent.docker``: where the engine listens; None for ``off``, or one on another machine."""
    address = os.environ.get("DOCKER_HOST") or f"unix://{_SOCKET}" if setting == "auto" else setting
    return Path(address.removeprefix("unix://")) if address.startswith("unix://") else None


class Engine:
    """``socket``: its Unix socket. Connects when it is first asked, and anew after each failure: an engine
    that was upgraded meanwhile negotiates its version again."""

    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self.id = ""
        """The identity of the engine that answered last."""
        self.cdi = False
        """Whether it lists GPUs by CDI."""
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="docker")
        self._pulls = ThreadPoolExecutor(_PULLS, thread_name_prefix="docker-pull")
        self._api: Any = None
        self._connecting = threading.Lock()

    async def call(self, ask: Callable[[Any], T], timeout_s: float = _QUESTION_S) -> T:
        """Call ``ask`` with the SDK's ``APIClient`` in a thread. Raises ``EngineUnavailable``,
        ``RequestRefused`` and ``NoSuchObject``."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout_s):
                return await loop.run_in_executor(self._pool, self._ask, ask)
        except TimeoutError:
            raise EngineUnavailable(f"no answer within {timeout_s:g} s") from None

    async def pull(self, image: str, tell: Callable[[str], None]) -> None:
        """Pull an image. ``tell`` is called in the event loop at most once a second. A cancelled pull is
        aborted at the next progress message of the engine. Raises ``RequestRefused`` with the message of the
        registry or the engine, and ``EngineUnavailable``."""
        unwanted, progress = threading.Event(), PullProgress(image)
        said = _Paced(asyncio.get_running_loop(), lambda: tell(progress.text()))
        tell(f"waiting to pull {image}: {_PULLS} others are pulled")
        try:
            await asyncio.get_running_loop().run_in_executor(
                self._pulls, self._ask, lambda _: self._pull(image, unwanted, progress, said.news)
            )
        finally:
            unwanted.set()
            said.close()

    async def logs(self, container: str, tail: int = 0, follow: bool = False) -> AsyncGenerator[bytes, None]:
        """What a container wrote, both outputs in order. ``tail``: the last lines only; 0: all."""
        frames = Frames()
        query = {"stdout": "1", "stderr": "1", "follow": str(int(follow)), "tail": str(tail or "all")}
        async for data in self._stream(f"/containers/{container}/logs", query):
            if said := frames.feed(data):
                yield said

    async def events(self, filters: dict[str, list[str]]) -> AsyncGenerator[dict[str, Any], None]:
        """An empty one first, as soon as the engine listens; then one for each event."""
        rest = b""
        async for data in self._stream("/events", {"filters": json.dumps(filters)}):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines or [b"{}"]:
                yield json.loads(line) if line.strip() else {}

    def close(self) -> None:
        """Waits for nothing: a question that hangs ends by its own time limit."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._pulls.shutdown(wait=False, cancel_futures=True)
        self._drop()

    def _stream(self, path: str, query: dict[str, str]) -> AsyncGenerator[bytes, None]:
        from moorage.agent.runtimes.docker.streams import stream  # only where there is an engine

        return stream(self.socket, path, query)

    # In a thread.

    def _ask(self, ask: Callable[[Any], T]) -> T:
        api = self._connect()
        import docker.errors
        import requests.exceptions

        try:
            return ask(api)
        except docker.errors.NoSuchObject as error:
            raise NoSuchObject(_words(error), 404) from None
        except docker.errors.APIError as error:
            raise RequestRefused(_words(error), error.status_code or 500) from None
        except (docker.errors.DockerException, requests.exceptions.RequestException, OSError) as error:
            self._drop()
            raise EngineUnavailable(_short(error)) from None

    def _connect(self) -> Any:
        with self._connecting:
            if self._api is not None:
                return self._api
            if not self.socket.exists():
                raise EngineUnavailable(f"there is no {self.socket}", unsent=True)
            api, info = self._dial(_REQUEST_S)
            self._api, self.id, self.cdi = api, str(info["ID"]), lists_gpus(info)
            return self._api

    def _dial(self, timeout_s: int) -> tuple[Any, dict[str, Any]]:
        """A client, and what the engine says of itself."""
        try:
            import docker
            import docker.errors
            import requests.exceptions
        except ImportError as error:
            raise RuntimeFailed(
                f"the package {error.name} is not installed", next_step="pip install 'moorage[agent]'"
            ) from None
        try:
            # Without a version the SDK asks the engine for its own, and both use the older one.
            api = docker.APIClient(
                base_url=f"unix://{self.socket}", timeout=timeout_s, max_pool_size=_THREADS
            )
            return api, api.info()
        except (docker.errors.DockerException, requests.exceptions.RequestException, OSError) as error:
            raise EngineUnavailable(_short(error), unsent=True) from None

    def _drop(self) -> None:
        with self._connecting:
            api, self._api = self._api, None
        if api is not None:
            api.close()

    def _pull(
        self, image: str, unwanted: threading.Event, progress: PullProgress, news: Callable[[], None]
    ) -> None:
        news()
        api, _ = self._dial(_PULL_SILENCE_S)
        try:
            for step in api.pull(image, stream=True, decode=True):
                if "error" in step:
                    raise RequestRefused(str(step["error"]), 404)
                if unwanted.is_set():
                    return
                progress.feed(step)
                news()
        finally:
            api.close()


class _Paced:
    """``say`` is called in ``loop`` soon after there were ``news``, from any thread, at most each second."""

    def __init__(self, loop: asyncio.AbstractEventLoop, say: Callable[[], None]) -> None:
        self._loop, self._say = loop, say
        self._said_at = float("-inf")
        self._due: asyncio.TimerHandle | None = None
        self._known = self._closed = False

    def news(self) -> None:
        if not self._known and not self._closed:
            self._known = True  # until it is said, more of them are the same news
            self._loop.call_soon_threadsafe(self._plan)

    def close(self) -> None:
        """In the loop."""
        self._closed = True
        if self._due is not None:
            self._due.cancel()

    def _plan(self) -> None:
        if not self._closed:
            self._due = self._loop.call_at(self._said_at + _TELL_S, self._now)

    def _now(self) -> None:
        self._known, self._said_at = False, self._loop.time()
        self._say()


def _words(error: Any) -> str:
    return str(error.explanation or error).strip()


def _short(error: Exception) -> str:
    """The innermost of the causes that the SDK's layers wrap into each other."""
    inner: BaseException = error
    while (deeper := inner.__cause__ or inner.__context__) is not None:
        inner = deeper
    return (str(inner) or type(inner).__name__)[:300]
