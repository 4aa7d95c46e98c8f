"""CORS: pages of allowed origins may use the API in browsers, whatever answers them; nothing else
grants or denies it."""

from __future__ import annotations

import pytest
from tests.conformance.planes.client import Head, Response
from tests.conformance.planes.harness import (
    ACCESS_TOKEN,
    APP_PATH,
    BODY,
    MakePlane,
    Served,
    head,
    limited,
    post,
    serving_one,
)
from tests.conformance.planes.replica import DONE, LAST_CHUNK, SSE, answer, answers, chunk, event

from moorage.common.link.messages import RequestLimits

NAMED = "https://chat.example.com"
OTHER = "https://evil.example"
# What OpenAI's and Anthropic's SDK, and LangChain, ask for in a browser.
WANTED = (
    "anthropic-dangerous-direct-browser-access,anthropic-version,authorization,content-type,"
    "openai-beta,x-api-key,x-stainless-helper-method,x-stainless-lang,x-stainless-retry-count"
)
# What an engine says when it decides by itself: llama.cpp, and vLLM with --allowed-origins.
OF_ENGINE = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n"
    b"Access-Control-Allow-Origin: https://engine.example\r\n"
    b"access-control-allow-credentials: true\r\nAccess-Control-Expose-Headers: X-Engine\r\n"
    b"\r\n{}"
)
STREAM = SSE + chunk(event("a")) + chunk(DONE) + LAST_CHUNK


def preflight(path: str, origin: str, wanted: str = WANTED) -> bytes:
    """As a browser sends it: without a key."""
    lines = (
        f"OPTIONS {path} HTTP/1.1",
        "Host: localhost",
        f"Origin: {origin}",
        "Access-Control-Request-Method: POST",
        f"Access-Control-Request-Headers: {wanted}",
    )
    return "\r\n".join((*lines, "", "")).encode()


def granted(response: Head) -> tuple[str, str]:
    """The allowed origin, "" without one, and whether cookies are allowed."""
    return (
        response.get("access-control-allow-origin"),
        response.get("access-control-allow-credentials"),
    )


def varies_by_origin(response: Head) -> bool:
    names = ",".join(response.all("vary")).lower().split(",")
    return "origin" in {name.strip() for name in names}


async def ask_from(served: Served, origin: str, *lines: str, **options: str) -> Response:
    return await served.ask(post(BODY, f"Origin: {origin}", *lines, **options))


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/models", "/p/team/v1/messages"])
async def test_preflight(plane: MakePlane, path: str) -> None:
    async with serving_one(plane, answer, cors_origins=(NAMED,)) as (served, replica):
        response = await served.ask(preflight(path, NAMED))
        assert response.status == 204
        assert granted(response) == (NAMED, "true")
        assert varies_by_origin(response)
        assert response.get("access-control-allow-headers").split(", ") == WANTED.split(",")
        assert "POST" in response.get("access-control-allow-methods").split(", ")
        assert int(response.get("access-control-max-age")) <= 7200
        assert not replica.requests


async def test_preflight_allows_no_header_that_web_servers_trust(plane: MakePlane) -> None:
    async with serving_one(plane, answer, cors_origins=("*",)) as (served, _):
        wanted = "content-type,x-forwarded-for,x-real-ip,x-stainless-;evil,x-moorage-session"
        response = await served.ask(preflight("/v1/completions", NAMED, wanted))
        allowed = response.get("access-control-allow-headers")
        assert allowed == "content-type, x-moorage-session"


async def test_connection_continues_after_a_preflight(plane: MakePlane) -> None:
    async with serving_one(plane, answer, cors_origins=(NAMED,)) as (served, _):
        client = await served.connect()
        for _ in range(3):
            assert (await client.ask(preflight("/v1/completions", NAMED))).status == 204
            response = await client.ask(post(BODY, f"Origin: {NAMED}"))
            assert (response.status, *granted(response)) == (200, NAMED, "true")
        client.close()


@pytest.mark.parametrize("origins", [(), (NAMED,)], ids=["none", "others"])
async def test_origin_that_is_not_allowed(plane: MakePlane, origins: tuple[str, ...]) -> None:
    async with serving_one(plane, answers(OF_ENGINE), cors_origins=origins) as (served, _):
        response = await served.ask(preflight("/v1/completions", OTHER))
        assert (response.status, granted(response)) == (405, ("", ""))
        response = await ask_from(served, OTHER)
        assert (response.status, granted(response)) == (200, ("", "")), "of the engine neither"
        assert varies_by_origin(response) == bool(origins)


async def test_every_answer_grants_it(plane: MakePlane) -> None:
    script = answers(OF_ENGINE, STREAM, b"HTTP/1.1 418 Teapot\r\nContent-Length: 0\r\n\r\n")
    settings = {"cors_origins": (NAMED,), "max_body_bytes": 1024}
    async with serving_one(plane, script, **settings) as (served, _):
        asked = {
            "an engine's": (post(BODY, f"Origin: {NAMED}"), 200),
            "a stream": (post(BODY, f"Origin: {NAMED}"), 200),
            "an engine's error": (post(BODY, f"Origin: {NAMED}"), 418),
            "models": (head(f"Origin: {NAMED}", method="GET", path="/v1/models"), 200),
            "no key": (
                b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nOrigin: %b\r\n\r\n"
                % NAMED.encode(),
                401,
            ),
            "no such path": (head(f"Origin: {NAMED}", path="/v1/images"), 404),
            "no such model": (post(b'{"model":"none"}', f"Origin: {NAMED}"), 404),
            "no such method": (head(f"Origin: {NAMED}", method="PUT"), 405),
            "too large": (head(f"Origin: {NAMED}", "Content-Length: 2000"), 413),
            "no JSON": (post(b"{", f"Origin: {NAMED}"), 400),
            "health": (head(f"Origin: {NAMED}", method="GET", path="/health"), 200),
            "no upgrade": (head(f"Origin: {NAMED}", method="GET", path="/v1/realtime"), 426),
        }
        for name, (request, status) in asked.items():
            response = await served.ask(request)
            assert response.status == status, name
            assert granted(response) == (NAMED, "true"), name
            assert varies_by_origin(response), name
            exposed = response.get("access-control-expose-headers").lower().split(", ")
            assert {"x-request-id", "retry-after", "x-ratelimit-limit-requests"} <= {*exposed}, name
            assert "x-engine" not in exposed, name


@pytest.mark.parametrize(("origins", "origin"), [((NAMED,), ""), (("*",), "*"), ((), "")])
async def test_heads_that_cannot_be_read_have_no_origin(
    plane: MakePlane, origins: tuple[str, ...], origin: str
) -> None:
    """They are answered before their headers are known, so that only ``*`` allows every page."""
    async with serving_one(plane, answer, cors_origins=origins) as (served, _):
        for request, status in (
            (head(f"Origin: {NAMED}", f"X-Long: {'a' * (1 << 17)}"), 431),
            (head(f"Origin: {NAMED}", method="GET", path=f"/{'a' * (1 << 17)}"), 414),
            (b"GET /v1/models HTTP/1.1\r\nOrigin: %b\r\nbad\r\n\r\n" % NAMED.encode(), 400),
        ):
            response = await served.ask(request)
            assert response.status == status
            assert granted(response) == (origin, "")
            assert varies_by_origin(response) == bool(origins)


async def test_refusal_by_a_limit(plane: MakePlane) -> None:
    async with serving_one(plane, answer, cors_origins=("*",)) as (served, _):
        limited(served, RequestLimits(requests_per_minute=1))
        assert (await ask_from(served, NAMED)).status == 200
        response = await ask_from(served, NAMED)
        assert (response.status, *granted(response)) == (429, "*", "")
        assert response.get("retry-after")


async def test_any_origin_gets_no_cookies(plane: MakePlane) -> None:
    async with serving_one(plane, answers(OF_ENGINE), cors_origins=("*", NAMED)) as (served, _):
        for origin, expected in (
            (OTHER, ("*", "")),
            ("null", ("*", "")),
            (NAMED, (NAMED, "true")),
            (NAMED.upper(), (NAMED.upper(), "true")),
            (f"{NAMED}.evil.example", ("*", "")),
        ):
            assert granted(await ask_from(served, origin)) == expected
            assert granted(await served.ask(preflight("/v1/completions", origin))) == expected


async def test_requests_without_an_origin_vary_only(plane: MakePlane) -> None:
    async with serving_one(plane, answers(OF_ENGINE), cors_origins=("*",)) as (served, _):
        response = await served.ask(post())
        assert granted(response) == ("", "")
        assert varies_by_origin(response), "or a cache would serve it to a page"


async def test_comments_of_a_waiting_stream(plane: MakePlane) -> None:
    """The stream begins before any replica answers."""
    async with serving_one(plane, answers(STREAM), cors_origins=(NAMED,)) as (served, replica):
        table = served.router.table
        assert table is not None
        whole = table.whole()
        route = whole.models[0]
        loading = type(route)(route.name, route.created, (), holds=True)
        served.router.update_table(type(whole)(whole.generation + 1, (loading,), keys=whole.keys))
        client = await served.connect()
        body = b'{"model":"tiny","stream":true}'
        client.send(post(body, f"Origin: {NAMED}", "X-Moorage-Progress: 1"))
        opened = await client.head()
        assert granted(opened) == (NAMED, "true")
        assert opened.get("date")
        client.close()
        assert not replica.requests


async def test_service_ports_are_left_out(plane: MakePlane) -> None:
    """What an app says passes, and nothing is added: its pages share the origin of other apps."""
    async with serving_one(plane, answers(OF_ENGINE), app=True, cors_origins=("*", NAMED)) as (
        served,
        replica,
    ):
        token = f"Authorization: Bearer {ACCESS_TOKEN}"
        lines = ("Host: localhost", token, f"Origin: {NAMED}")
        asked = "\r\n".join((f"GET {APP_PATH}/ HTTP/1.1", *lines, "", "")).encode()
        response = await served.ask(asked)
        assert granted(response) == ("https://engine.example", "true")
        assert not varies_by_origin(response)
        refused = await served.ask(asked.replace(ACCESS_TOKEN.encode(), b"mga-bad"))
        assert refused.status == 401
        assert granted(refused) == ("", "")
        options = await served.ask(preflight(f"{APP_PATH}/", NAMED))
        assert granted(options) == ("", ""), "without a token, it does not reach the app"
        assert len(replica.requests) == 1


async def test_replicas_do_not_get_the_origin(plane: MakePlane) -> None:
    """Some engines refuse origins that they do not know, whatever is allowed here."""
    async with serving_one(plane, answer, cors_origins=(NAMED,)) as (served, replica):
        await ask_from(served, NAMED)
        assert replica.requests[0].all("origin") == []
