"""Chat over the OpenAI API: one question or a conversation, streamed or complete."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import Any, TypedDict

import aiohttp

from moorage.common.views.resources import Problem
from moorage.sdk.errors import ApiError, Unreachable, connection_error
from moorage.sdk.verification import untrusted, verification


class Message(TypedDict):
    role: str
    content: str


async def chat(
    openai_url: str,
    key: str,
    model: str,
    messages: Sequence[Message],
    *,
    stream: bool = True,
    max_tokens: int | None = None,
    idle_timeout: float = 300.0,
    ca_file: str | None = None,
) -> AsyncGenerator[str, None]:
    """Yield the answer's text in pieces as they arrive, or in one piece without ``stream``.

    ``openai_url`` ends in ``/v1``; ``ca_file`` is as in ``Client``. ``idle_timeout`` is the longest
    silence in seconds. Raises ``ApiError`` for an error object, even in mid-stream, and
    ``Unreachable`` when nothing answers or the answer is cut off.
    """
    url = f"{openai_url.rstrip('/')}/chat/completions"
    request: dict[str, Any] = {"model": model, "messages": list(messages), "stream": stream}
    if max_tokens is not None:
        request["max_tokens"] = max_tokens

    headers = {"Authorization": f"Bearer {key}"} if key else {}
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=idle_timeout)
    try:
        async with (
            aiohttp.ClientSession(
                timeout=timeout,
                headers=headers,
                connector=aiohttp.TCPConnector(ssl=verification(url, ca_file) or True),
            ) as http,
            http.post(url, json=request) as answer,
        ):
            if answer.status != 200 or not stream:
                body = await answer.read()
                yield _complete_answer(url, answer.status, body)
                return

            events = EventReader()
            async for piece in answer.content.iter_any():
                for name, data in events.feed(piece):
                    if data == "[DONE]":
                        return
                    if text := _delta(url, name, data):
                        yield text
    except TimeoutError as error:
        raise Unreachable(
            f"{url} was silent for {idle_timeout:g} s",
            next_step="read the model's log with `moorage logs`",
        ) from error
    except aiohttp.ClientConnectorCertificateError as error:
        raise untrusted(url, error.certificate_error) from error
    except aiohttp.ClientPayloadError as error:
        raise _cut_off(url) from error
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise Unreachable(
            f"nothing answers at {url} ({connection_error(error)})",
            next_step="start it with `moorage up`, or give its address with --openai-url",
        ) from error

    raise _cut_off(url)


class EventReader:
    """Parse server-sent events from bytes that may be split anywhere. Yields each event's name and
    data."""

    def __init__(self) -> None:
        self._rest = b""
        self._name = ""
        self._data = list[str]()

    def feed(self, piece: bytes) -> Iterator[tuple[str, str]]:
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for raw in lines:
            line = raw.rstrip(b"\r").decode(errors="replace")
            field, _, value = line.partition(":")
            if field == "data":
                self._data.append(value.removeprefix(" "))
            elif field == "event":
                self._name = value.strip()
            elif not line and self._data:
                data = "\n".join(self._data)
                name = self._name
                self._name = ""
                self._data = []
                yield name, data


def _complete_answer(url: str, status: int, body: bytes) -> str:
    parsed = _parse(body)
    if status == 200 and not parsed.get("error"):
        try:
            return str(parsed["choices"][0]["message"]["content"] or "")
        except (KeyError, IndexError, TypeError):
            pass
    raise _error(url, status if status != 200 else 502, parsed, body)


def _delta(url: str, name: str, data: str) -> str:
    parsed = _parse(data.encode())
    if name == "error" or parsed.get("error") or not parsed:
        raise _error(url, 502, parsed, data.encode())
    choices = parsed.get("choices") or [{}]
    return str((choices[0].get("delta") or {}).get("content") or "")


def _parse(body: bytes) -> dict[str, Any]:
    try:
        parsed = json.loads(body)
    except ValueError:
        return {}
    return parsed if isinstance(parsed, dict) else {}


def _error(url: str, status: int, parsed: dict[str, Any], body: bytes) -> ApiError:
    """OpenAI's error object as a problem. Some engines send only a string, or nothing."""
    given = parsed.get("error") or parsed
    if isinstance(given, str):
        given = {"message": given}
    if not isinstance(given, dict) or not given.get("message"):
        start = " ".join(body[:120].decode(errors="replace").split())
        given = {"message": f"the server at {url} (HTTP {status}: {start!r}) is not an OpenAI API"}

    code = given.get("code") or given.get("type") or "error"
    if isinstance(given.get("code"), int) and 400 <= given["code"] < 600:
        status = given["code"]
        code = given.get("type") or "error"

    steps = {
        401: "give the API key with --key-file or MOORAGE_API_KEY",
        404: "`moorage ps` lists the models; those of another project must be shared with yours "
        "(`moorage serve --share`)",
        503: "wait until it is ready: `moorage ps`",
    }
    return ApiError(
        status,
        Problem(
            title=str(given.get("type") or "error"),
            status=status,
            detail=str(given["message"]),
            code=str(code),
            next_step=str(given.get("next_step") or steps.get(status, "")),
        ),
    )


def _cut_off(url: str) -> Unreachable:
    return Unreachable(
        f"the answer from {url} was cut off",
        next_step="ask again; `moorage ps` shows the endpoint's state",
    )
