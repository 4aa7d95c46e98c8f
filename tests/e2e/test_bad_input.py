"""Wrong input through the real commands: a clear error with the next step, and nothing left running."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from moorage.common.model.spec import EndpointSpec, Probe, SessionSpec
from moorage.common.model.status import Status
from moorage.sdk import Client

from .parts import Platform, kernels_below, until

# One platform at a time, also with pytest -n and --dist loadgroup.
pytestmark = pytest.mark.xdist_group("platform")
SMALL: dict[str, Any] = {"resources": {"cpu": "0.1", "mem": "64MiB"}}


@pytest_asyncio.fixture
async def client(one_node: Platform) -> AsyncIterator[Client]:
    connected = one_node.home / "connection.json"
    await until("it is up", lambda: asyncio.to_thread(connected.exists))
    async with one_node.client() as made:
        yield made
        assert kernels_below(one_node.home) == {}, "nothing is left running"
        agent = (await client_agents(made))[0]
        assert {o.slot: o.used for o in agent.offers if o.used} == {}, "no slot is leaked"


async def client_agents(client: Client) -> Any:
    agents = await client.list_agents()
    return getattr(agents, "items", agents)


async def ended(client: Client, **more: Any) -> Any:
    """Run a session to its end."""
    made = await client.create_session(SessionSpec.model_validate(SMALL | {"max_attempts": 1} | more))

    async def over() -> Any:
        view = await client.get_session(made.id)
        return view if view.status in (Status.ERROR, Status.TERMINATED, Status.CANCELLED) else None

    view = await until("the session has ended", over)

    async def freed() -> bool:
        return not any(o.used for a in await client_agents(client) for o in a.offers)

    await until("what it held is free", freed)
    return view


CASES = [
    (
        "missing model",
        {"type": "inference", "engine": "llamacpp", "model": "/nowhere/m.gguf"},
        "model-missing",
        "/nowhere/m.gguf",
        "",
    ),
    (
        "exits at once",
        {
            "type": "inference",
            "command": ["sh", "-c", "echo could not load; exit 3"],
            "probe": Probe().model_dump(),
        },
        "exit-nonzero",
        "3",
        "could not load",
    ),
    (
        "never ready",
        {
            "type": "inference",
            "command": ["sh", "-c", "echo thinking; sleep 60"],
            "probe": Probe().model_dump(),
            "start_timeout_s": 1.5,
            "stop_grace_s": 0.5,
        },
        "start-timeout",
        "",
        "thinking",
    ),
    ("no such program", {"command": ["/nowhere/program"]}, None, "/nowhere/program", ""),
]


@pytest.mark.parametrize(
    ("asked", "reason", "detail", "tail"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
async def test_a_session_that_cannot_run_ends_with_its_reason(
    client: Client, asked: dict[str, Any], reason: str | None, detail: str, tail: str
) -> None:
    view = await ended(client, **asked)
    kernel = view.kernels[-1]
    said = f"{view.detail} {kernel.detail} {kernel.log_tail}"
    if reason is not None:
        assert (view.status, view.reason) == (Status.ERROR, reason)
    else:
        assert view.status in (Status.ERROR, Status.TERMINATED)
        assert view.result == "FAILED"
    assert detail in said
    assert tail in kernel.log_tail


async def test_an_engine_that_no_agent_has_is_waited_for_and_named(
    one_node: Platform, client: Client
) -> None:
    words = ("serve", "a/b", "--engine", "vllm", "--timeout", "3s")
    tried = await asyncio.to_thread(one_node.run, *words)
    assert tried.returncode == 124
    assert "vllm" in tried.stderr
    view = (await client.get_endpoint("b")).sessions[0]
    hold = (await client.get_session(view.session_id)).hold
    assert hold is not None
    assert (hold.reason, "vllm" in str(hold.refusals)) == ("no-eligible-agent", True)
    await client.delete_endpoint("b")


async def test_serve_tells_why_and_takes_the_endpoint_back(one_node: Platform, client: Client) -> None:
    words = ("serve", "broken", "--engine", "custom", "--probe", "/", "--resources", "cpu=0.1")
    tried = await asyncio.to_thread(one_node.run, *words, "--", "sh", "-c", "echo out of luck; exit 4")
    assert tried.returncode == 1
    assert "out of luck" in tried.stderr
    assert "exit-nonzero" in tried.stderr or "exit code 4" in tried.stderr
    assert tried.stdout == ""

    async def gone() -> bool:
        return (await client.list_endpoints()).items == []

    await until("the endpoint is gone", gone)


async def test_unknown_engine_names_the_known_ones(one_node: Platform, client: Client) -> None:
    tried = await asyncio.to_thread(one_node.run, "serve", "x", "--engine", "vlm")
    assert tried.returncode == 2
    assert "vllm" in tried.stderr
    async with aiohttp.ClientSession(headers=one_node.auth) as http:
        body = {"name": "x", "engine": "vlm", "model": "m"}
        async with http.post(f"{one_node.url}/v1/endpoints", json=body) as answer:
            problem = await answer.json()
    assert answer.status == 422
    assert problem["errors"][0]["field"] == "engine"
    assert "vllm" in str(problem)


async def test_a_request_that_never_fits_waits_and_says_so(client: Client) -> None:
    big = SessionSpec(command=["true"], resources={"cpu": 10_000}, name="big")
    await client.create_session(big)

    async def held() -> Any:
        return (await client.get_session("big")).hold

    hold = await until("it says why", held)
    assert hold.reason == "infeasible"
    assert "cpu" in " ".join(hold.refusals)
    assert (await client.stop_session("big")).status is Status.CANCELLED


@pytest.mark.parametrize("which", ["url", "openai_url"])
async def test_malformed_and_large_bodies_and_unknown_models(
    one_node: Platform, client: Client, which: str
) -> None:
    management = which == "url"
    target = f"{one_node.url}/v1/sessions" if management else f"{one_node.openai_url}/chat/completions"
    headers = one_node.auth | {"Content-Type": "application/json"}
    async with aiohttp.ClientSession(headers=headers) as http:
        for body, status in (
            (b'{"name": ', 400),
            (b"[]", 422 if management else 400),
            (b"x" * 10_000_000, 413),
        ):
            async with http.post(target, data=body) as answer:
                said = await answer.json(content_type=None)
                assert answer.status == status, said
            text = said["detail"] if management else said["error"]["message"]
            assert text
            if status == 413:
                assert "max_body_bytes" in str(said)
        if not management:
            async with http.post(target, json={"model": "nobody", "messages": []}) as answer:
                said = await answer.json()
            assert (answer.status, said["error"]["code"]) == (404, "model_not_found")
            assert "nobody" in said["error"]["message"]


def test_a_taken_port_and_a_wrong_dsn_are_told(home: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        other = Platform(home)
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        for setting in ("manager.listen", "manager.link_listen", "proxy.listen"):
            tried = other.run("up", "--set", f"{setting}={address}", timeout=60)
            assert tried.returncode == 1
            assert setting in tried.stderr
            assert address in tried.stderr
            assert "Traceback" not in tried.stderr
    wrong = {
        "mysql://x/y": (2, "manager.dsn"),
        "postgresql://u:secret@127.0.0.1:1/x": (1, "Postgres"),
    }
    for dsn, (code, words) in wrong.items():
        tried = other.run("manager", "--dsn", dsn, timeout=60)
        assert (tried.returncode, words in tried.stderr) == (code, True), tried.stderr
        assert "secret" not in tried.stderr
        assert "Traceback" not in tried.stderr
    assert kernels_below(home) == {}


def test_a_second_start_on_the_same_state_is_refused(one_node: Platform, tmp_path: Path) -> None:
    other = Platform(tmp_path)
    tried = other.run("up", "--home", str(one_node.home), timeout=60)
    assert tried.returncode == 1
    assert "Traceback" not in tried.stderr
    assert str(one_node.home) in tried.stderr


def test_unknown_settings_are_told_with_a_guess(tmp_path: Path) -> None:
    other = Platform(tmp_path)
    tried = other.run("config", "show", "--set", "manager.lisen=x:1")
    assert (tried.returncode, "manager.listen" in tried.stderr) == (2, True)
    shown = other.run("config", "show", "--origin")
    assert shown.returncode == 0
    assert "env MOORAGE_MANAGER__LISTEN" in shown.stdout


async def test_an_endpoint_that_keeps_failing_says_so(client: Client) -> None:
    spec = EndpointSpec.model_validate(
        SMALL | {"name": "bad", "engine": "custom", "command": ["sh", "-c", "exit 7"], "probe": {}}
    )
    await client.create_endpoint(spec)

    async def failing() -> Any:
        view = await client.get_endpoint("bad")
        return view if view.failures else None

    view = await until("it is failing", failing)
    assert (view.status, view.reason) == ("degraded", "exit-nonzero")
    assert view.retry_at is not None
    await client.delete_endpoint("bad")
