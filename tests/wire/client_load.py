"""Load on a proxy by OpenAI's and Anthropic's Python clients, and the outcome of each request."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

import anthropic
import openai
from websockets.exceptions import WebSocketException

Ask = Callable[[], Awaitable[None]]


class Begun(Exception):
    """The first byte of the response had arrived."""


class ClientLoad:
    """An async context manager: while entered, ``clients`` of each kind send requests without a
    pause.

    ``outcomes``: counts by kind and "ok", "cut" (it failed after its first byte), or the error of a
    request that failed without one.
    """

    def __init__(
        self,
        url: str,
        key: str,
        model: str = "tiny",
        *,
        clients: int = 1,
        kinds: tuple[str, ...] = (),
    ) -> None:
        self._model = model
        self._openai = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0)
        self._anthropic = anthropic.AsyncAnthropic(base_url=url, api_key=key, max_retries=0)
        every: dict[str, Ask] = {
            "chat": self._chat,
            "chat stream": self._chat_stream,
            "response": self._response,
            "response stream": self._response_stream,
            "embedding": self._embedding,
            "message": self._message,
            "message stream": self._message_stream,
            "realtime": self._realtime,
        }
        self._kinds = {kind: ask for kind, ask in every.items() if not kinds or kind in kinds}
        self._clients = clients
        self._running = list[asyncio.Task[None]]()
        self.outcomes: Counter[tuple[str, str]] = Counter()

    async def __aenter__(self) -> ClientLoad:
        self._running = [
            asyncio.create_task(self._repeat(kind, ask))
            for kind, ask in self._kinds.items()
            for _ in range(self._clients)
        ]
        return self

    async def __aexit__(self, *exc: object) -> None:
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        await self._openai.close()
        await self._anthropic.close()

    @property
    def kinds(self) -> set[str]:
        return set(self._kinds)

    @property
    def failures(self) -> dict[tuple[str, str], int]:
        """Requests that failed without a first byte."""
        return {key: count for key, count in self.outcomes.items() if key[1] not in ("ok", "cut")}

    def count(self, outcome: str) -> int:
        return sum(count for (_, found), count in self.outcomes.items() if found == outcome)

    async def _repeat(self, kind: str, ask: Ask) -> None:
        while True:
            try:
                await ask()
                outcome = "ok"
            except Begun:
                outcome = "cut"
            except (
                openai.OpenAIError,
                anthropic.AnthropicError,
                WebSocketException,
                OSError,
            ) as error:
                outcome = f"{type(error).__name__}: {error}"

            self.outcomes[kind, outcome] += 1

    @property
    def _messages(self) -> list[dict[str, str]]:
        return [{"role": "user", "content": "Where?"}]

    async def _chat(self) -> None:
        await self._openai.chat.completions.create(
            model=self._model, messages=self._messages, max_tokens=8
        )

    async def _chat_stream(self) -> None:
        stream = await self._openai.chat.completions.create(
            model=self._model, messages=self._messages, max_tokens=8, stream=True
        )
        await _drain(stream)

    async def _response(self) -> None:
        await self._openai.responses.create(model=self._model, input="Where?", max_output_tokens=8)

    async def _response_stream(self) -> None:
        stream = await self._openai.responses.create(
            model=self._model, input="Where?", max_output_tokens=8, stream=True
        )
        await _drain(stream)

    async def _embedding(self) -> None:
        await self._openai.embeddings.create(
            model=self._model, input="Where?", encoding_format="float"
        )

    async def _message(self) -> None:
        await self._anthropic.messages.create(
            model=self._model, messages=self._messages, max_tokens=8
        )

    async def _message_stream(self) -> None:
        stream = await self._anthropic.messages.create(
            model=self._model, messages=self._messages, max_tokens=8, stream=True
        )
        await _drain(stream)

    async def _realtime(self) -> None:
        async with self._openai.realtime.connect(model=self._model) as connection:
            try:
                await connection.recv()
                await connection.input_audio_buffer.append(audio="AAAA")
                await connection.recv()
            except (openai.OpenAIError, WebSocketException) as error:
                raise Begun from error


async def _drain(stream: object) -> None:
    try:
        async for _ in stream:  # type: ignore[attr-defined]
            pass
    except (openai.OpenAIError, anthropic.AnthropicError) as error:
        raise Begun from error
