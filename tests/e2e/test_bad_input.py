"""Invalid input through the real commands: a clear error with the next step, and nothing left
running."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from moorage.common.model.group_options import QuotaLimits
from moorage.common.model.spec import EndpointSpec, Probe, SessionSpec
from moorage.common.model.status import Status
from moorage.manager.explain.feasibility import QUOTAS_CACHED_S
from moorage.sdk import Client

from .harness import Platform, until

SMALL: dict[str, Any] = {"resources": {"cpu": "0.1", "mem": "64MiB"}}


@pytest_asyncio.fixture
async def client(one_node: Platform) -> AsyncIterator[Client]:
    async with one_node.client() as connected:
        yield connected


async def run_to_end(client: Client, **fields: Any) -> Any:
    """Run a session until its status is terminal, and return it."""
    session = await client.sessions.create(
        SessionSpec.model_validate(SMALL | {"max_attempts": 1} | fields)
    )

    async def is_terminal() -> Any:
        view = await client.sessions.get(session.id)
        return view if view.status in (Status.ERROR, Status.TERMINATED, Status.CANCELLED) else None

    view = await until("the session has ended", is_terminal)

    async def is_free() -> bool:
        return not any(o.used for a in await client.agents.list() for o in a.offers)

    await until("its slots are free", is_free)
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
    ("fields", "reason", "detail", "tail"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
async def test_session_that_cannot_run_ends_with_a_reason(
    client: Client, fields: dict[str, Any], reason: str | None, detail: str, tail: str
) -> None:
    view = await run_to_end(client, **fields)
    kernel = view.kernels[-1]
    text = f"{view.detail} {kernel.detail} {kernel.log_tail}"

    if reason is not None:
        assert (view.status, view.reason) == (Status.ERROR, reason)
    else:
        assert view.status in (Status.ERROR, Status.TERMINATED)
        assert view.result == "FAILED"

    assert detail in text
    assert tail in kernel.log_tail


async def test_missing_engine_is_explained(one_node: Platform, client: Client) -> None:
    arguments = ("serve", "a/b", "--engine", "vllm", "--timeout", "3s")
    result = await asyncio.to_thread(one_node.run, *arguments)
    assert result.returncode == 124
    assert "vllm" in result.stderr
    view = (await client.endpoints.get("b")).sessions[0]
    hold = (await client.sessions.get(view.session_id)).hold
    assert hold is not None
    assert (hold.reason, "vllm" in str(hold.refusals)) == ("no-eligible-agent", True)
    await client.endpoints.delete("b")


async def test_failed_serve_explains_and_removes_the_endpoint(
    one_node: Platform, client: Client
) -> None:
    arguments = ("serve", "broken", "--engine", "custom", "--probe", "/", "--resources", "cpu=0.1")
    result = await asyncio.to_thread(
        one_node.run, *arguments, "--", "sh", "-c", "echo out of luck; exit 4"
    )
    assert result.returncode == 1
    assert "out of luck" in result.stderr
    assert "exit-nonzero" in result.stderr or "exit code 4" in result.stderr
    assert result.stdout == ""

    async def is_gone() -> bool:
        return await client.endpoints.list() == []

    await until("the endpoint is gone", is_gone)


async def test_unknown_engine_lists_known_engines(one_node: Platform, client: Client) -> None:
    result = await asyncio.to_thread(one_node.run, "serve", "x", "--engine", "vlm")
    assert result.returncode == 2
    assert "vllm" in result.stderr

    async with aiohttp.ClientSession(headers=one_node.auth) as http:
        body = {"name": "x", "engine": "vlm", "model": "m"}
        async with http.post(f"{one_node.url}/v1/endpoints", json=body) as response:
            problem = await response.json()

    assert response.status == 422
    assert problem["errors"][0]["field"] == "engine"
    assert "vllm" in str(problem)


async def test_infeasible_request_is_explained(client: Client) -> None:
    big = SessionSpec(command=["true"], resources={"cpu": 10_000}, name="big")
    await client.sessions.create(big)

    async def hold_of_session() -> Any:
        return (await client.sessions.get("big")).hold

    hold = await until("the hold is stored", hold_of_session)
    assert hold.reason == "infeasible"
    assert "cpu" in " ".join(hold.refusals)
    assert (await client.sessions.stop("big")).status is Status.CANCELLED


async def test_request_above_its_quota_is_created_with_a_warning(client: Client) -> None:
    await client.quotas.set("group", "default", QuotaLimits(sessions=0))
    try:
        await asyncio.sleep(QUOTAS_CACHED_S)
        made = await client.sessions.create(SessionSpec(command=["true"], name="no-room", **SMALL))
        assert made.warnings == [
            "group default: 0 concurrent sessions of 0; it never starts under this limit"
        ]
        assert (await client.sessions.stop("no-room")).status is Status.CANCELLED
    finally:
        await client.quotas.delete("group", "default")


@pytest.mark.parametrize("which", ["url", "openai_url"])
async def test_malformed_and_large_bodies_and_unknown_models(
    one_node: Platform, client: Client, which: str
) -> None:
    management = which == "url"
    target = (
        f"{one_node.url}/v1/endpoints" if management else f"{one_node.openai_url}/chat/completions"
    )
    headers = one_node.auth | {"Content-Type": "application/json"}
    async with aiohttp.ClientSession(headers=headers) as http:
        for body, status in (
            (b'{"name": ', 400),
            (b"[]", 422 if management else 400),
            (b"x" * (10 if management else 70) * 1_000_000, 413),
        ):
            async with http.post(target, data=body) as response:
                problem = await response.json(content_type=None)
                assert response.status == status, problem

            assert problem["detail"] if management else problem["error"]["message"]
            if status == 413:
                assert "max_body_bytes" in str(problem)

        if not management:
            async with http.post(target, json={"model": "nobody", "messages": []}) as response:
                problem = await response.json()

            assert (response.status, problem["error"]["code"]) == (404, "model_not_found")
            assert "nobody" in problem["error"]["message"]


def test_occupied_ports_and_wrong_dsns_are_reported(platform: Platform) -> None:
    other = platform
    with socket.socket() as occupied:
        occupied.bind(("127.0.0.1", 0))
        occupied.listen()
        address = f"127.0.0.1:{occupied.getsockname()[1]}"
        for setting in ("manager.listen", "manager.link_listen", "proxy.listen"):
            result = other.run("up", "--set", f"{setting}={address}", timeout=60)
            assert result.returncode == 1
            assert setting in result.stderr
            assert address in result.stderr
            assert "Traceback" not in result.stderr

    wrong_dsns = {
        "mysql://x/y": (2, "manager.dsn"),
        "postgresql://u:secret@127.0.0.1:1/x": (1, "Postgres"),
    }
    for dsn, (code, text) in wrong_dsns.items():
        other.env["MOORAGE_MANAGER__DSN"] = dsn
        result = other.run("manager", timeout=60)
        assert (result.returncode, text in result.stderr) == (code, True), result.stderr
        assert "secret" not in result.stderr
        assert "Traceback" not in result.stderr

    # Every user on the machine can read arguments.
    for arguments in (
        ("--dsn", "postgresql://u:hidden@127.0.0.1:1/x"),
        ("--dsn", "postgresql://127.0.0.1:1/x?password=hidden"),
        ("--set", "manager.ca_secret=hidden"),
    ):
        result = other.run("manager", *arguments)
        assert (result.returncode, "is a secret" in result.stderr) == (2, True), result.stderr
        assert "hidden" not in result.stderr


def test_second_start_on_the_same_state_directory_fails(one_node: Platform, tmp_path: Path) -> None:
    other = Platform(tmp_path)
    result = other.run("up", "--home", str(one_node.home), timeout=60)
    assert result.returncode == 1
    assert "Traceback" not in result.stderr
    assert str(one_node.home) in result.stderr


def test_unknown_setting_gets_a_suggestion(tmp_path: Path) -> None:
    other = Platform(tmp_path)
    result = other.run("config", "show", "--set", "manager.lisen=x:1")
    assert (result.returncode, "manager.listen" in result.stderr) == (2, True)
    shown = other.run("config", "show", "--origin")
    assert shown.returncode == 0
    assert "env MOORAGE_MANAGER__LISTEN" in shown.stdout


async def test_failing_endpoint_reports_its_reason(client: Client) -> None:
    spec = EndpointSpec.model_validate(
        SMALL | {"name": "bad", "engine": "custom", "command": ["sh", "-c", "exit 7"], "probe": {}}
    )
    await client.endpoints.create(spec)

    async def failed_endpoint() -> Any:
        view = await client.endpoints.get("bad")
        return view if view.failures else None

    view = await until("the endpoint has failed", failed_endpoint)
    assert (view.status, view.reason) == ("degraded", "exit-nonzero")
    assert view.retry_at is not None
    await client.endpoints.delete("bad")
