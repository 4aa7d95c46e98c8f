"""An engine on the GPU behind the proxy: the time to the first token, the cost of the proxy, what
cancelling frees, and scale to zero with the wake-up."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from moorage.common.model.spec import EndpointSpec
from moorage.common.views.endpoints import EndpointPatch
from moorage.sdk import Client
from tests.e2e.harness import Platform, until
from tests.gpu.kit.machine import ENGINE, GIB, Watch, torch_python
from tests.gpu.kit.platform_parts import ENV, ended, running, stages
from tests.gpu.kit.report import REHEARSAL, Report

NAME = "random"
STREAMS = 32
SLOTS = 128
TOKENS = 16 if REHEARSAL else 128
LONG = 480
IDLE_S = 3.0


@dataclass
class Answer:
    sent_at: float
    times: list[float] = field(default_factory=list)
    error: str = ""

    @property
    def first_s(self) -> float:
        return self.times[0] - self.sent_at if self.times else float("nan")

    @property
    def rate(self) -> float:
        """Tokens per second after the first one."""
        spent = self.times[-1] - self.times[0] if len(self.times) > 1 else 0
        return (len(self.times) - 1) / spent if spent else 0.0


async def stream(
    http: aiohttp.ClientSession, url: str, tokens: int = TOKENS, timeout_s: float = 60
) -> Answer:
    """One streamed answer, with the time of each token."""
    messages = [{"role": "user", "content": "Say something"}]
    body = {"model": NAME, "messages": messages, "max_tokens": tokens, "stream": True}
    answer = Answer(time.time())
    try:
        limit = aiohttp.ClientTimeout(total=timeout_s)
        async with http.post(f"{url}/chat/completions", json=body, timeout=limit) as response:
            if response.status != 200:
                answer.error = f"{response.status} {(await response.text())[:300]}"
                return answer

            async for line in response.content:
                if line.startswith(b"data: {") and b'"content"' in line:
                    answer.times.append(time.time())

            if len(answer.times) != tokens:
                answer.error = f"{len(answer.times)} tokens instead of {tokens}"
    except (aiohttp.ClientError, TimeoutError) as error:
        answer.error = repr(error)

    return answer


def client_of(platform: Platform) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(headers=platform.auth, connector=aiohttp.TCPConnector(limit=0))


async def log_of_replica(client: Client, session: str) -> str:
    return b"".join([part async for part in client.sessions.logs(session)]).decode(errors="replace")


def engine_stages(log: str) -> dict[str, float]:
    lines = (line.split() for line in log.splitlines() if line.startswith("stage "))
    return {words[1]: float(words[2]) for words in lines}


def since(start: float, *moments: dict[str, float]) -> dict[str, float]:
    """All kinds of stages, in seconds after the start, in order."""
    merged = {name: at for one in moments for name, at in one.items()}
    return {
        name: round(at - start, 3) for name, at in sorted(merged.items(), key=lambda item: item[1])
    }


def summary(answers: list[Answer], spent: float) -> dict[str, Any]:
    good = [one for one in answers if not one.error]
    firsts = sorted(one.first_s for one in good)
    gaps = sorted(b - a for one in good for a, b in zip(one.times, one.times[1:], strict=False))
    return {
        "answers": len(good),
        "errors": [one.error for one in answers if one.error][:3],
        "tokens/s": round(sum(len(one.times) for one in good) / spent, 1),
        "first token p50 ms": round(statistics.median(firsts) * 1000, 1) if firsts else None,
        "first token max ms": round(firsts[-1] * 1000, 1) if firsts else None,
        "gap p50 ms": round(statistics.median(gaps) * 1000, 2) if gaps else None,
        "gap p99 ms": round(gaps[int(len(gaps) * 0.99)] * 1000, 2) if gaps else None,
    }


async def engine(report: Report, folder: Path) -> None:
    size = () if REHEARSAL else ("2048", "24", str(SLOTS))
    spec = EndpointSpec.model_validate(
        {
            "name": NAME,
            "command": [torch_python(), ENGINE, "{port}", *size],
            "probe": {"path": "/health"},
            "resources": {"cpu": "2", "mem": "8GiB", "cuda.device": 1},
            "env": ENV | {"PYTHONUNBUFFERED": "1"},
            "stop_grace_s": 3,
            "autoscale": {"min": 1, "max": 1, "idle_timeout_s": IDLE_S},
        }
    )
    async with running(folder, report) as (platform, client):
        with Watch(0.05) as watch:
            await first_token(report, platform, client, spec)
            view = await client.endpoints.get(NAME)
            direct = f"http://{view.sessions[0].address}"
            report.fact("address of the engine", direct)
            with report.caught("with and without the proxy"):
                await compare(report, platform, f"{direct}/v1")
            with report.caught("cancellation is seen on the GPU"):
                await cancel(report, platform, direct, watch)
            with report.caught("scale to zero, and wake"):
                await sleep_and_wake(report, platform, client, watch)

            with report.caught("removal frees the GPU"):
                await client.endpoints.delete(NAME)
                gone = time.time()

                async def is_free() -> bool:
                    return REHEARSAL or watch.first_below(GIB, gone) is not None

                await until("the memory is free", is_free, 20)
                free = watch.first_below(GIB, gone)
                report.fact(
                    "seconds from its removal to free memory", free and round(free - gone, 2)
                )

        watch.save(folder / "watch.txt")


async def first_token(
    report: Report, platform: Platform, client: Client, spec: EndpointSpec
) -> None:
    """Create the endpoint and send a request at once: the proxy holds the request until the engine
    serves."""
    created = time.time()
    await client.endpoints.create(spec)
    answered = time.time()

    async with client_of(platform) as http:
        answer = Answer(created, error="it was not sent")
        while time.time() < created + 100:
            answer = await stream(http, platform.openai_url, 8, timeout_s=100)
            if not answer.error.startswith("404"):
                break  # the proxy knows the model

            await asyncio.sleep(0.05)

    view = await client.endpoints.get(NAME)
    replica = view.sessions[0].session_id if view.sessions else ""
    log = await log_of_replica(client, replica) if replica else ""
    print(log)
    report.check(
        "a request made at its creation is answered", not answer.error, answer.error or view
    )
    report.fact(
        "log of the engine",
        [line for line in log.splitlines() if not line.startswith("stage")][-20:],
    )
    moments = {
        "the API has answered": answered,
        "first token": answer.times[0] if answer.times else 0.0,
    }
    history = await stages(client, replica)
    report.fact("seconds from creation", since(created, moments, history, engine_stages(log)))


async def compare(report: Report, platform: Platform, direct: str) -> None:
    async with client_of(platform) as http:
        for url in (direct, platform.openai_url):
            await stream(http, url)  # connections, and the engine's caches

        single: dict[str, list[Answer]] = {"direct": [], "proxy": []}
        for _ in range(3):
            for name, url in (("direct", direct), ("proxy", platform.openai_url)):
                single[name].append(await stream(http, url))

        for name, answers in single.items():
            report.check(
                f"single streams are whole ({name})",
                not any(a.error for a in answers),
                answers[0].error,
            )
            rates = [round(answer.rate, 1) for answer in answers]
            firsts = [round(answer.first_s * 1000, 1) for answer in answers]
            report.fact(f"one stream, {name}: tokens/s, first token ms", [rates, firsts])

        for streams in (STREAMS, SLOTS):
            for turn in (1, 2):
                for name, url in (("direct", direct), ("proxy", platform.openai_url)):
                    started = time.time()
                    before = proxy_seconds(platform)
                    answers = await asyncio.gather(*(stream(http, url) for _ in range(streams)))
                    result = summary(answers, time.time() - started)
                    spent = proxy_seconds(platform) - before
                    result["CPU us of the proxy a token"] = round(
                        spent * 1e6 / (streams * TOKENS), 1
                    )
                    report.fact(f"{streams} streams, {name}, turn {turn}", result)
                    whole = not result["errors"]
                    report.check(f"{streams} streams are whole ({name}, {turn})", whole, result)


def proxy_seconds(platform: Platform) -> float:
    """The proxy's processor seconds so far, including its workers'."""
    own = platform.pid("proxy")
    ticks = 0
    for pid in [own, *children(own)]:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


async def cancel(report: Report, platform: Platform, direct: str, watch: Watch) -> None:
    """32 long streams through the proxy, cut off by their clients: the engine stops, and the GPU
    goes idle."""
    async with client_of(platform) as http, aiohttp.ClientSession() as plain:

        async def stats() -> dict[str, Any]:
            async with plain.get(f"{direct}/stats") as response:
                value: dict[str, Any] = await response.json()
                return value

        tasks = [
            asyncio.create_task(stream(http, platform.openai_url, LONG)) for _ in range(STREAMS)
        ]
        await asyncio.sleep(1.5)
        before = await stats()
        report.check("the engine works on all of them", before["active"] == STREAMS, before)
        cut = time.time()
        for task in tasks:
            task.cancel()

        await asyncio.gather(*tasks, return_exceptions=True)

        async def is_idle() -> bool:
            return (await stats())["active"] == 0

        await until("the engine is idle", is_idle, 10)
        idle = time.time()
        first = await stats()
        await asyncio.sleep(2.5)
        last = await stats()
        report.fact("seconds from the cut to an idle engine", round(idle - cut, 3))
        report.fact("its requests before, at once and later", [before, first, last])
        report.check("no step is made afterwards", first["steps"] == last["steps"], [first, last])
        report.check("all were cancelled in the engine", last["cancelled"] >= STREAMS, last)
        busy = [gpu for _, _, gpu, _ in watch.between(cut - 1.0, cut)]
        quiet = next((at for at, _, gpu, _ in watch.samples if at > cut and gpu == 0), None)
        report.fact("utilisation before", busy)
        report.fact("seconds from the cut to a GPU of 0 %", quiet and round(quiet - cut, 2))
        report.check(
            "the GPU was busy, and idles",
            max(busy, default=0) > 30 and quiet is not None,
            quiet,
            gpu=True,
        )


async def sleep_and_wake(report: Report, platform: Platform, client: Client, watch: Watch) -> None:
    replica = (await client.endpoints.get(NAME)).sessions[0].session_id
    asked = time.time()
    patch = {"autoscale": {"min": 0, "max": 1, "idle_timeout_s": IDLE_S}}
    await client.endpoints.update(NAME, EndpointPatch.model_validate(patch))

    async def is_asleep() -> bool:
        view = await client.endpoints.get(NAME)
        return view.status == "not_loaded" and not [r for r in view.sessions if r.state]

    await until("it sleeps", is_asleep, 40)
    asleep = time.time()
    report.fact("seconds until it sleeps, idle after 3", round(asleep - asked, 2))

    # It carries no load from the moment it is stopped; its program then ends within its grace
    # period.
    await ended(client, replica)
    over = time.time()
    report.fact("seconds from then to the end of its session", round(over - asleep, 2))
    await asyncio.sleep(0.3)
    free = watch.first_below(GIB, asked)
    report.fact("seconds from then to free memory", free and round(free - asleep, 2))
    used = [size for at, size, _, _ in watch.samples if at > over + 0.1]
    report.check(
        "its memory is free when its session has ended",
        bool(used) and max(used) < GIB,
        used,
        gpu=True,
    )

    async with client_of(platform) as http:
        woken = await stream(http, platform.openai_url, 8, timeout_s=60)
        view = await client.endpoints.get(NAME)
        report.check("a request wakes it", not woken.error, woken.error)
        live = [one for one in view.sessions if one.state]
        log = await log_of_replica(client, live[0].session_id)
        history = await stages(client, live[0].session_id)
        moments = {"first token": woken.times[0]} if woken.times else {}
        report.fact(
            "seconds from the request", since(woken.sent_at, moments, history, engine_stages(log))
        )
        again = await stream(http, platform.openai_url, 8)
        report.fact("first token of the next request, ms", round(again.first_s * 1000, 1))

    with contextlib.suppress(Exception):
        decisions = await client.endpoints.scaling_decisions(NAME)
        report.fact("decisions", [json.loads(d.model_dump_json()) for d in decisions][:6])


PARTS = {"engine": engine}
