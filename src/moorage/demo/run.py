"""``moorage demo``: the main job from end to end on this machine, each stage with its time."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Coroutine
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

from moorage.common.aio.clock import Clock
from moorage.common.aio.tasks import cancel_and_wait, spawn
from moorage.common.config.settings import Settings
from moorage.common.model.errors import MoorageError, StartupError
from moorage.common.model.reasons import REASONS
from moorage.common.model.spec import EndpointSpec
from moorage.common.model.status import EndpointStatus
from moorage.common.views.resources import EndpointView
from moorage.demo.model import write_tiny_gguf
from moorage.sdk import Client, Message, chat
from moorage.server.all_in_one import AllInOne
from moorage.server.process import until_signalled

MODEL = "tiny-random"
QUESTION = "What does a moorage do?"
READY_WITHIN_S = 90.0
LOOK_EVERY_S = 0.05
TOKENS = 40


class Stages:
    """Prints one line per stage, with the seconds since the start and those that the stage took."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._start = clock, clock.monotonic()
        self._last = self._start
        since = os.environ.get("MOORAGE_DEMO_SINCE", "")
        # `make demo` says when it began, so that the total can include the installation.
        self._before = max(0.0, clock.now().timestamp() - float(since)) if since.isdigit() else 0.0

    def done(self, words: str) -> None:
        now = self._clock.monotonic()
        print(f"{now - self._start:6.2f} s  {words}  (+{now - self._last:.2f} s)", flush=True)
        self._last = now

    def total(self) -> str:
        took = self._clock.monotonic() - self._start
        whole = f", {took + self._before:.0f} s with make and installation" if self._before else ""
        return f"{took:.1f} s{whole}"


async def run_demo(settings: Settings, *, clock: Clock, link_token: str, home: Path, once: bool) -> int:
    """0 only if the model really answered. ``once``: then stop everything; else stay until a signal."""
    stopped = until_signalled()
    stages = Stages(clock)
    print("Moorage: from nothing to a model behind an OpenAI address, through every component\n", flush=True)
    model = home / "models" / f"{MODEL}.gguf"
    if not model.exists():
        model.parent.mkdir(parents=True, exist_ok=True)
        await asyncio.to_thread(write_tiny_gguf, model)
        stages.done(f"wrote a tiny model with random weights: {model.name}")
    part = AllInOne(settings, clock=clock, link_token=link_token, home=home, progress=stages.done)
    async with part:
        key = (home / "admin-key").read_text().strip()
        async with Client(part.url, key) as client:
            answered = await _unless(stopped, _serve_and_ask(client, part, key, model, stages))
        if answered is None:
            return 130
        _say_what_next(part, home, stages, once)
        if not once:
            await stopped.wait()
            print("\nstopping the model and every component ...", flush=True)
    print("stopped; nothing is left running")
    return 0


async def _unless(stopped: asyncio.Event, doing: Coroutine[Any, Any, str]) -> str | None:
    """What ``doing`` gives; None as soon as a signal comes first."""
    work, signalled = spawn("demo", doing), spawn("demo.signal", stopped.wait())
    try:
        await asyncio.wait({work, signalled}, return_when=asyncio.FIRST_COMPLETED)
        return work.result() if work.done() else None
    finally:
        await cancel_and_wait(work, signalled)


async def _serve_and_ask(client: Client, part: AllInOne, key: str, model: Path, stages: Stages) -> str:
    spec = EndpointSpec(
        name=MODEL,
        engine="llamacpp",
        model=str(model),
        resources={"cpu": "0.5", "mem": "512MiB"},
        start_timeout_s=60,
    )
    known = {e.name for e in (await client.list_endpoints()).items}
    if MODEL not in known:
        await client.create_endpoint(spec)
        stages.done(f"asked the REST API for endpoint {MODEL}")
    else:
        stages.done(f"endpoint {MODEL} is known from last time")
    ready = await _until_ready(client, stages)
    await _tell_story(client, ready)
    return await _ask(part.openai_url, key, stages)


async def _until_ready(client: Client, stages: Stages) -> EndpointView:
    try:
        async with asyncio.timeout(READY_WITHIN_S):
            while True:
                view = await client.get_endpoint(MODEL)
                if view.status is EndpointStatus.READY:
                    stages.done("the engine generated its first token: ready")
                    return view
                if view.failures:
                    _fail(view)
                await asyncio.sleep(LOOK_EVERY_S)
    except TimeoutError:
        _fail(await client.get_endpoint(MODEL))


def _fail(view: EndpointView) -> NoReturn:
    last = next((s for s in view.sessions if s.log_tail), None)
    if last is not None:
        print(f"\nlast lines of its log:\n{last.log_tail}", file=sys.stderr)
    info = REASONS[view.reason]
    raise StartupError(
        f"the model did not get ready: {view.detail or info.text or view.status}", next_step=info.next_step
    )


async def _tell_story(client: Client, view: EndpointView) -> None:
    """What the session went through, from its history in Postgres."""
    running = next(s for s in view.sessions if s.status == "RUNNING")
    story = await client.history(running.session_id)
    steps = [f"{b.to_status} +{(b.at - a.at).total_seconds():.3f} s" for a, b in pairwise(story)]
    print(
        f"          session {running.name} on {running.agent_id}: PENDING → {' → '.join(steps)}", flush=True
    )


async def _ask(openai_url: str, key: str, stages: Stages) -> str:
    print(f"          asking: {QUESTION}", flush=True)
    messages: list[Message] = [{"role": "user", "content": QUESTION}]
    for attempt in range(50):
        try:
            pieces = [p async for p in chat(openai_url, key, MODEL, messages, max_tokens=TOKENS)]
            break
        except MoorageError:
            # READY is in the database; the route reaches the proxy a moment later.
            if attempt == 49:
                raise
            await asyncio.sleep(0.1)
    answer = "".join(pieces).strip()
    if not answer:
        raise StartupError("the model answered nothing", next_step=f"look at `moorage logs {MODEL}`")
    stages.done(f"it answered, in {len(pieces)} streamed pieces")
    print(
        f"\n          {answer!r}\n\n          (The weights are random, so this is noise; the path is real.)",
        flush=True,
    )
    return answer


def _say_what_next(part: AllInOne, home: Path, stages: Stages, once: bool) -> None:
    print(f"\nAll of it took {stages.total()}.\n")
    if once:
        return
    key_file = home / "admin-key"
    body = f'{{"model": "{MODEL}", "max_tokens": 40, "messages": [{{"role": "user", "content": "Hello"}}]}}'
    print(
        f"OpenAI API  {part.openai_url}\n"
        f"REST API    {part.url}/openapi.json\n"
        f"API key     in {key_file}\n\n"
        f'curl {part.openai_url}/chat/completions -H "Authorization: Bearer $(cat {key_file})" \\\n'
        f"  -H 'Content-Type: application/json' -d '{body}'\n\n"
        f"In another terminal (export MOORAGE_HOME={home}):\n"
        "  moorage ps                                  what runs\n"
        f"  moorage chat {MODEL}                     talk to it\n"
        "  moorage serve ./model.gguf                  a real model from a GGUF file\n"
        "  moorage serve Qwen/Qwen3-0.6B --gpus 1       with vLLM, where it is installed\n\n"
        "Ctrl-C stops everything; the next start takes up where this one ended.",
        flush=True,
    )
