"""Task lists through the real commands: each task in the record, resumed after any loss, and none
runs twice."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from moorage.common.model.reasons import Reason
from moorage.common.model.status import Result, Status

from .harness import Platform, kernels_below, until

SMALL = ("--resources", "cpu=0.5", "--resources", "mem=64MiB")


def run_list(platform: Platform, lines: list[str], *arguments: str) -> Any:
    file = platform.home / "list.txt"
    file.write_text("\n".join(lines) + "\n")
    return platform.run("run", "--tasks", str(file), *SMALL, *arguments)


async def listed(platform: Platform, session: str, *arguments: str) -> dict[str, Any]:
    found = await asyncio.to_thread(
        platform.run, "tasks", "list", session, "-o", "json", *arguments
    )
    assert found.returncode == 0, found.stderr
    return dict(json.loads(found.stdout))


@pytest.mark.timeout(120)
async def test_each_task_is_in_the_record(one_node: Platform) -> None:
    platform = one_node
    result = await asyncio.to_thread(
        run_list,
        platform,
        ["a b", "", "c", "d"],
        *("--name", "listed", "--workers", "2", "--", "/bin/sh", "-c"),
        'echo "got {} as {#} $MOORAGE_TASK"; [ "{}" != c ]',
    )
    assert result.returncode == 1, result.stderr
    assert "[1] got a b as 1 1" in result.stdout
    assert "moorage: 1 of 3 tasks failed" in result.stdout

    found = await listed(platform, "listed")
    assert found["summary"] == {
        **{"total": 3, "waiting": 0, "given": 0, "succeeded": 2, "failed": 1, "lost": 0}
    }
    states = [(t["number"], t["state"], t["exit_code"], t["line"]) for t in found["tasks"]]
    assert states == [
        (1, "SUCCEEDED", 0, "a b"),
        (2, "FAILED", 1, "c"),
        (3, "SUCCEEDED", 0, "d"),
    ]
    logs = await asyncio.to_thread(platform.run, "tasks", "logs", "listed", "2")
    assert logs.stdout == "got c as 2 2\n"
    described = await asyncio.to_thread(platform.run, "describe", "listed")
    assert "1 of 3 tasks failed" in described.stdout
    assert "FAILED" in described.stdout

    retried = await asyncio.to_thread(
        platform.run, "tasks", "retry", "listed", "--name", "listed-again"
    )
    assert retried.stdout == "listed-again\n", retried.stderr
    await until("it ends", lambda: counts(platform, "listed-again", failed=1))
    assert [task["line"] for task in (await listed(platform, "listed-again"))["tasks"]] == ["c"]


async def counts(platform: Platform, session: str, **expected: int) -> bool:
    summary = (await listed(platform, session))["summary"]
    return all(summary[name] == count for name, count in expected.items())


@pytest.mark.timeout(180)
async def test_after_any_loss_no_task_runs_twice_and_none_is_left_out(platform: Platform) -> None:
    """The runner, the agent and the manager are killed while tasks run. What was running in the
    runner is LOST, and everything else succeeds."""
    platform.start("manager")
    await platform.wait_until_ready()
    platform.start("agent")
    ran = platform.home / "ran"
    program = f"echo {{}} >> {ran}; sleep 0.1"
    total = 150
    result = await asyncio.to_thread(
        run_list,
        platform,
        [f"task-{n}" for n in range(total)],
        *("--name", "lossy", "--workers", "4", "--no-wait", "--", "/bin/sh", "-c", program),
    )
    assert result.returncode == 0, result.stderr

    async def reached(count: int) -> bool:
        return ran.exists() and len(ran.read_text().splitlines()) >= count

    await until("some have run", lambda: reached(20))
    platform.kill("manager")
    await until("others run without a manager", lambda: reached(24))
    platform.start("manager")
    await until("more have run", lambda: reached(45))
    platform.kill("agent")
    platform.start("agent")
    await until("more have run", lambda: reached(80))
    [runner] = [
        pid for pid in kernels_below(platform.home) if "MOORAGE_TASK" not in environment(pid)
    ]
    os.kill(runner, signal.SIGKILL)

    async def ended() -> bool:
        async with platform.client() as client:
            return (await client.sessions.get("lossy")).status is Status.TERMINATED

    await until("the session ends", ended, 90)
    times = Counter(ran.read_text().splitlines())
    assert set(times.values()) == {1}, "a task ran twice"
    found = await listed(platform, "lossy")
    states = {task["line"]: task["state"] for task in found["tasks"]}
    assert len(states) == len(found["tasks"]) == total
    assert Counter(states.values()).keys() == {"SUCCEEDED", "LOST"}
    assert {line for line, state in states.items() if state == "SUCCEEDED"} <= times.keys()
    assert 1 <= found["summary"]["lost"] <= 4
    async with platform.client() as client:
        view = await client.sessions.get("lossy")
    assert (view.result, view.reason) == (Result.FAILED, Reason.TASKS_FAILED)
    assert f"{found['summary']['lost']} of {total} tasks are LOST" in view.detail


def environment(pid: int) -> str:
    return Path(f"/proc/{pid}/environ").read_text()


@pytest.mark.timeout(120)
async def test_retries_run_failed_and_lost_tasks_again(one_node: Platform) -> None:
    platform = one_node
    seen = platform.home / "seen"
    seen.mkdir()
    program = f"[ -e {seen}/{{#}} ] || {{ touch {seen}/{{#}}; exit 7; }}"
    result = await asyncio.to_thread(
        run_list,
        platform,
        [f"x{n}" for n in range(5)],
        *("--name", "stubborn", "--task-retries", "1", "--", "/bin/sh", "-c", program),
    )
    assert result.returncode == 0, result.stdout
    found = await listed(platform, "stubborn")
    attempts = [(t["number"], t["attempt"], t["state"]) for t in found["tasks"]]
    assert attempts == [
        (n, attempt, state)
        for n in range(1, 6)
        for attempt, state in ((1, "FAILED"), (2, "SUCCEEDED"))
    ]


@pytest.mark.timeout(120)
async def test_a_task_over_its_time_fails_and_a_stopped_one_is_lost(one_node: Platform) -> None:
    platform = one_node
    result = await asyncio.to_thread(
        run_list,
        platform,
        ["true", "trap '' TERM; sleep 60; true"],
        *("--name", "slow", "--task-timeout", "1s"),
    )
    assert result.returncode == 1, result.stderr
    found = (await listed(platform, "slow"))["tasks"]
    assert [(task["state"], task["detail"]) for task in found] == [
        ("SUCCEEDED", ""),
        ("FAILED", "its time limit was reached"),
    ]

    await asyncio.to_thread(
        run_list, platform, ["sleep 60", "true"], "--name", "stopped", "--workers", "1", "-d"
    )
    await until("the first runs", lambda: counts(platform, "stopped", given=1))
    await until("its process runs", lambda: sleeping(platform.home))
    stopped = await asyncio.to_thread(platform.run, "stop", "stopped")
    assert stopped.returncode == 0, stopped.stderr
    await until("it is LOST", lambda: counts(platform, "stopped", lost=1, waiting=1, given=0))
    [task] = (await listed(platform, "stopped"))["tasks"]
    assert (task["state"], task["detail"]) == ("LOST", "it was stopped with its session")


async def sleeping(home: Path) -> bool:
    return any("MOORAGE_TASK=" in environment(pid) for pid in kernels_below(home))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "the list has no tasks"),
        ("\n \n", "the list has no tasks"),
        ("a\nb\0c\n", "line 2 contains a NUL character"),
        ("a\n" * 100_001, "the list has 100,001 tasks; at most 100,000 are allowed"),
        ("a\n" + "é" * 20_000, "task 2 has 40,000 bytes; at most 32,768 are allowed"),
        ("x" * 17_000_000, "has more than 16,777,216 bytes"),
    ],
)
async def test_bad_lists_are_refused(one_node: Platform, text: str, problem: str) -> None:
    file = one_node.home / "bad.txt"
    file.write_text(text)
    refused = await asyncio.to_thread(one_node.run, "run", "--tasks", str(file), "-d")
    assert refused.returncode == 2
    assert problem in " ".join(refused.stderr.split())


@pytest.mark.timeout(120)
async def test_example(one_node: Platform) -> None:
    script = Path(__file__).parents[2] / "examples" / "tasks.sh"
    moorage = one_node.home / "bin" / "moorage"
    moorage.parent.mkdir()
    moorage.write_text(f'#!/bin/sh\nexec {sys.executable} -m moorage "$@"\n')
    moorage.chmod(0o755)
    env = one_node.env | {"PATH": f"{moorage.parent}:{os.environ['PATH']}"}
    ran = await asyncio.to_thread(
        subprocess.run, ["sh", str(script)], env=env, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert "[8] number 8\n" in ran.stdout
    assert "moorage: 2 of 20 tasks failed\n" in ran.stdout
    assert "\nnumber 14\n" in ran.stdout
    assert "20 tasks: 18 succeeded, 2 failed" in ran.stderr
    await until("it ends", lambda: counts(one_node, "numbers-again", failed=2))
