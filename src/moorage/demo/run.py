"""Demonstration run: starts every component, serves a tiny model, asks it a question, and times
each stage."""

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
from moorage.common.model.status import EndpointStatus, Status
from moorage.common.views.endpoints import EndpointView
from moorage.demo.model import write_tiny_gguf
from moorage.sdk import Client, Message, chat
from moorage.server.all_in_one import AllInOne
from moorage.server.process import shutdown_event

MODEL = "tiny-random"
QUESTION = "What does a moorage do?"
READY_TIMEOUT_S = 90.0
MAX_TOKENS = 40


class Stages:
    """Stopwatch that prints one line per stage: seconds since the start, and seconds taken by the
    stage."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._start = clock.monotonic()
        self._last = self._start
        since = os.environ.get("MOORAGE_DEMO_SINCE", "")
        # Set by `make demo`, so that the total can include the installation.
        self._before_s = (
            max(0.0, clock.now().timestamp() - float(since)) if since.isdigit() else 0.0
        )

    def done(self, message: str) -> None:
        now = self._clock.monotonic()
        print(f"{now - self._start:6.2f} s  {message}  (+{now - self._last:.2f} s)", flush=True)
        self._last = now

    def total(self) -> str:
        elapsed = self._clock.monotonic() - self._start
        with_installation = (
            f", {elapsed + self._before_s:.0f} s with make and installation"
            if self._before_s
            else ""
        )
        return f"{elapsed:.1f} s{with_installation}"


async def run_demo(
    settings: Settings, *, clock: Clock, link_token: str, home: Path, once: bool
) -> int:
    """Run the demonstration. Returns 0 if the model answered, 130 if a signal came first.

    ``once``: stop everything after the answer, instead of serving until a signal arrives.
    """
    shutdown = shutdown_event()
    stages = Stages(clock)
    print("Moorage: from nothing to a model behind an OpenAI-compatible address\n", flush=True)
    model = home / "models" / f"{MODEL}.gguf"
    if not model.exists():
        model.parent.mkdir(parents=True, exist_ok=True)
        await asyncio.to_thread(write_tiny_gguf, model)
        stages.done(f"wrote a tiny model with random weights: {model.name}")

    # A demonstration leaves nothing behind.
    agent = settings.agent.model_copy(update={"stop_kernels_on_exit": True})
    settings = settings.model_copy(update={"agent": agent})
    platform = AllInOne(
        settings, clock=clock, link_token=link_token, home=home, on_progress=stages.done
    )
    async with platform:
        key = (home / "admin-key").read_text().strip()
        async with Client(platform.url, key) as client:
            answer = await _unless(
                shutdown, _serve_and_ask(client, platform, key=key, model=model, stages=stages)
            )

        if answer is None:
            return 130

        _print_next_steps(platform, home, stages, once)
        if not once:
            await shutdown.wait()
            print("\nstopping the model and every component ...", flush=True)

    print("stopped; nothing is left running")
    return 0


async def _unless(shutdown: asyncio.Event, work: Coroutine[Any, Any, str]) -> str | None:
    """The result of ``work``, or None if ``shutdown`` is set first."""
    working = spawn("demo", work)
    signalled = spawn("demo.signal", shutdown.wait())
    try:
        await asyncio.wait({working, signalled}, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        await cancel_and_wait(working, signalled)


async def _serve_and_ask(
    client: Client, platform: AllInOne, key: str, model: Path, *, stages: Stages
) -> str:
    spec = EndpointSpec(
        name=MODEL,
        engine="llamacpp",
        model=str(model),
        resources={"cpu": "0.5", "mem": "512MiB"},
        start_timeout_s=60,
    )
    known = {e.name for e in await client.endpoints.list()}
    if MODEL not in known:
        await client.endpoints.create(spec)
        stages.done(f"created endpoint {MODEL} through the REST API")
    else:
        stages.done(f"found endpoint {MODEL} from an earlier run")

    ready = await _until_ready(client, stages)
    await _print_history(client, ready)
    return await _ask(platform.openai_url, key, stages)


async def _until_ready(client: Client, stages: Stages) -> EndpointView:
    try:
        view = await client.endpoints.wait(
            MODEL,
            lambda endpoint: endpoint.status is EndpointStatus.READY or endpoint.failures > 0,
            timeout_s=READY_TIMEOUT_S,
        )
    except TimeoutError:
        view = await client.endpoints.get(MODEL)

    if view.status is not EndpointStatus.READY:
        _raise_not_ready(view)

    stages.done("the engine generated its first token: ready")
    return view


def _raise_not_ready(view: EndpointView) -> NoReturn:
    last = next((s for s in view.sessions if s.log_tail), None)
    if last is not None:
        print(f"\nlast lines of its log:\n{last.log_tail}", file=sys.stderr)
    info = REASONS[view.reason]
    raise StartupError(
        f"the model did not become ready: {view.detail or info.text or view.status}",
        next_step=info.next_step,
    )


async def _print_history(client: Client, view: EndpointView) -> None:
    """Print the status transitions of the replica's session, from its history in Postgres."""
    running = next(s for s in view.sessions if s.status == Status.RUNNING)
    history = await client.sessions.history(running.session_id)
    steps = [f"{b.to_status} +{(b.at - a.at).total_seconds():.3f} s" for a, b in pairwise(history)]
    print(
        f"          session {running.name} on {running.agent_id}: PENDING → {' → '.join(steps)}",
        flush=True,
    )


async def _ask(openai_url: str, key: str, stages: Stages) -> str:
    print(f"          asking: {QUESTION}", flush=True)
    messages: list[Message] = [{"role": "user", "content": QUESTION}]
    for attempt in range(50):
        try:
            pieces = [
                p async for p in chat(openai_url, key, MODEL, messages, max_tokens=MAX_TOKENS)
            ]
            break
        except MoorageError:
            # READY is committed before the route reaches the proxy.
            if attempt == 49:
                raise
            await asyncio.sleep(0.1)

    answer = "".join(pieces).strip()
    if not answer:
        raise StartupError(
            "the model sent an empty answer", next_step=f"see `moorage logs {MODEL}`"
        )

    stages.done(f"the model answered in {len(pieces)} streamed chunks")
    print(
        f"\n          {answer!r}\n\n          (The weights are random, so this is noise; the path "
        "is real.)",
        flush=True,
    )
    return answer


def _print_next_steps(platform: AllInOne, home: Path, stages: Stages, once: bool) -> None:
    print(f"\nTotal: {stages.total()}.\n")
    if once:
        return

    key_file = home / "admin-key"
    body = (
        f'{{"model": "{MODEL}", "max_tokens": 40, "messages": [{{"role": "user", "content": '
        f'"Hello"}}]}}'
    )
    print(
        f"OpenAI API  {platform.openai_url}\n"
        f"Console     {platform.url}/console/\n"
        f"REST API    {platform.url}/openapi.json\n"
        f"API key     in {key_file}\n\n"
        f'curl {platform.openai_url}/chat/completions -H "Authorization: Bearer $(cat '
        f'{key_file})" \\\n'
        f"  -H 'Content-Type: application/json' -d '{body}'\n\n"
        f"In another terminal (export MOORAGE_HOME={home}):\n"
        "  moorage ps                                  list sessions and endpoints\n"
        f"  moorage chat {MODEL}                     chat with the model\n"
        "  moorage serve ./model.gguf                  serve a real model from a GGUF file\n"
        "  moorage serve Qwen/Qwen3-0.6B --gpus 1       serve one with vLLM; offers to install "
        "it\n\n"
        "Ctrl-C stops everything. The next start restores the endpoints.",
        flush=True,
    )
