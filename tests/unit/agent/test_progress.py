"""Program progress: which lines are used, and how malicious files are handled."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.agent.kernel.progress import parse_lines, read_tail
from moorage.common.model.ids import KernelId
from moorage.common.model.resource_usage import KernelProgress

K = KernelId("k")


def lines(*values: object) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


@pytest.mark.parametrize(
    ("tail", "expected"),
    [
        (b"", None),
        (
            lines({"fraction": 0.4, "step": 120, "of": 300, "message": "epoch 2"}),
            (0.4, 120, 300, "epoch 2"),
        ),
        (lines({"fraction": 0.1}, {"fraction": 0.2}), (0.2, None, None, "")),
        (lines({"step": 1, "of": 4}), (0.25, 1, 4, "")),
        (lines({"step": 7}), (None, 7, None, "")),
        (lines({"message": "a\x1b[2Jb\n" + 300 * "c"}), (None, None, None, "a [2Jb " + 193 * "c")),
        (lines({"fraction": 0.1}, {"reloaded": True}), (0.1, None, None, "")),
        (lines({"fraction": 0.1}) + b'{"fraction": 0.9', (0.1, None, None, "")),
        (lines({"fraction": 1}), (1.0, None, None, "")),
    ],
)
def test_newest_line_is_the_progress(tail: bytes, expected: tuple[object, ...] | None) -> None:
    found = parse_lines(K, tail)
    assert found == (None if expected is None else KernelProgress(K, *expected))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (lines({"fraction": 1.4}), "fraction 1.4 was ignored: it is not a number from 0 to 1"),
        (lines({"fraction": -0.1}), "fraction -0.1 was ignored: it is not a number from 0 to 1"),
        (b'{"fraction": NaN}\n', "fraction nan was ignored: it is not a number from 0 to 1"),
        (b'{"fraction": Infinity}\n', "fraction inf was ignored: it is not a number from 0 to 1"),
        (lines({"fraction": True}), "fraction True was ignored: it is not a number from 0 to 1"),
        (lines({"fraction": "half"}), "fraction half was ignored: it is not a number from 0 to 1"),
        (
            lines({"step": 1.5}),
            f"step 1.5 was ignored: it is not an integer from 0 to {(1 << 53) - 1}",
        ),
        (
            lines({"of": -1, "step": 1}),
            f"of -1 was ignored: it is not an integer from 0 to {(1 << 53) - 1}",
        ),
        (lines({"message": 7}), "message 7 was ignored: it is not text"),
        (lines([1]), "'[1]' was ignored: it is not a JSON object"),
        (b"40%\n", "'40%' was ignored: it is not a JSON object"),
        (b"[" * 4000 + b"\n", f"'{60 * '['}' was ignored: it is not a JSON object"),
        (
            lines({"message": "x" * 8000}),
            "a line of 8015 bytes was ignored: at most 4096 are allowed",
        ),
        (lines({}), "a line without fraction, step and message was ignored"),
    ],
)
def test_bad_lines_are_told_beside_the_last_good_one(line: bytes, problem: str) -> None:
    assert parse_lines(K, line) == KernelProgress(K, problem=problem)
    assert parse_lines(K, lines({"fraction": 0.5}) + line) == KernelProgress(
        K, 0.5, problem=problem
    )
    assert parse_lines(K, line + lines({"fraction": 0.5})) == KernelProgress(K, 0.5)


def test_bars_of_tqdm_are_read_from_a_log() -> None:
    bars = "\r".join(
        f"train:  {n}%|{n // 10 * '#'}{(10 - n // 10) * ' '}| {3 * n}/300 [00:12<00:18,  9.80it/s]"
        for n in (39, 40)
    )
    log = f"loading\n{bars}\nTraceback: 100% wrong\n".encode()
    assert parse_lines(K, log, log=True) == KernelProgress(
        K, 0.4, step=120, of=300, message="train"
    )
    assert parse_lines(
        K, b"\r  3%|\xe2\x96\x8e         | 3/100 [00:01<00:33]", log=True
    ) == KernelProgress(K, 0.03, 3, 100)
    assert parse_lines(K, b"loss 0.4\n" + lines({"fraction": 0.7}), log=True) == KernelProgress(
        K, 0.7
    )
    assert parse_lines(K, b"loss 0.4\n", log=True) is None
    assert parse_lines(K, b"0%|  | 5/0 [00:00]\n", log=True) == KernelProgress(K, None, 5, 0)


@pytest.mark.parametrize(
    ("line", "log"),
    [
        (b":" * 4095, True),
        (b"a: " * 1365, True),
        ((b":" * 100 + b" " * 100) * 20, True),
        (b"1" * 4090 + b"%|", True),
        (b": " * 2000 + b"9%|", True),
        (b'"fraction"', True),
        (b"x", False),
        (b'{"a":1}', False),
    ],
)
def test_what_a_hostile_program_prints_is_parsed_in_linear_time(line: bytes, log: bool) -> None:
    """This runs on the agent's event loop, for each of its kernels every few seconds. The test
    counts the work instead of timing it."""
    steps = 0

    def count(frame: object, event: str, _: object) -> None:
        nonlocal steps
        steps += event in ("call", "c_call")

    tail = (line + b"\n") * (64 * 1024 // (len(line) + 1))
    sys.setprofile(count)
    try:
        began = time.process_time()
        parse_lines(K, tail, log=log)
        took = time.process_time() - began
    finally:
        sys.setprofile(None)

    assert steps < 70_000, "looks at a bounded number of lines"
    assert took < 0.15, "a pattern that backtracks takes half a second"


def test_titles_of_bars() -> None:
    for before, title in (
        ("train: ", "train"), ("a: b:   ", "a: b"), ("", ""), ("x ", ""), ("old | new: ", "new"),
        ("y" * 300 + ": ", "y" * 200),
    ):  # fmt: skip
        found = parse_lines(K, f"{before}40%|####      | 4/10 [00:12".encode(), log=True)
        assert found == KernelProgress(K, 0.4, step=4, of=10, message=title)


@given(st.binary(max_size=300) | st.text(max_size=300).map(str.encode), st.booleans())
def test_any_bytes_are_parsed(tail: bytes, log: bool) -> None:
    found = parse_lines(K, tail + b"\n", log=log)
    if found is not None:
        assert found.fraction is None or 0 <= found.fraction <= 1
        assert not set(found.message + found.problem) & {"\0", "\n", "\x1b"}


def test_only_the_end_of_a_large_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "progress"
    path.write_bytes(lines({"fraction": 0.1}) * 10_000 + lines({"fraction": 0.2}))
    tail = read_tail(path)
    assert tail is not None
    assert len(tail) <= 64 * 1024
    assert parse_lines(K, tail) == KernelProgress(K, 0.2)
    path.write_bytes(b"x" * 1_000_000)  # a single line without an end
    assert parse_lines(K, read_tail(path) or b"") is None


def test_what_is_no_file_of_its_own_is_not_read(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(lines({"message": "of somebody else"}))
    (tmp_path / "link").symlink_to(secret)
    (tmp_path / "hard").hardlink_to(secret)
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "fifo")
    for name in ("link", "hard", "folder", "fifo", "missing"):
        assert read_tail(tmp_path / name) is None, name
