"""Installations that the browser tests look at: of a few nodes, and of hundreds."""

from __future__ import annotations

import aiohttp

from moorage.common.model.pipelines import PipelineSpec, Step
from moorage.common.model.spec import EndpointSpec, SessionSpec
from moorage.common.views.keys import KeySpec
from moorage.sdk import Client
from tests.e2e.harness import Platform, until

from .simulated_day import live_a_day

NODES = 300
SESSIONS = 1000
LONG = "fine-tune-the-large-language-model-with-all-data-of-2026"
# What people have besides sessions and endpoints, in the order in which one needs the other.
POSSESSIONS: tuple[tuple[str, str, dict[str, object]], ...] = (
    ("POST", "/v1/projects", {"name": "vision", "resource_groups": ["default"]}),
    ("POST", "/v1/projects", {"name": LONG, "resource_groups": ["default"]}),
    ("POST", "/v1/users", {"name": "ann", "email": "ann@example.com"}),
    ("POST", "/v1/users", {"name": "bob.with-a-long-name", "email": "bob.long@department.example"}),
    ("PUT", "/v1/quotas/project/default", {"slots": {"cuda.device": 2000, "cpu": "9000"}}),
    ("PUT", "/v1/quotas/project/vision", {"slots": {"cuda.device": 8}, "sessions": 20}),
    ("PUT", "/v1/prices", {"unit": "gpu", "price": 2_500_000}),
    ("PUT", "/v1/prices", {"unit": "tokens_out", "price": 400_000}),
    ("PUT", "/v1/budgets/project/month/gpu/default", {"soft": 1, "hard": 100_000_000}),
    ("PUT", "/v1/secrets/hub-token", {"value": "not a secret"}),
    (
        "POST",
        "/v1/cron-jobs",
        {"name": "report", "cron": "30 7 * * *", "session": {"command": ["true"]}},
    ),
    (
        "PUT",
        "/v1/templates/train",
        {
            "description": "Trains for some epochs, with a checkpoint after each of them",
            "parameters": {"epochs": {"type": "integer", "default": 5, "min": 1}},
            "spec": {"command": ["python", "train.py", "--epochs", "{{ epochs }}"]},
        },
    ),
)


async def connect(platform: Platform, nodes: int) -> None:
    """Start a proxy and simulated nodes of eight GPUs, and wait for them."""
    platform.start("proxy")
    platform.start("simulate", "--agents", str(nodes), "--gpus", "8", "--forever", "--serve")

    async with platform.client() as client:

        async def connected() -> bool:
            return len(await client.agents.list()) == nodes

        await until("the agents are there", connected)


async def furnish(platform: Platform, hours: int, nodes: int = 3) -> None:
    """Nodes with eight GPUs each and a past of ``hours``, sessions that hold most of three nodes, a
    waiting session, and an endpoint."""
    await connect(platform, nodes)
    async with platform.client() as client:
        await live_a_day(platform, hours, people=max(1, nodes // 15))
        await client.keys.create(KeySpec(name="spare"))
        await serve(client, "tiny")
        for number in range(16):
            resources = (
                {"cpu": 2, "mem": "4GiB", "cuda.shares": 0.5} if number % 2 else {"cuda.device": 2}
            )
            await start(client, f"train-{number}", resources)

        train = SessionSpec(command=["sleep", "1d"], runtime="fake", resources={"cuda.shares": 0.5})
        steps = [
            Step(name="train", array="0-2", spec=train),
            Step(name="report", after=["train"], spec=train),
        ]
        await client.pipelines.create(PipelineSpec(name="digits", steps=steps))
        waits = SessionSpec(
            name="waits", command=["true"], runtime="fake", resources={"cuda.device": 8}
        )
        await client.sessions.create(waits)

        async def ready() -> bool:
            return (await client.endpoints.get("tiny")).ready == 2

        await until("the endpoint is ready", ready)


async def serve(client: Client, name: str) -> None:
    endpoint = EndpointSpec(
        name=name,
        engine="vllm",
        model="tiny",
        replicas=2,
        resources={"cpu": 1, "cuda.device": 1},
    )
    await client.endpoints.create(endpoint)


async def start(client: Client, name: str, resources: dict[str, object]) -> None:
    spec = SessionSpec(name=name, command=["sleep", "1d"], runtime="fake", resources=resources)
    await client.sessions.create(spec)


async def possess(platform: Platform) -> None:
    """At least one object of every kind that the console lists, with long names."""
    async with aiohttp.ClientSession(platform.url, headers=platform.auth) as http:
        for method, path, body in POSSESSIONS:
            async with http.request(method, path, json=body) as response:
                assert response.status < 300, (path, await response.text())

    async with platform.client() as client:
        await start(client, LONG, {"cpu": 1, "cuda.shares": 0.25})


async def crowd(platform: Platform) -> None:
    """As many sessions as a busy installation has; some of them can never start."""
    async with platform.client() as client:
        for number in range(SESSIONS):
            gpus = 99 if number % 50 == 0 else 1
            await start(client, f"sweep-{number}", {"cpu": 1, "cuda.device": gpus})
