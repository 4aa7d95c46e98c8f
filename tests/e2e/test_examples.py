"""The programs in ``examples/``, run as the documents show, on one node."""

from __future__ import annotations

import ast
import asyncio
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from .harness import EXAMPLES, Platform, example

SDK_PAGE = EXAMPLES.parent / "docs" / "sdk.md"


async def test_the_page_on_the_python_client(
    one_node: Platform, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its blocks form one program, as ``python -m asyncio`` would run it; comments show its
    output."""
    monkeypatch.setenv("MOORAGE_HOME", str(one_node.home))
    monkeypatch.setenv("MOORAGE_URL", one_node.url)
    monkeypatch.setenv("MOORAGE_API_KEY", one_node.key)
    blocks = re.findall(r"^```python\n(.*?)^```$", SDK_PAGE.read_text(), re.DOTALL | re.MULTILINE)
    names: dict[str, object] = {}
    for block in blocks:
        code = compile(block, str(SDK_PAGE), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        running = eval(code, names)
        if running is not None:
            await running

        assert capsys.readouterr().out.splitlines() == re.findall(
            r"print\(.*\)  # (.*)$", block, re.MULTILINE
        )

    assert len(blocks) == 11


async def test_templates(one_node: Platform) -> None:
    await asyncio.to_thread(use_templates, one_node)


def use_templates(platform: Platform) -> None:
    shown = example(platform, "templates.py")
    assert "stored train@1" in shown
    assert "from train@1 with 2 kernels" in shown
    assert "trained 5 epochs on main1,sub1" in shown

    again = platform.run("templates", "set", "train", "-f", str(EXAMPLES / "train.toml"))
    assert (again.returncode, again.stdout.strip()) == (0, "train@1"), again.stderr
    started = platform.run(
        "start", "--template", "train@1", "--set", "workers=0", "--name", "alone"
    )
    assert (started.returncode, started.stdout.strip()) == (0, "alone"), started.stderr
    planned = platform.run("plan", "--template", "train", "--set", "workers=0", "-o", "name")
    assert (planned.returncode, planned.stdout.strip()) == (0, "node-1"), planned.stderr
    ran = platform.run("run", "--template", "train", "--set", "workers=0", "--set", "epochs=2")
    assert (ran.returncode, "trained 2 epochs" in ran.stdout) == (0, True), ran.stderr
    described = platform.run("describe", "alone")
    assert "train@1" in described.stdout

    for wrong in ("epochs=x", "epochs=0", "speed=1"):
        refused = platform.run("start", "--template", "train", "--set", wrong)
        assert (refused.returncode, wrong.partition("=")[0] in refused.stderr) == (2, True), (
            refused.stderr
        )

    assert platform.run("start", "--template", "none").returncode == 3
    assert "train" in platform.run("templates").stdout
    assert platform.run("templates", "versions", "train").returncode == 0
    assert '"epochs"' in platform.run("templates", "describe", "train").stdout
    assert platform.run("templates", "delete", "train").stdout.strip() == "train@1"


async def test_arrays(one_node: Platform) -> None:
    await asyncio.to_thread(use_arrays, one_node)


def use_arrays(platform: Platform) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{platform.env.get('PATH', os.defpath)}"
    ran = subprocess.run(
        ["sh", str(EXAMPLES / "array.sh")],
        env=platform.env | {"PATH": path},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    shown = ran.stdout
    assert "exit code 1\n" in shown
    assert (
        "2 of 7 elements of sweep did not succeed: 2 (exit code 1), 5 (exit code 1)" in ran.stderr
    )
    assert re.search(r"sweep\[0-6%2\] +2 failed, 5 succeeded", shown)
    assert "\npart 3 of 7\n" in shown, "logs sweep[3]"
    assert "\npart 4 of 7\n" in shown, "logs sweep_4"
    assert re.search(r"sweep\[0\] +\| part 0 of 7\n", shown)
    assert re.search(r"sweep\[5\] +failed .*1 +exit-nonzero", shown), f"--elements: {shown}"
    assert re.search(r"sweep\[0-6\] +7 succeeded", shown), "the failed ones ran again"
    assert re.search(r"use\[1-8\] +3 succeeded, 1 skipped", shown), "element by element"
    assert re.search(r"alarm +succeeded", shown), "any failure"
    assert re.search(r"long\[0-9\] +10 stopped", shown)

    for array, says in {
        "": "0-99%10",
        "5-1": "no element from 5 to 1",
        "0-999999": "1000000 elements; 1 to 10000 are allowed",
        "1,1": "the element 1 twice",
        "-1": "0-99%10",
    }.items():
        refused = platform.run("run", f"--array={array}", "--", "true")
        assert refused.returncode == 2, refused.stderr
        assert "--array: " in refused.stderr
        assert says in refused.stderr

    missing = platform.run("logs", "sweep[7]")
    assert (missing.returncode, "has no element 7" in missing.stderr) == (3, True), missing.stderr
    rows = platform.run("ps", "--all", "-o", "json", "--search", "sweep")
    listed = json.loads(rows.stdout)
    assert [one["arrays"][0]["counts"] for one in listed["arrays"]] == [{"succeeded": 7}]
    assert listed["sessions"] == []
    every = platform.run("ps", "--all", "-o", "name", "--elements", "--search", "sweep")
    assert len(every.stdout.split()) == 9, "seven elements, and two ran again"


async def test_code(one_node: Platform) -> None:
    await asyncio.to_thread(use_code, one_node)


def use_code(platform: Platform) -> None:
    small = ("--resources", "cpu=0.1", "--resources", "mem=16MiB")
    kernelspecs = f"JUPYTER_PATH={sys.prefix}/share/jupyter"
    started = platform.run("start", "--name", "code", "--env", kernelspecs, *small)
    assert started.returncode == 0, started.stderr
    shown = example(platform, "code.py", "code").splitlines()
    assert shown == [
        "area 12.566370614359172",
        "html <b>bold</b>",
        "hello Ada",
        "failed with 1 ZeroDivisionError",
        "endless code: exec-timeout",
        "without asyncio 2",
    ]
    ran = platform.run(
        "exec", "code", "--code", "import sys; print(radius); sys.stderr.write('oh'); 7"
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "2\n7\n", "oh")
    failed = platform.run(
        "exec", "code", "--code", "-", stdin="name = input('? ')\nraise ValueError(radius)"
    )
    assert (failed.returncode, "EOFError" in failed.stderr) == (1, True)
    assert "\x1b" not in failed.stderr
    asks = "import getpass; print(input(), repr(input()), getpass.getpass())"
    ended = platform.run("exec", "code", "--code", asks, stdin="one\n\nthree")
    assert (ended.returncode, ended.stdout) == (0, "one '' three\n")
    ended = platform.run("exec", "code", "--code", asks, stdin="one\n\n")
    assert (ended.returncode, "EOFError" in ended.stderr) == (1, True)
    plots = platform.home / "plots"
    draws = "from IPython.display import Image, display; display(Image(data=b'\\x89PNG'))"
    drawn = platform.run("exec", "code", "--code", draws, "--save-images", str(plots))
    assert drawn.returncode == 0, drawn.stderr
    assert (plots / "image-1.png").read_bytes() == b"\x89PNG"
    typed = "def double(x):\n    return 2 * x\n\ndouble(radius)\n"
    assert (
        platform.run("exec", "code", "--repl", stdin=typed)
        .stdout.replace(">>> ", "")
        .endswith("4\n")
    )
    for wrong in (("--code", "1", "--", "true"), (), ("--language", "bash", "--", "true")):
        assert platform.run("exec", "code", *wrong).returncode == 2


async def test_reuse(one_node: Platform) -> None:
    await asyncio.to_thread(use_reuse, one_node)


def use_reuse(platform: Platform) -> None:
    ended = "TERMINATED SUCCESS prepared"
    assert example(platform, "reuse.py").splitlines() == [
        "runs: 1",
        *[ended] * 3,
        "at once: TERMINATED SUCCESS",
    ]
    command = ("run", "--reuse", "both", "--resources", "cpu=0.1", "--", "echo", "prepared")
    ran = [platform.run(*command) for _ in range(2)]
    assert [(one.returncode, one.stdout) for one in ran] == [(0, "prepared\n")] * 2
    refused = platform.run("run", "--reuse", "sometimes", "--", "true")
    assert (refused.returncode, "success" in refused.stderr) == (2, True), refused.stderr


async def test_cron_jobs(one_node: Platform) -> None:
    shown = await asyncio.to_thread(example, one_node, "cron_jobs.py")
    assert shown.splitlines() == [
        "next: 3 times",
        "created: report True",
        "ran: succeeded the report",
        "suspended: None",
    ]


async def test_idle(one_node: Platform) -> None:
    async with one_node.client() as client:
        before = (await client.groups.get("default")).options
        shown = await asyncio.to_thread(example, one_node, "idle.py")
        await client.groups.update("default", before)
    assert shown.splitlines() == [
        "unused ended: idle-timeout criterion traffic",
        "used is RUNNING",
        "extended 1 of 3",
    ]


async def test_usage(one_node: Platform) -> None:
    shown = await asyncio.to_thread(example, one_node, "usage.py")
    assert shown.splitlines() == [
        "ran for about 3 seconds: True",
        "memory and cost follow: True True",
        "refused: 403 budget-exhausted",
    ]
    listed = one_node.run("usage", "--by", "session", "--csv").stdout.splitlines()
    assert listed[0].startswith("session_id,requests,")


async def test_budgets(one_node: Platform) -> None:
    shown = await asyncio.to_thread(example, one_node, "budgets.py")
    assert shown.splitlines() == [
        "served: ready, 1 of 1 ready, no reason",
        "exhausted: not_loaded, 0 of 1 ready, budget-exhausted",
        "raised: ready, 1 of 1 ready, no reason",
    ]


async def test_changes(one_node: Platform) -> None:
    await asyncio.to_thread(use_changes, one_node)


def use_changes(platform: Platform) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{platform.env.get('PATH', os.defpath)}"
    ran = subprocess.run(
        ["sh", str(EXAMPLES / "changes.sh")],
        env=platform.env | {"PATH": path},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert "held by" in ran.stdout, f"why second: {ran.stdout}"
    assert "suspended by" in ran.stdout, f"ps: {ran.stdout}"
    assert re.search(r"group +default, priority 10, attempt 2", ran.stdout)


async def test_qos(one_node: Platform) -> None:
    user = (await asyncio.to_thread(one_node.run, "keys", "list", "-o", "json")).stdout
    shown = await asyncio.to_thread(example, one_node, "qos.py")
    owner = json.loads(user)["keys"][0]["user"]
    assert shown.splitlines() == [
        "first: priority 50, time limit 600 s",
        f"second: user {owner} in QoS debug: 1 concurrent sessions of 1",
        "long: 403 timeout_s = 3600 is above 600, the time limit of qos 'debug'",
    ]


async def test_pipelines(one_node: Platform) -> None:
    await asyncio.to_thread(use_pipelines, one_node)


def use_pipelines(platform: Platform) -> None:
    shown = example(platform, "pipelines.py").splitlines()
    parts = [f"part[{n}] succeeded" for n in range(4)]
    assert shown[:6] == ["train failed", "load succeeded", *parts]
    assert sorted(shown[6:]) == ["alarm skipped", "judge failed"]
    failed = platform.run("pipelines", "describe", "train").stdout
    assert "first failure: judge at " in failed
    assert "exit code" in failed
    assert "its log: moorage logs --tail 20 judge-" in failed
    logs = platform.run("pipelines", "logs", "train", "--step", "part")
    assert logs.returncode == 0, logs.stderr
    assert {line.partition(" | ")[0] for line in logs.stdout.splitlines()} <= {
        f"part[{n}]" for n in range(4)
    }
    assert platform.run("pipelines", "logs", "train", "--step", "none").returncode == 3
    submitted = platform.run("pipelines", "submit", "-f", str(EXAMPLES / "pipeline.yaml"))
    assert (submitted.returncode, submitted.stdout.strip()) == (0, "digits"), submitted.stderr
    assert platform.run("pipelines", "retry", "train").returncode == 0
    described = platform.run("pipelines", "describe", "train").stdout
    assert "└─ part[0-3]  4 succeeded" in described
    assert "run 2" in described
    listed = platform.run("pipelines").stdout
    assert "digits" in listed
    assert "train" in listed
    logs = platform.run("pipelines", "logs", "digits", "--follow")
    assert "split" in logs.stdout
    assert platform.run("pipelines", "stop", "digits").returncode == 0
    assert platform.run("pipelines", "describe", "none").returncode == 3
    files = str(EXAMPLES / "pipeline_files.yaml")
    planned = platform.run("plan", "-f", files)
    assert planned.returncode == 0, planned.stderr
    lines = [line.split() for line in planned.stdout.splitlines()]
    assert lines[0] == ["pipeline/sums", "would", "be", "submitted"]
    assert lines[2:] == [
        ["prepare", "-", "1-3", "now,", "on", "node-1"],
        ["add", "prepare", "1", "now,", "on", "node-1"],
        ["show", "add", "1", "now,", "on", "node-1"],
    ]
    large = Path(files).read_text().replace("cpu: 0.1", "cpu: 5000", 1)
    refused = platform.run("plan", "-f", "-", stdin=large)
    assert (refused.returncode, "step 'prepare'" in refused.stderr) == (1, True), refused
    assert [platform.run("apply", "-f", files).stdout for _ in range(2)] == [
        "pipeline/sums created\n",
        "pipeline/sums unchanged\n",
    ]
    submitted = platform.run(
        "pipelines", "submit", "-f", str(EXAMPLES / "pipeline_files.yaml"), "-o", "json"
    )
    show = json.loads(submitted.stdout)["steps"][-1]["session_id"]
    assert platform.run("logs", "-f", show).stdout == "6\n"


async def test_progress(one_node: Platform) -> None:
    shown = await asyncio.to_thread(example, one_node, "progress.py")
    assert shown.splitlines() == ["file: 40%, step 120 of 300 epoch 2", "bar: 50%, step 5 of 10 "]


async def test_reload(one_node: Platform) -> None:
    await asyncio.to_thread(use_reload, one_node)


def use_reload(platform: Platform) -> None:
    lines = example(platform, "reload.py").splitlines()
    assert lines[:3] == ["gateway main1 reloaded ", "gateway sub1 reloaded ", "web main1 reloaded "]
    assert [line.split()[:3] for line in lines[3:]] == [
        ["gateway", "main1", "failed"],
        ["gateway", "sub1", "failed"],
        ["web", "main1", "failed"],
    ]
    assert "POST /-/reload answered 422" in lines[-1]
    small = ("--resources", "cpu=0.1", "--resources", "mem=16MiB")
    program = ("sh", "-c", "trap 'echo again' HUP; echo started; while :; do sleep 0.1; done")
    for name, options in (
        ("daemon", ("--reload", "HUP")),
        ("deaf", ("--reload", "USR1")),
        ("fixed", ()),
    ):
        started = platform.run("start", "--name", name, *options, *small, "--", *program)
        assert started.returncode == 0, started.stderr

    wait_for_log(platform, "daemon", "started")
    done = platform.run("reload", "daemon")
    assert (done.returncode, done.stdout.strip()) == (0, "daemon"), done.stderr
    wait_for_log(platform, "daemon", "again")
    described = platform.run("describe", "daemon").stdout
    assert "SIGHUP" in described
    assert "reloaded" in described
    failed = platform.run("reload", "daemon", "deaf")
    assert (failed.returncode, failed.stdout.strip()) == (1, "daemon")
    assert "has no handler for SIGUSR1" in failed.stderr
    refused = platform.run("reload", "fixed")
    assert (refused.returncode, "--reload HUP" in refused.stderr) == (1, True), refused
    wrong = platform.run("start", "--reload", "TERM", *small, "--", *program)
    assert (wrong.returncode, "HUP" in wrong.stderr) == (2, True), wrong.stderr
    assert platform.run("stop", "daemon", "deaf", "fixed").returncode == 0


def wait_for_log(platform: Platform, session: str, line: str) -> None:
    ends_at = time.monotonic() + 30
    while line not in platform.run("logs", session).stdout:
        assert time.monotonic() < ends_at, platform.run("logs", session).stdout
