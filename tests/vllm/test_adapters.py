"""A LoRA adapter of a model with weights, on a real vLLM: answers, stored responses, and what its
log shows while it loads."""

from __future__ import annotations

import asyncio
from typing import Any

import openai
import pytest

from moorage.agent.engines.progress import VLLM, read_progress
from moorage.common.model.serving import Adapter
from moorage.common.model.spec import EndpointSpec
from moorage.common.views.endpoints import EndpointView
from moorage.demo.model import write_tiny_llama_dir
from tests.e2e.harness import Platform, kernels_below, until

from .test_vllm import ARGS, ENV
from .tiny_weights import RANK, write_adapter, write_weights

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(600)]
NAME = "tuned"
LOADED_S = 400.0
STORES = {"VLLM_ENABLE_RESPONSES_API_STORE": "1"}
# All except --load-format dummy, because the weights are read.
OPTIONS = [*ARGS[2:], "--max-lora-rank", str(RANK)]


async def test_adapter_and_progress_of_loading(platform: Platform) -> None:
    model = platform.home / "tuned-model"
    adapter = platform.home / "sea"
    write_tiny_llama_dir(model)
    write_weights(model)
    write_adapter(adapter)
    await platform.wait_until_ready()
    spec = EndpointSpec(
        name=NAME, engine="vllm", model=str(model), args=OPTIONS, env=ENV | STORES, 
        adapters=[Adapter(name="sea", source=str(adapter))],
        resources={"cpu": "0.5", "mem": "2GiB"}, start_timeout_s=LOADED_S, stop_grace_s=8,
    )  # fmt: skip
    async with platform.client() as client:
        await client.endpoints.create(spec)

        async def is_ready() -> EndpointView | None:
            found = await client.endpoints.get(NAME)
            return found if found.ready else None

        view: EndpointView = await until("it is ready", is_ready, LOADED_S)
        session = view.sessions[0].session_id
        log = b"".join([piece async for piece in client.sessions.logs(session)]).decode(
            errors="replace"
        )

    await _ask(platform)
    await _ask_again(platform)
    stages = _stages(log)
    print(f"stages of loading: {', '.join(stages)}")
    assert stages[0] == "loading weights"
    assert "loading weights: 100%" in stages
    assert stages[-1] == "warming up"
    async with platform.client() as client:
        await client.endpoints.delete(NAME)

    await until(
        "no engine is left", lambda: asyncio.to_thread(lambda: not kernels_below(platform.home))
    )


async def _ask(platform: Platform) -> None:
    async with openai.AsyncOpenAI(base_url=platform.openai_url, api_key=platform.key) as asking:
        answers = {}
        for name in (NAME, f"{NAME}:sea"):
            assert name in [one.id async for one in asking.models.list()]
            answer = await asking.completions.create(
                model=name, prompt="Tell me about the sea.", max_tokens=16, temperature=0
            )
            assert answer.model == name
            answers[name] = answer.choices[0].text

        assert len(set(answers.values())) == 2, f"the adapter changes the answer: {answers}"
        with pytest.raises(openai.NotFoundError):
            await asking.completions.create(model=f"{NAME}:land", prompt="x")


async def _ask_again(platform: Platform) -> None:
    """The id of a stored response names its replica, so that another proxy also finds it."""
    kernels = set((await asyncio.to_thread(kernels_below, platform.home)).values())
    async with openai.AsyncOpenAI(base_url=platform.openai_url, api_key=platform.key) as client:
        asked: Any = {"model": NAME, "input": "Tell me about the sea.", "max_output_tokens": 16}
        made = await client.responses.create(**asked)
        assert made.id.removeprefix("resp_").partition(".")[0] in kernels
        assert (await client.responses.retrieve(made.id)).output_text == made.output_text
        following = await client.responses.create(**asked, previous_response_id=made.id)
        assert following.id != made.id
        events = [event async for event in await client.responses.create(**asked, stream=True)]
        (created,) = [event.response.id for event in events if event.type == "response.created"]
        assert (await client.responses.retrieve(created)).id == created


def _stages(log: str) -> list[str]:
    """The successive states shown while the log grew."""
    lines = log.splitlines()
    seen = list[str]()
    for end in range(1, len(lines) + 1):
        stage = read_progress("\n".join(lines[max(0, end - 50) : end]), VLLM)
        if stage and stage not in seen[-1:]:
            seen.append(stage)
    return seen
