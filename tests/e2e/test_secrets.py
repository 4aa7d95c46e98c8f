"""Stored secrets, from the command line to a program, and the rotation of their key while a manager
runs."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

from .harness import Platform

# `describe` shows the tail of a log, so the program prints the value reversed.
REVERSED = "2retnuh"
PRINT = ("--", sys.executable, "-c", "import os; print(os.environ['HF_TOKEN'][::-1])")


def set_secret(platform: Platform, name: str, value: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "moorage", "secrets", "set", name]
    return subprocess.run(
        command,
        env=platform.env,
        input=value,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


async def test_a_secret_reaches_the_program_and_no_answer(one_node: Platform) -> None:
    await asyncio.to_thread(use_secrets, one_node)


def use_secrets(platform: Platform) -> None:
    refused = platform.run("run", "--secret", "HF_TOKEN=hf", *PRINT)
    assert refused.returncode != 0
    assert "moorage secrets set hf" in refused.stderr

    stored = set_secret(platform, "hf", "hunter2\n")
    assert (stored.returncode, stored.stdout.strip()) == (0, "hf"), stored.stderr
    ran = platform.run("run", "--name", "first", "--secret", "HF_TOKEN=hf", *PRINT)
    assert (ran.returncode, ran.stdout.splitlines()[-1]) == (0, REVERSED), ran.stderr
    ran = platform.run("run", "--name", "plain", "--env", "HF_TOKEN=hunter2", *PRINT)
    assert ran.stdout.splitlines()[-1] == REVERSED

    for command in (
        ("describe", "first"),
        ("describe", "plain"),
        ("secrets", "list"),
        ("ps", "--all"),
    ):
        for output in ("table", "json"):
            shown = platform.run(*command, "-o", output)
            assert shown.returncode == 0, shown.stderr
            assert "hunter2" not in shown.stdout

    key_file = platform.home / "secrets-keys"
    before = key_file.read_text()
    rotated = platform.run("db", "rotate-secrets-key")
    assert (rotated.returncode, rotated.stdout.startswith("1 secrets")) == (0, True), rotated.stderr
    assert len(key_file.read_text().split()) == 1
    assert key_file.read_text() != before
    ran = platform.run("run", "--secret", "HF_TOKEN=hf", *PRINT)
    assert ran.stdout.splitlines()[-1] == REVERSED

    backup = platform.home / "backup.dump"
    saved = platform.run("db", "backup", str(backup), "-o", "json")
    assert "secrets-keys" in {entry["name"] for entry in json.loads(saved.stdout)["left_out"]}
    assert b"hunter2" not in backup.read_bytes()

    deleted = platform.run("secrets", "delete", "hf")
    assert deleted.stdout.strip() == "hf"
    assert json.loads(platform.run("secrets", "-o", "json").stdout) == {"secrets": []}
