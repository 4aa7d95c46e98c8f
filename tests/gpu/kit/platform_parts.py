"""Parts with a whole platform: sessions on a whole GPU and on shares of one, and what is left when
programs or the agent are killed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from moorage.common.model.spec import SessionSpec
from moorage.common.views.keys import KeySpec
from moorage.sdk import ApiError, Client
from tests.e2e.harness import Platform, kernels_below, until
from tests.gpu.kit.machine import (
    GIB,
    HOLDER,
    LOAD,
    Watch,
    call,
    nvml,
    process_samples,
    smi,
    torch_python,
    used_memory,
)
from tests.gpu.kit.report import REHEARSAL, NotRun, Report

ENDED = ("TERMINATED", "ERROR", "CANCELLED")
FREE = GIB  # agent.device_free_mem
SETTINGS = {
    "MOORAGE_AGENT__DOCKER": "off",
    "MOORAGE_AGENT__STATS_INTERVAL_S": "0.5",
    "MOORAGE_AGENT__REPORT_INTERVAL_S": "1",
    "MOORAGE_AGENT__GPUS": "0",
    "MOORAGE_AGENT__INVENTORY": "fake:1xH100" if REHEARSAL else "auto",
}
# The variables passed to session programs: kernels inherit none of the agent's own variables.
ENV = {"KIT_REHEARSE": "1"} if REHEARSAL else {}
PROGRAM_PYTHON = sys.executable


@asynccontextmanager
async def running(
    folder: Path, report: Report, **settings: str
) -> AsyncIterator[tuple[Platform, Client]]:
    """A platform below the folder, and a client for it. Its final state is written to files."""
    home = folder / "home"
    home.mkdir(mode=0o711)
    platform = Platform(home)
    platform.env |= SETTINGS | settings
    started = time.monotonic()
    try:
        for name in ("manager", "agent", "proxy"):
            platform.start(name)

        await platform.wait_until_ready()
        async with platform.client() as client:
            await until("the agent is alive", lambda: alive(client))
            await until("the proxy has routes", lambda: has_routes(platform))
            report.fact("seconds until the platform was up", round(time.monotonic() - started, 2))

            try:
                yield platform, client
            finally:
                await asyncio.to_thread(show, platform, folder)
    finally:
        try:
            await asyncio.to_thread(platform.close)
        except AssertionError as fault:
            report.check("no component has written a fault", False, fault)
        else:
            report.check("no component has written a fault", True)

        report.check("no program is left", not kernels_below(home), kernels_below(home))


async def alive(client: Client) -> bool:
    return (await client.agents.get("node-1")).status == "ALIVE"


async def has_routes(platform: Platform) -> bool:
    async with (
        aiohttp.ClientSession() as http,
        http.get(f"{platform.internal_url}/readyz") as answer,
    ):
        return '"ok"' in await answer.text()


def show(platform: Platform, folder: Path) -> None:
    """The platform's own view of everything, for later readers of the logs."""
    shown = []
    for words in (
        ("ps", "--all"),
        ("agents", "describe", "node-1"),
        ("top", "--devices"),
        ("top",),
        ("events",),
    ):
        with contextlib.suppress(subprocess.TimeoutExpired):
            done = platform.run(*words, timeout=10)
            shown.append(f"$ moorage {' '.join(words)}\n{done.stdout}{done.stderr}")

    shown.append(call("nvidia-smi"))
    shown.append(call("sh", "-c", "dmesg | grep -iE 'nvrm|xid|oom|segfault' | tail -40"))
    (folder / "shown.txt").write_text("\n".join(shown))


def spec(
    name: str, *command: str, gpu: float | str = 1, shares: float = 0, **more: Any
) -> SessionSpec:
    resources: dict[str, Any] = {"cpu": "0.5", "mem": "1GiB"}
    if shares:
        resources["cuda.shares"] = str(shares)
    elif gpu:
        resources["cuda.device"] = gpu

    given = {
        "name": name,
        "command": list(command),
        "resources": resources,
        "env": ENV,
        "stop_grace_s": 2,
    }
    return SessionSpec.model_validate(given | more)


def holder(size: str, *options: str) -> tuple[str, ...]:
    return (PROGRAM_PYTHON, HOLDER, size, *options)


async def log_of(client: Client, name: str) -> str:
    return b"".join([part async for part in client.sessions.logs(name)]).decode(errors="replace")


async def line_of(client: Client, name: str, word: str, timeout_s: float = 30) -> list[str]:
    """The words of the first line in a session's log that has this beginning."""

    async def found() -> list[str] | None:
        lines = (await log_of(client, name)).splitlines()
        return next((line.split() for line in lines if line.startswith(word)), None)

    try:
        words: list[str] = await until(f"{name} logs {word!r}", found, timeout_s)
    except AssertionError as error:
        view = await client.sessions.get(name)
        kernel = view.kernels[-1] if view.kernels else None
        tail = kernel.log_tail[-600:] if kernel else ""
        raise AssertionError(
            f"{error}; {view.status} {view.reason}: {view.detail}; log: {tail}"
        ) from None

    return words


def time_of(words: list[str]) -> float:
    return float(words[words.index("at") + 1])


async def ended(client: Client, name: str, timeout_s: float = 30) -> Any:
    async def is_over() -> Any:
        view = await client.sessions.get(name)
        return view if view.status in ENDED else None

    return await until(f"{name} has ended", is_over, timeout_s)


async def stages(client: Client, ref: str) -> dict[str, float]:
    """When the session entered each status, by the clock of the manager's database."""
    return {
        str(entry.to_status): entry.at.timestamp() for entry in await client.sessions.history(ref)
    }


def program_of(platform: Platform, kernel_id: str) -> int:
    """The pid of a kernel's program on the GPU: the one that the shim started."""
    pids = [pid for pid, kernel in kernels_below(platform.home).items() if kernel == kernel_id]
    assert pids, f"no program of {kernel_id} is found"
    return min(pids)


async def stop(client: Client, *names: str) -> None:
    for name in names:
        with contextlib.suppress(ApiError):
            await client.sessions.stop(name)
    for name in names:
        with contextlib.suppress(AssertionError, ApiError):
            await ended(client, name, 15)


async def memory_of(client: Client, name: str, least: int, timeout_s: float = 12) -> int | None:
    """The GPU memory that `top` shows for the session, once it has reached this amount."""
    seen: list[int | None] = [None]

    async def shown() -> bool:
        for line in await client.sessions.top(sort="gpu_memory"):
            if line.name == name:
                seen[0] = line.latest.gpu_memory
        return (seen[0] or 0) >= least

    with contextlib.suppress(AssertionError):
        await until("it is measured", shown, 0.1 if REHEARSAL else timeout_s)

    return seen[0]


async def sessions(report: Report, folder: Path) -> None:
    """The devices that programs see, and the programs' visibility to others."""
    async with running(folder, report) as (_, client):
        agent = await client.agents.get("node-1")
        report.fact("labels of the agent", agent.labels)
        report.fact("runtimes", agent.runtimes)
        report.fact("offers", [offer.model_dump() for offer in agent.offers])

        with report.caught("a session without a GPU"):
            await client.sessions.create(spec("bare", *holder("0", "--seconds", "1"), gpu=0))
            view = await ended(client, "bare")
            log = await log_of(client, "bare")
            report.fact("log of a session without a GPU", log)
            report.check(
                "without a GPU it sees none",
                "variable empty" in log and "sees 0" in log,
                view.detail,
            )

        with report.caught("a session with a GPU"):
            await client.sessions.create(spec("one", *holder(str(2 * GIB))))
            await line_of(client, "one", "holds")
            log = await log_of(client, "one")
            report.fact("log of a session with a GPU", log)
            device = (await client.sessions.get("one")).kernels[0].devices[0].device_id
            bare = device.removeprefix("GPU-").removeprefix("MIG-")
            report.check(
                "CUDA_VISIBLE_DEVICES is the device's UUID", f"variable {device} " in log, device
            )
            report.check("CUDA sees this device alone", f"sees 1 {bare}" in log)
            shown = await memory_of(client, "one", 2 * GIB)
            report.check(
                "top shows its memory", 2 * GIB <= (shown or 0) <= 4 * GIB, shown, gpu=True
            )
            if not REHEARSAL:
                apps = smi("pid,used_memory", "compute-apps")
                report.fact("nvidia-smi: processes", apps)

            await stop(client, "one")

        with report.caught("a session that computes"), Watch(0.1) as watch:
            await load(report, folder, client)

        watch.save(folder / "watch.txt")


async def load(report: Report, folder: Path, client: Client) -> None:
    """A session with a known load, as `top` shows it while it runs."""
    seconds = 2 if REHEARSAL else 9
    await client.sessions.create(spec("load", torch_python(), LOAD, str(seconds), "8192", "4"))
    begin = time_of(await line_of(client, "load", "loads", 60))
    rows = []
    while (await client.sessions.get("load")).status not in ENDED:
        latest = [
            line.latest for line in await client.sessions.top(sort="gpu") if line.name == "load"
        ]
        devices = (await client.agents.stats("node-1")).devices
        rows.append(
            (time.time(), latest and latest[0].model_dump(), [d.model_dump() for d in devices])
        )
        await asyncio.sleep(0.25)

    (folder / "rows.txt").write_text("\n".join(map(str, rows)))
    report.fact("what it printed", await log_of(client, "load"))
    shows = next((at for at, one, _ in rows if one and (one["gpu"] or 0) > 900), None)
    report.fact("seconds until top shows a busy GPU", shows and round(shows - begin, 2))

    # The oldest value that may be shown: measured 0.5 s before a report that is 1 s old, and
    # written after 1 s.
    settled = [row for row in rows if begin + 4 < row[0] < begin + seconds - 0.5]
    used = [one["gpu"] if one else None for _, one, _ in settled]
    report.check(
        "top shows its utilisation", bool(used) and min(u or 0 for u in used) > 900, used, gpu=True
    )
    power = [device["power"] for _, _, devices in settled for device in devices]
    busy = bool(power) and min(watts or 0 for watts in power) > 300_000
    report.check("top --devices shows its power (mW)", busy, power, gpu=True)


async def shares(report: Report, folder: Path) -> None:
    """Two kernels on one GPU, and one that uses more memory than its share."""
    async with running(folder, report) as (_, client):
        with report.caught("two kernels share the GPU"):
            for name in ("first", "second"):
                await client.sessions.create(spec(name, *holder("30%"), shares=0.4))

            begun = [time_of(await line_of(client, name, "holds")) for name in ("first", "second")]
            views = [
                await until(f"{name} runs", lambda n=name: runs(client, n))
                for name in ("first", "second")
            ]
            devices = [view.kernels[0].devices[0] for view in views]
            report.fact("their devices", [d.model_dump() for d in devices])
            same = devices[0].device_id == devices[1].device_id
            report.check("both run on one device", same, begun)
            held = [await memory_of(client, name, GIB) for name in ("first", "second")]
            report.check("top tells their memory apart", all(held), held, gpu=True)

        with report.caught("a kernel exceeds its share"):
            await client.sessions.create(spec("greedy", *holder("30%"), shares=0.2))
            try:
                words = await line_of(client, "greedy", "holds", 15)
                outcome = f"it holds {words[1]} bytes with a share of 0.2: nothing is enforced"
            except AssertionError as error:
                outcome = str(error)

            report.fact("a kernel with a share of 0.2 takes 30 %", outcome)
            view = await client.sessions.get("greedy")
            report.fact("it is", f"{view.status} {view.reason} {view.detail}")
            report.fact("top shows", await memory_of(client, "greedy", GIB))
            agent = await client.agents.get("node-1")
            report.fact("the device is", [o.model_dump() for o in agent.offers if o.device_id])

        with report.caught("another one finds no memory"):
            await stop(client, "second")
            await client.sessions.create(spec("victim", *holder("39%"), shares=0.4))
            await until("it is over or holds", lambda: settled(client, "victim"), 25)
            view = await client.sessions.get("victim")
            kernel = view.kernels[-1] if view.kernels else None
            report.fact(
                "a kernel with a share of 0.4 asks 39 % while 60 % are held by shares of 0.6",
                f"{view.status} {view.result} {view.reason} {view.detail}; {kernel and kernel.log_tail}",
            )
            why = await client.sessions.why("victim")
            report.fact("why says", why.model_dump(mode="json"))

        await stop(client, "first", "greedy", "victim")
        with report.caught("two kernels compute on one GPU"):
            await compute_together(report, folder, client)


async def compute_together(report: Report, folder: Path, client: Client) -> None:
    """One kernel alone, then two at once, without MPS: what each gets, and what is known about
    each."""
    seconds = "2" if REHEARSAL else "3"
    await client.sessions.create(
        spec("alone", torch_python(), LOAD, seconds, "4096", "1", shares=0.5)
    )
    await ended(client, "alone", 40)
    report.fact("alone printed", await log_of(client, "alone"))
    names = ("left", "right")
    seconds = "2" if REHEARSAL else "9"
    for name in names:
        await client.sessions.create(
            spec(name, torch_python(), LOAD, seconds, "4096", "1", shares=0.5)
        )

    begins = max([time_of(await line_of(client, name, "loads", 60)) for name in names])
    rows = []
    samples = []
    since = 0
    while (await client.sessions.get("left")).status not in ENDED:
        top = {
            line.name: (line.latest.gpu, line.latest.gpu_memory)
            for line in await client.sessions.top()
        }
        rows.append((round(time.time() - begins, 2), top))
        found = process_samples(since)
        since = max([since, *(sample[1] for sample in found)])
        samples.append((round(time.time() - begins, 2), found))
        await asyncio.sleep(0.3)

    report.fact("top while both compute (utilisation, memory)", rows)
    report.fact("NVML's samples since the ones before (pid, microseconds, SM %)", samples)
    known = [top for _, top in rows if all((top.get(name) or (0,))[0] for name in names)]
    report.check("top tells their utilisation apart", len(known) >= 6, len(known), gpu=True)
    sums = [sum(top[name][0] for name in names) for top in known]
    report.fact("their sums", sums)
    for name in names:
        await ended(client, name)
        report.fact(f"{name} printed", await log_of(client, name))


async def runs(client: Client, name: str) -> Any:
    view = await client.sessions.get(name)
    return view if view.status == "RUNNING" else None


async def settled(client: Client, name: str) -> bool:
    return (await client.sessions.get(name)).status in ENDED or "holds" in await log_of(
        client, name
    )


async def outsider(folder: Path) -> subprocess.Popen[bytes]:
    """A program outside Moorage that holds 60 % of the memory."""
    log = folder / "outsider.txt"
    env = os.environ | ENV | ({"CUDA_VISIBLE_DEVICES": "GPU-pretended"} if REHEARSAL else {})
    with log.open("wb") as output:
        process = subprocess.Popen(holder("60%"), stdout=output, stderr=output, env=env)

    async def holds() -> bool:
        return "holds" in log.read_text()

    await until("the program outside holds its memory", holds, 30)
    return process


async def next_one(
    report: Report, client: Client, name: str, freed: Callable[[], float | None], *, since: float
) -> None:
    """The next session has started, but only once the memory was free."""
    words = await line_of(client, name, "free", 75)
    starts = time_of(await line_of(client, name, "starts"))
    at = freed()
    report.fact(
        f"{name}: seconds from the kill to free memory",
        None if at is None else round(at - since, 3),
    )
    report.fact(f"{name}: seconds from the kill to its start", round(starts - since, 3))
    report.check(
        f"{name} starts when the memory is free",
        at is not None and starts >= at,
        (starts, at),
        gpu=True,
    )
    free = int(words[1])
    total = int(words[3])
    report.check(f"{name} finds the memory free", free > 0.95 * total, words)
    report.fact(f"{name}: history", await stages(client, name))


async def release(report: Report, folder: Path) -> None:
    """When the next program starts after one that holds 60 % of the memory was killed with kill -9
    (N9)."""
    async with running(folder, report) as (platform, client):
        with Watch(0.005) as watch:
            with report.caught("after kill -9 the next session waits for the memory"):
                await client.sessions.create(spec("held", *holder("60%")))
                await line_of(client, "held", "holds")
                await client.sessions.create(spec("next", *holder("60%")))
                await asyncio.sleep(1)
                waiting = await client.sessions.get("next")
                why = await client.sessions.why("next")
                report.check("the next one waits", waiting.status == "PENDING", waiting.status)
                report.fact("why says", why.model_dump(mode="json"))
                view = await client.sessions.get("held")
                pid = program_of(platform, view.kernels[0].id)
                killed = time.time()
                os.kill(pid, signal.SIGKILL)
                await next_one(
                    report, client, "next", lambda: watch.first_below(FREE, killed), since=killed
                )
                view = await client.sessions.get("held")
                kernel = view.kernels[-1]
                report.fact(
                    "the killed one",
                    f"{view.status} {view.reason} {view.detail} exit {kernel.exit_code}",
                )
                await stop(client, "next")

            with report.caught("memory of a program outside delays a session"):
                foreign = await outsider(folder)
                await client.sessions.create(spec("patient", *holder("60%")))
                details: list[str] = []
                ends = time.monotonic() + 5
                while time.monotonic() < ends:
                    view = await client.sessions.get("patient")
                    seen = [
                        f"{view.status} {view.detail}",
                        *(f"{k.status} {k.detail}" for k in view.kernels),
                    ]
                    details += [text for text in seen if text not in details]
                    await asyncio.sleep(0.1)

                report.fact("while it waits, the session shows", details)
                named = any("still in use" in text and str(foreign.pid) in text for text in details)
                report.check(
                    "its detail names the program that holds the memory",
                    named,
                    foreign.pid,
                    gpu=True,
                )
                log = await log_of(client, "patient") if view.kernels else ""
                report.check("it does not start", "starts" not in log, log, gpu=True)
                killed = time.time()
                foreign.kill()
                foreign.wait()
                await next_one(
                    report, client, "patient", lambda: watch.first_below(FREE, killed), since=killed
                )
                await stop(client, "patient")

            with report.caught("five in a row"):
                gaps = []
                for number in range(5):
                    name = f"row-{number}"
                    await client.sessions.create(spec(name, *holder("60%", "--seconds", "0.2")))
                for number in range(5):
                    words = await line_of(client, f"row-{number}", "free", 30)
                    gaps.append((time_of(words), int(words[1]) / int(words[3])))

                report.fact("five sessions in a row: starts and free shares", gaps)
                report.check("each finds the memory free", all(share > 0.95 for _, share in gaps))

        watch.save(folder / "watch.txt")


async def child(report: Report, folder: Path) -> None:
    """A program that ends and leaves a child in its own session, which holds half of the memory."""
    async with running(folder, report) as (platform, client):
        with Watch(0.02) as watch:
            await client.sessions.create(spec("parent", *holder("50%", "--leave-child")))
            left = time_of(await line_of(client, "parent", "leaves"))
            before = used_memory()
            view = await ended(client, "parent")
            over = time.time()
            report.fact("its session", f"{view.status} {view.result} {view.reason} {view.detail}")
            children = kernels_below(platform.home)
            report.check("no child is left when the session has ended", not children, children)
            report.fact("memory in use before and after", [before, used_memory()])
            report.fact(
                "seconds from the end of the program to that of the session", round(over - left, 2)
            )
            await client.sessions.create(spec("after", *holder("60%")))
            await next_one(
                report, client, "after", lambda: watch.first_below(FREE, left), since=left
            )
            view = await client.sessions.get("after")
            report.fact("the next one", f"{view.status} {view.reason} {view.detail}")

        watch.save(folder / "watch.txt")
        await stop(client, "after")


async def adoption(report: Report, folder: Path) -> None:
    """The agent is killed with kill -9: its kernels keep running, and the next agent adopts them
    with their GPU."""
    async with running(folder, report) as (platform, client):
        await client.sessions.create(spec("kept", *holder("60%")))
        await line_of(client, "kept", "holds")
        view = await client.sessions.get("kept")
        kernel = view.kernels[0].id
        pid = program_of(platform, kernel)
        await memory_of(client, "kept", GIB)
        held = used_memory()
        killed = time.time()
        platform.kill("agent")
        await client.sessions.create(spec("later", *holder("60%")))
        await asyncio.sleep(2)
        report.check(
            "its program runs without the agent",
            kernels_below(platform.home).get(pid) == kernel,
            pid,
        )
        report.check(
            "its memory is still held", (used_memory() or 0) > 0.9 * (held or 0) > 0, held, gpu=True
        )
        platform.start("agent")
        started = time.time()
        await until("the agent has reconnected", lambda: seen_after(client, started))
        report.fact("seconds from its start to its first report", round(time.time() - started, 2))
        await asyncio.sleep(3)
        view = await client.sessions.get("kept")
        adopted = (view.status, view.kernels[0].id, view.attempt) == ("RUNNING", kernel, 1)
        report.check(
            "the next agent adopts it", adopted, f"{view.status} {view.reason} {view.detail}"
        )
        report.check("it is the same process", program_of(platform, kernel) == pid)
        shown = await memory_of(client, "kept", 2 * GIB)
        report.check("its usage is measured again", (shown or 0) > 2 * GIB, shown, gpu=True)
        agent = await client.agents.get("node-1")
        devices = [o.model_dump() for o in agent.offers if o.device_id]
        report.fact("devices", devices)
        report.check(
            "the device is healthy and in use", devices[0]["healthy"] and devices[0]["used"] == 1000
        )
        later = await client.sessions.get("later")
        report.check("another session still waits", later.status == "PENDING", later.status)

        with report.caught("a program that dies while there is no agent"), Watch(0.01) as watch:
            platform.kill("agent")
            died = time.time()
            os.kill(pid, signal.SIGKILL)
            await asyncio.sleep(1)
            platform.start("agent")
            await next_one(
                report, client, "later", lambda: watch.first_below(FREE, died), since=died
            )
            view = await client.sessions.get("kept")
            report.fact(
                "the one that died", f"{view.status} {view.result} {view.reason} {view.detail}"
            )

        report.fact("seconds in all", round(time.time() - killed, 1))
        await stop(client, "later", "kept")


async def seen_after(client: Client, moment: float) -> bool:
    agent = await client.agents.get("node-1")
    return agent.status == "ALIVE" and agent.connected_since.timestamp() > moment


async def fault(report: Report, folder: Path) -> None:
    """A program that reads memory it does not own: the driver reports an application XID, which is
    no fault of the device."""
    if REHEARSAL:
        raise NotRun("a rehearsal has no driver")

    n = nvml()
    events = n.nvmlEventSetCreate()
    n.nvmlDeviceRegisterEvents(
        n.nvmlDeviceGetHandleByIndex(0), n.nvmlEventTypeXidCriticalError, events
    )

    async with running(folder, report) as (_, client):
        await client.sessions.create(spec("wild", *holder(str(GIB), "--fault")))
        view = await ended(client, "wild", 40)
        report.fact("its log", await log_of(client, "wild"))
        report.fact("its session", f"{view.status} {view.result} {view.reason} {view.detail}")
        report.check("its session fails", view.result == "FAILED", view.result)
        found = []
        with contextlib.suppress(n.NVMLError):
            while True:
                event = n.nvmlEventSetWait_v2(events, 1000)
                found.append((event.eventType, event.eventData))

        report.fact("events of the driver (type, XID)", found)
        report.check("the driver tells an XID", bool(found), found)
        await asyncio.sleep(6)  # the agent looks every 5 s
        agent = await client.agents.get("node-1")
        devices = [offer for offer in agent.offers if offer.device_id]
        reasons = [(offer.healthy, offer.unhealthy_reason) for offer in devices]
        report.check("the device is not fenced", all(offer.healthy for offer in devices), reasons)
        await client.sessions.create(spec("after", *holder("60%")))
        await line_of(client, "after", "holds", 20)
        report.check("the next session has the GPU", True)
        await stop(client, "after")


async def sandbox(report: Report, folder: Path) -> None:
    """A member's session, which runs in a sandbox under its own uid."""
    async with running(folder, report) as (platform, client):
        agent = await client.agents.get("node-1")
        if "isolated-process" not in agent.runtimes:
            log = [line for line in platform.output("agent").splitlines() if "refused" in line]
            raise NotRun(f"the agent cannot make a sandbox: {log}")

        key = await client.keys.create(KeySpec.model_validate({"name": "member", "role": "member"}))
        # Our files are hidden from it, so the program is passed in the command.
        program = Path(HOLDER).read_text()
        python = next(
            p for p in ("/usr/bin/python3", torch_python(), sys.executable) if os.path.exists(p)
        )
        async with Client(platform.url, key.secret) as member:
            session = spec("caged", python, "-c", program, str(2 * GIB))
            await member.sessions.create(session)
            with report.caught("it holds memory of the GPU"):
                await line_of(member, "caged", "holds", 20)

            log = await log_of(member, "caged")
            view = await member.sessions.get("caged")
            report.fact("its log", log)
            report.fact("its state", f"{view.status} {view.reason} {view.detail}")
            report.check("it runs isolated", view.isolated)
            report.check("it sees its GPU alone", "sees 1 " in log, log)
            shown = await memory_of(client, "caged", GIB)
            report.check("top shows its memory", (shown or 0) >= 2 * GIB, shown, gpu=True)
            if not REHEARSAL:
                report.fact("nvidia-smi: processes", smi("pid,used_memory", "compute-apps"))

            await stop(member, "caged")
            if view.isolated:
                await next_after_sandbox(report, client)


async def next_after_sandbox(report: Report, client: Client) -> None:
    await client.sessions.create(spec("after", *holder("60%")))
    words = await line_of(client, "after", "free", 40)
    report.check("the next one finds the memory free", int(words[1]) > 0.95 * int(words[3]), words)
    await stop(client, "after")


PARTS = {
    "sessions": sessions,
    "shares": shares,
    "release": release,
    "child": child,
    "adoption": adoption,
    "sandbox": sandbox,
    "fault": fault,
}
