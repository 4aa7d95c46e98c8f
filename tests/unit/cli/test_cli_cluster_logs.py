"""Logs of clusters."""

from __future__ import annotations

import json

import pytest
from fake_manager import FakeManager
from hypothesis import given
from hypothesis import strategies as st
from invoke import Run
from scripted_session import runs

from moorage.cli.cluster_logs import PrefixedLines
from moorage.common.model.reasons import Reason


@given(pieces=st.lists(st.binary(max_size=8)))
def test_lines_are_whole_wherever_the_pieces_end(pieces: list[bytes]) -> None:
    whole = b"".join(pieces)
    lines = PrefixedLines("sub1 | ")
    found = [*map(lines.feed, pieces), lines.feed(b"", final=True)]
    assert all(piece.endswith(b"\n") for piece in found if piece)
    ended = whole if whole.endswith(b"\n") or not whole else whole + b"\n"
    assert b"".join(found) == b"".join(
        b"sub1 | " + line + b"\n" for line in ended.split(b"\n")[:-1]
    )


def clustered(moorage: Run, manager: FakeManager) -> None:
    """A session with three kernels with the same log, because the fake has only one."""
    manager.next_session(**runs(0, Reason.EXIT_ZERO, b"one\ntw", b"o"))
    created = moorage("run", "--name", "job", "--cluster", "3", "--no-wait", "--", "x")
    assert created.exit_code == 0, created.stderr
    view = json.loads(moorage("describe", "job", "-o", "json").stdout)["session"]
    [kernel] = view["kernels"]
    names = [("main", 1), ("sub", 2), ("sub", 1)]
    view["kernels"] = [
        kernel | {"role": role, "index": index, "hostname": f"{role}{index}"}
        for role, index in names
    ]
    manager.can("GET", "/v1/sessions/job", 200, json.dumps(view))


def test_lines_of_a_cluster_begin_with_the_names_of_its_kernels(
    manager: FakeManager, moorage: Run
) -> None:
    clustered(moorage, manager)
    expected = [
        f"{name} | {line}" for name in ("main1", "sub1 ", "sub2 ") for line in ("one", "two")
    ]
    assert moorage("logs", "job").stdout.splitlines() == expected
    assert sorted(moorage("logs", "-f", "job").stdout.splitlines()) == sorted(expected)
    assert moorage("logs", "job", "--kernel", "sub1").stdout == "one\ntwo"


def test_run_of_a_cluster_reads_the_rest_after_the_end(
    manager: FakeManager, moorage: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moorage.sdk.log_following.OUTAGE_S", -1.0)
    log = [b"line one\n", b"line two\n", b"line three\n"]
    manager.next_session(**(runs(0, Reason.EXIT_ZERO, *log) | {"log_breaks": 1}))
    result = moorage("run", "--cluster", "2", "--", "x")
    assert result.stdout.splitlines() == [
        f"main1 | line {number}" for number in ("one", "two", "three")
    ]
    assert "the log of main1 was cut off" in result.stderr
