"""Sessions' working directories on a node: what stays, what goes, and what nobody gets at."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from moorage.agent.execution.workspaces import WorkspaceRequestHandler
from moorage.agent.state.workspaces import Workspaces
from moorage.common.link.messages import WorkspaceRequest
from moorage.common.model.ids import KernelId, SessionId
from moorage.common.model.kernel import KernelSpec
from moorage.common.model.status import SessionType

SPEC = KernelSpec(
    KernelId("k1"),
    SessionId("s1"),
    "dev",
    SessionType.INTERACTIVE,
    "process",
    "custom",
    "dev",
    workspace="keep",
)


def test_a_kept_one_is_the_same_for_the_next_kernel_and_stays(tmp_path: Path) -> None:
    spaces = Workspaces(tmp_path)
    works = [tmp_path / "kernels" / name / "work" for name in ("k1", "k2")]
    spaces.create(SPEC, False, works[0])
    (works[0] / "data").write_text("kept")
    spaces.create(SPEC, False, works[0])  # an agent that died just after it did
    spaces.remove_temporary(SPEC)
    spaces.create(replace(SPEC, kernel_id=KernelId("k2")), False, works[1])
    assert (works[1] / "data").read_text() == "kept"
    [kept] = spaces.list_kept()
    assert (kept.session_id, kept.size) == ("s1", 4)
    assert kept.changed_at == pytest.approx((works[1] / "data").stat().st_mtime, abs=5)


def test_a_container_of_any_user_may_write_there_and_nobody_else_gets_there(tmp_path: Path) -> None:
    spaces, before = Workspaces(tmp_path), os.umask(0o077)
    try:
        for how in ("keep", "drop"):
            spec = replace(SPEC, workspace=how)
            spaces.create(spec, True, tmp_path / "unused")
            path = spaces.path(spec, True)
            assert path is not None
            assert path.stat().st_mode & 0o777 == 0o777
            assert path.parent.stat().st_mode & 0o077 == 0
    finally:
        os.umask(before)
    assert not (tmp_path / "unused").exists()
    spaces.remove_temporary(SPEC)
    assert [kept.session_id for kept in spaces.list_kept()] == ["s1"]
    assert list((tmp_path / "workspaces" / "passing").iterdir()) == []


def test_without_a_wish_or_for_a_process_that_drops_it_there_is_none(tmp_path: Path) -> None:
    spaces = Workspaces(tmp_path)
    for spec, contained in ((replace(SPEC, workspace=""), True), (replace(SPEC, workspace="drop"), False)):
        assert spaces.path(spec, contained) is None
        spaces.create(spec, contained, tmp_path / "work")
    assert list(tmp_path.iterdir()) == []
    assert spaces.list_kept() == []


@pytest.mark.parametrize("name", ["", ".", "..", "../kept/s1", "s1/..", "s2", "/"])
def test_only_what_is_kept_is_removed(tmp_path: Path, name: str) -> None:
    spaces = Workspaces(tmp_path)
    spaces.create(SPEC, False, tmp_path / "work")
    assert spaces.remove_kept(SessionId(name)) is None
    assert len(spaces.list_kept()) == 1
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "work" / "link").symlink_to(outside)
    assert spaces.remove_kept(SessionId("s1")) is not None
    assert spaces.list_kept() == []
    assert outside.is_dir()


async def test_one_in_use_is_not_removed(tmp_path: Path) -> None:
    spaces, used = Workspaces(tmp_path), {SessionId("s1")}
    spaces.create(SPEC, False, tmp_path / "work")
    answers = WorkspaceRequestHandler(spaces, lambda: used)
    refused = await answers.handle(WorkspaceRequest("r", "s1"))
    assert "stop it first" in refused.error
    listed = await answers.handle(WorkspaceRequest("r"))
    assert [(one.session_id, one.in_use) for one in listed.workspaces] == [("s1", True)]
    used.clear()
    removed = await answers.handle(WorkspaceRequest("r", "s1"))
    assert (removed.request_id, [one.session_id for one in removed.workspaces]) == ("r", ["s1"])
    assert list((await answers.handle(WorkspaceRequest("r"))).workspaces) == []
