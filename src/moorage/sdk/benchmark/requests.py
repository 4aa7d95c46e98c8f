"""Requests of a benchmark: a streamed request over the OpenAI API, with the arrival time of each
piece."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import aiohttp

from moorage.common.aio.clock import Clock
from moorage.sdk.benchmark.workload import Prompt
from moorage.sdk.errors import connection_error
from moorage.sdk.verification import verification

Api = Literal["chat", "completions"]
_PATHS = {"chat": "/chat/completions", "completions": "/completions"}


# How many characters of a server's error message are kept for a failed request.
_MOST_WORDS = 200


@dataclass(frozen=True, slots=True)
class BenchmarkTarget:
    """The target of the measurement. ``openai_url`` ends in ``/v1``. ``extra``: additional fields
    for each request."""

    openai_url: str
    key: str
    model: str
    api: Api = "chat"
    extra: dict[str, Any] = field(default_factory=dict)
    ca_file: str | None = None
    timeout_s: float = 600.0

    @property
    def url(self) -> str:
        return self.openai_url.rstrip("/") + _PATHS[self.api]

    def session(self) -> aiohttp.ClientSession:
        """A session without a connection limit, because waiting for a connection would be measured
        as the server's time."""
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=0, ssl=verification(self.url, self.ca_file) or True
            ),
            headers={"Authorization": f"Bearer {self.key}"} if self.key else {},
            timeout=aiohttp.ClientTimeout(total=self.timeout_s, sock_connect=10),
        )

    def body(self, prompt: Prompt) -> dict[str, Any]:
        made: dict[str, Any] = {
            "model": self.model,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        made |= {"messages": prompt.messages} if self.api == "chat" else {"prompt": prompt.text}
        if prompt.max_tokens is not None:
            made["max_tokens"] = prompt.max_tokens
        return made | self.extra


@dataclass(slots=True)
class Measured:
    """One request. Times are in seconds of one monotonic clock. ``due_at``: when it should have
    been sent; its durations are measured from then. ``token_times``: when each piece of text
    arrived. ``error``: why it failed; empty if it did not. ``words``: the server's error message;
    empty if there was none. ``stated``: whether the server reported token counts."""

    due_at: float
    sent_at: float = 0.0
    ended_at: float = 0.0
    token_times: list[float] = field(default_factory=list)
    tokens_in: int = 0
    tokens_out: int = 0
    stated: bool = False
    error: str = ""
    words: str = ""

    @property
    def failure(self) -> str:
        """Why the request failed, in the server's words if there are any."""
        return f"{self.error}: {self.words}" if self.words else self.error


async def measure(
    http: aiohttp.ClientSession,
    target: BenchmarkTarget,
    prompt: Prompt,
    due_at: float,
    *,
    clock: Clock,
) -> Measured:
    """Send one request and read its answer. Never raises: a failure is a result."""
    made = Measured(due_at, clock.monotonic())
    try:
        try:
            await _ask(http, target, prompt=prompt, made=made, clock=clock)
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
            if isinstance(error, aiohttp.ClientConnectorError) or made.token_times:
                raise

            # The server had just closed an idle connection, which is not a failure of the request.
            async with target.session() as fresh:
                await _ask(fresh, target, prompt=prompt, made=made, clock=clock)
    except TimeoutError:
        made.error = "timeout"
    except (aiohttp.ClientError, OSError, ValueError) as error:
        made.error = "cut off" if made.token_times else f"connection: {connection_error(error)}"

    made.ended_at = clock.monotonic()
    if not made.stated:
        made.tokens_in = len(prompt.text.split())
        made.tokens_out = len(made.token_times)

    return made


async def _ask(
    http: aiohttp.ClientSession,
    target: BenchmarkTarget,
    prompt: Prompt,
    made: Measured,
    *,
    clock: Clock,
) -> None:
    events = _Events()
    done = False
    async with http.post(target.url, json=target.body(prompt)) as answer:
        if answer.status != 200:
            _refuse(made, answer.status, await answer.read())
            return

        async for piece in answer.content.iter_any():
            now = clock.monotonic()
            for data in events.feed(piece):
                done = done or data == b"[DONE]"
                if not done and not made.error:
                    _take(made, data, now)

    if not (done or made.error):
        made.error = "cut off"


class _Events:
    """The data of server-sent events, from bytes that may be split anywhere."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, piece: bytes) -> Iterator[bytes]:
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                yield line[5:].strip()


def _take(made: Measured, data: bytes, now: float) -> None:
    event = json.loads(data)
    if not isinstance(event, dict):
        return

    if (error := event.get("error")) is not None:
        made.error = f"in mid-stream: {code}" if (code := _code(error)) else "in mid-stream"
        made.words = _words(error)
        return

    usage = event.get("usage")
    if isinstance(usage, dict) and usage.get("completion_tokens"):
        made.tokens_in = int(usage.get("prompt_tokens") or 0)
        made.tokens_out = int(usage["completion_tokens"])
        made.stated = True

    choices = event.get("choices") or [{}]
    delta = choices[0].get("delta") or choices[0]
    if any(
        delta.get(name)
        for name in ("content", "text", "reasoning_content", "reasoning", "tool_calls")
    ):
        made.token_times.append(now)


def _refuse(made: Measured, status: int, body: bytes) -> None:
    """``body``: an error in OpenAI's format, the same without its enclosing object, or any text."""
    try:
        found = json.loads(body)
    except ValueError:
        made.error = str(status)
        made.words = _shown(body.decode(errors="replace"))
        return

    error = found.get("error", found) if isinstance(found, dict) else found
    code = _code(error) if isinstance(error, dict) else ""
    made.error = str(status) if code in ("", str(status)) else f"{status} {code}"
    made.words = _words(error)


def _code(error: Any) -> str:
    if not isinstance(error, dict):
        return ""
    return str(error.get("code") or error.get("type") or "")[:80]


def _words(error: Any) -> str:
    if isinstance(error, dict):
        error = error.get("message") or error.get("detail")
    return _shown(error) if isinstance(error, str) else ""


def _shown(text: str) -> str:
    """In one line."""
    text = " ".join(text.split())
    return text if len(text) <= _MOST_WORDS else text[:_MOST_WORDS] + "…"
