"""``moorage bench``: table, JSON, plot, refused arguments."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fake_manager import FakeManager
from invoke import Run


def test_table_and_plot(manager: FakeManager, moorage: Run, tmp_path: Path) -> None:
    plot = tmp_path / "tiny.svg"
    result = moorage("bench", "tiny", "--num-prompts", "4", "--input-len", "9", "--plot", str(plot))
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["model", "tiny"]
    assert "4 completed, 0 failed" in lines[1]
    assert "the server reports no tokens" in lines[3]
    assert [line.partition("  ")[0] for line in lines if "token" in line][-3:] == [
        "time to first token",
        "time per output token",
        "inter-token latency",
    ]
    assert plot.read_text().startswith("<?xml")
    asked = manager.openai.requests
    assert len(asked) == 5, "one to warm up"
    assert len(asked[0]["messages"][0]["content"].split()) == 9


def test_json_has_the_names_of_vllm(manager: FakeManager, moorage: Run, tmp_path: Path) -> None:
    dataset = tmp_path / "prompts.jsonl"
    dataset.write_text('{"prompt": "Where?", "max_tokens": 3}\n')
    rate = ("--request-rate", "200", "--ignore-eos", "--num-warmups", "0")
    result = moorage(
        "bench", "tiny", "--num-prompts", "3", "--dataset", str(dataset), *rate, "-o", "json"
    )
    shown = json.loads(result.stdout)
    assert (
        shown["completed"],
        shown["load"]["request_rate"],
        shown["load"]["max_concurrency"],
    ) == (
        3,
        200,
        None,
    )
    names = {
        f"{kind}_{name}_ms"
        for kind in ("mean", "p50", "p99")
        for name in ("ttft", "tpot", "itl", "e2el")
    }
    assert names <= shown.keys()
    assert {
        (ask["messages"][0]["content"], ask["max_tokens"], ask["ignore_eos"])
        for ask in manager.openai.requests
    } == {("Where?", 3, True)}


def test_model_that_fails_is_reported_at_once(manager: FakeManager, moorage: Run) -> None:
    manager.openai.chunks = [{"error": {"message": "engine died", "type": "server_error"}}]
    result = moorage("bench", "tiny")
    assert (result.exit_code, len(manager.openai.requests)) == (2, 1)
    assert "failed: in mid-stream: server_error: engine died" in result.stderr
    result = moorage("bench", "tiny", "--num-warmups", "0", "--num-prompts", "2")
    assert (result.exit_code, "2 × in mid-stream: server_error: engine died" in result.stdout) == (
        1,
        True,
    )


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("--api audio", "use one of: chat, completions"),
        ("--plot x.gif", ".svg or .png"),
        ("--dataset /nowhere", "cannot read --dataset"),
        ("--for 1", "is not a duration"),
    ],
)
def test_refused_arguments(moorage: Run, args: str, message: str) -> None:
    result = moorage("bench", "tiny", *args.split())
    assert result.exit_code != 0
    assert message in result.stderr
