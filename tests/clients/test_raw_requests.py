"""Requests as bytes, to the scripted engine directly and through each data plane. Only differences
fail that ``ALLOWED`` does not list with a reason.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from urllib.parse import urlsplit

import pytest

from tests.clients.checks import Place
from tests.clients.raw_requests import REQUESTS, Raw, get
from tests.clients.results import Results
from tests.conformance.planes.client import Client, Incomplete, Response
from tests.conformance.planes.harness import until

pytestmark = [pytest.mark.clients, pytest.mark.asyncio(loop_scope="module")]

CLIENT = "HTTP requests as bytes"
PAUSE_S = 0.02
WAIT_S = 10.0
# Headers that say how one connection carries an answer, when it was made, and by whom. Of the
# others, a proxy changes none.
OWN = frozenset(
    [
        "connection",
        "content-length",
        "date",
        "keep-alive",
        "server",
        "transfer-encoding",
        "x-accel-buffering",
    ]
)
# Added to streams that lack it, so that nothing on the way stores them.
ADDED = ("cache-control", "no-cache")
REQUEST_IDS = ("request-id", "x-request-id", "x-moorage-")


@dataclass(frozen=True)
class Seen:
    """What a client sees of its request. ``answers``: status, headers and body; of errors the
    status only, because the proxy answers in its own words. ``end``: "open" if the connection takes
    another request, otherwise how it ended."""

    answers: tuple[tuple[object, ...], ...]
    end: str

    @property
    def brief(self) -> str:
        return " ".join((*(str(answer[0]) for answer in self.answers), self.end))


async def seen(place: Place, raw: Raw) -> Seen:
    address = urlsplit(place.base)
    assert address.hostname is not None
    assert address.port is not None
    client = await Client.connect((address.hostname, address.port))
    sending = asyncio.create_task(_send(client, raw, place))
    answers = []
    try:
        async with asyncio.timeout(WAIT_S):
            for method in raw.answers:
                answers.append(_shown(await client.response(method)))
        end = "closed" if raw.half_closes else await _end(client, place)
    except TimeoutError:
        end = "silent"
    except Incomplete as cut:
        end = f"cut after {cut.received!r}" if cut.received else "closed"
    except AssertionError as error:
        end = f"malformed: {error}"
    finally:
        sending.cancel()
        client.close()

    return Seen(tuple(answers), end)


async def _send(client: Client, raw: Raw, place: Place) -> None:
    try:
        for piece in raw.sent:
            client.send(piece.replace(b"KEY", place.key.encode()))
            await client.writer.drain()
            if raw.awaits_continue:
                await until(lambda: client.informational)
            elif len(raw.sent) < 10:
                await asyncio.sleep(PAUSE_S)
        if raw.half_closes:
            client.writer.write_eof()
    except (ConnectionError, OSError):
        pass  # the answer so far is what counts


def _shown(response: Response) -> tuple[object, ...]:
    if response.status >= 400:
        return (response.status,)
    headers = {
        name.lower(): value
        for name, value in response.headers
        if (name.lower(), value) != ADDED
        and name.lower() not in OWN
        and not name.lower().startswith(REQUEST_IDS)
    }
    if response.framing == "none" or b'"owned_by"' in response.body:
        # The models of the proxy, which it describes itself.
        listed = sorted(re.findall(rb'"id": "([^"]*)"', response.body))
        return (response.status, headers.get("content-type", "").partition(";")[0], listed)

    return (response.status, sorted(headers.items()), response.informational, response.body)


async def _end(client: Client, place: Place) -> str:
    """Whether the connection takes another request."""
    try:
        async with asyncio.timeout(WAIT_S):
            client.send(get(path="/v1/models").replace(b"KEY", place.key.encode()))
            answer = await client.response("GET")
    except (Incomplete, ConnectionError):
        return "closed"
    except TimeoutError:
        return "silent"
    return "open" if answer.status == 200 else f"open, {answer.status}"


@dataclass(frozen=True)
class Allowed:
    """``through``: the briefs of what a plane may answer instead, and why. ``planes``: the
    beginning of their names."""

    through: tuple[str, ...]
    reason: str
    planes: str = ""

    def allows(self, place: Place, found: Seen) -> bool:
        return found.brief in self.through and place.name.startswith(self.planes)


_SIMPLE_CLOSES = Allowed(
    ("200 closed",),
    "RFC 9112 §9.6 lets a server close: the simple plane does after a body in chunks.",
    planes="simple",
)
_MALFORMED = ("chunked: malformed size", "chunked: no line end after the data")
ALLOWED: dict[str, Allowed] = {
    "target: percent-encoded slash": Allowed(
        ("200 open",),
        "Paths are compared as vLLM and llama.cpp do, decoded: no path of theirs contains a slash"
        " that is not a separator (RFC 3986 §2.2).",
    ),
    "target: query of 100,000 characters": Allowed(
        ("414 closed",), "RFC 9112 §3: 414 for a request target that is too long."
    ),
    "header: line of 100,000 characters": Allowed(
        ("431 closed",), "RFC 6585 §5: 431 for headers that are too large."
    ),
    "other coding": Allowed(
        ("400 closed", "200 closed"),
        "RFC 9112 §6.1: a server may refuse a coding that it does not know; the engine ignores it.",
    ),
    "Expect of something else": Allowed(
        ("200 open",), "RFC 9110 §10.1.1: 417 is optional for other expectations."
    ),
    "close, then another": Allowed(
        ("200 closed",),
        "RFC 9112 §9.6: the request before the close is answered, and none after it.",
    ),
    "HTTP/1.0 keep-alive": Allowed(
        ("200 closed",), "RFC 9112 §9.3: a server may close after a response to HTTP/1.0."
    ),
    "HTTP/2.0": Allowed(
        (
            "505 closed",
            "malformed: status line 'HTTP/2.0 505 HTTP Version Not Supported'",
        ),
        "RFC 9110 §15.6.6: 505; aiohttp, also in the simple plane, writes the client's version.",
    ),
    "answer: cut within a stream": Allowed(
        ("200 open",),
        "A stream whose replica is lost ends with an event that has the error, which clients raise.",
    ),
    "answer: before the body": Allowed(
        ("401 closed",), "RFC 9112 §9.6: a server that does not read a body closes."
    ),
    "answer: before the body that is expected": Allowed(
        ("401 closed",),
        "RFC 9110 §10.1.1: the body may or may not follow, so the connection ends.",
    ),
    **{
        name: _SIMPLE_CLOSES
        for name in REQUESTS
        if name == "Expect, chunked" or (name.startswith("chunked: ") and name not in _MALFORMED)
    },
}


@pytest.mark.timeout(300)
async def test_same_as_directly(everywhere: list[Place], results: Results) -> None:
    differences = []
    used = set()
    for name, raw in REQUESTS.items():
        directly, *others = await asyncio.gather(*(seen(place, raw) for place in everywhere))
        allowed = ALLOWED.get(name)
        for place, through in zip(everywhere[1:], others, strict=True):
            is_allowed = allowed is not None and allowed.allows(place, through)
            is_same = through == directly
            results.judged(CLIENT, name, place.name, same=is_same or is_allowed)
            if is_same:
                continue
            if is_allowed:
                used.add(name)
                continue
            differences.append(
                f"{name}, {place.name}: {directly.brief} -> {through.brief}\n"
                f"  directly: {directly.answers!r:.300}\n  through:  {through.answers!r:.300}"
            )

    assert not differences, "\n".join(differences)
    assert used == set(ALLOWED), f"rows without a difference: {sorted(set(ALLOWED) - used)}"
