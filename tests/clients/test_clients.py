"""Clients that others wrote, against a scripted engine: once directly, and once through each data
plane. Only differences fail.

The clients run in environments of their own, which ``tools/environment clients`` makes.
``build/clients.md`` shows the results.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict

import pytest

from tests.clients.checks import Place
from tests.clients.places import DIRECT, ROOT
from tests.clients.results import Results

pytestmark = [pytest.mark.clients, pytest.mark.asyncio(loop_scope="module")]

CURRENT = str(ROOT / ".venv-clients" / "bin" / "python")
PREVIOUS = str(ROOT / ".venv-clients-openai2" / "bin" / "python")
NODE = str(ROOT / ".venv-console" / "bin" / "node")
PROGRAMS = {
    "openai 3": (CURRENT, "-m", "tests.clients.openai_python"),
    "openai 2": (PREVIOUS, "-m", "tests.clients.openai_python"),
    "anthropic": (CURRENT, "-m", "tests.clients.anthropic_python"),
    "LangChain and LiteLLM": (CURRENT, "-m", "tests.clients.frameworks"),
    "httpx, curl and Jupyter": (CURRENT, "-m", "tests.clients.http_clients"),
    "Node.js": (NODE, "tests/clients/node_clients.mjs"),
}
ENVIRONMENT = {
    "HOME": "/nonexistent",
    "PATH": "/usr/bin:/bin",
    "LITELLM_LOCAL_MODEL_COST_MAP": "1",
}
# The checks of every gate: six of OpenAI's client and four of Anthropic's.
SMOKE = {
    "openai 3": (
        "chat",
        "chat stream",
        "responses stream",
        "transcription of 3 MB",
        "realtime",
        "wrong key",
    ),
    "anthropic": ("messages", "messages stream", "tool stream", "unknown model"),
}


async def lines(
    command: tuple[str, ...], places: list[Place], *checks: str, **environment: str
) -> str:
    """The output of a client's program."""
    arguments = (json.dumps([asdict(place) for place in places]), json.dumps(checks))
    process = await asyncio.create_subprocess_exec(
        *command,
        *arguments,
        cwd=ROOT,
        env=ENVIRONMENT | environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        output, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()

    assert process.returncode == 0, errors.decode()[-2000:]
    return output.decode()


def judge(output: str, results: Results, places: list[Place]) -> None:
    differences = results.add(output)
    assert not differences, "\n".join(map(str, differences))
    assert {json.loads(line)["place"] for line in output.splitlines()} == {
        place.name for place in places
    }
    for line in map(json.loads, output.splitlines()):
        if line["place"] == DIRECT and isinstance(line["outcome"], dict):
            wanted = line["check"].startswith(("error", "wrong", "unknown", "timeout"))
            assert wanted or "error" not in line["outcome"], line


@pytest.mark.smoke
async def test_essential_checks(everywhere: list[Place]) -> None:
    outputs = await asyncio.gather(
        *(lines(PROGRAMS[program], everywhere, *checks) for program, checks in SMOKE.items())
    )
    for output, checks in zip(outputs, SMOKE.values(), strict=True):
        assert len(output.splitlines()) == len(checks) * len(everywhere)
        judge(output, Results(), everywhere)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("program", PROGRAMS)
async def test_client(everywhere: list[Place], results: Results, program: str) -> None:
    judge(await lines(PROGRAMS[program], everywhere), results, everywhere)
