"""Session workspaces on a node: lifetime, permissions, removal."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from moorage.agent.execution.kept_workspaces import Workspaces
from moorage.agent.execution.workspaces import WorkspaceRequestHandler
from moorage.common.link.messages import WorkspaceRequest
from moorage.common.model.ids import KernelId, SessionId
from moorage.common.model.kernel import KernelSpec
from moorage.common.model.status import SessionType

SPEC = KernelSpec(
    KernelId("k1"),
    SessionId("s1"),
    session_name="dev",
    session_type=SessionType.INTERACTIVE,
    runtime="process",
    engine="custom",
    served_name="dev",
    workspace="keep",
)


def test_kept_workspace_is_shared_by_the_kernels_of_a_session(tmp_path: Path) -> None:
    workspaces = Workspaces(tmp_path)
    work_dirs = [tmp_path / "kernels" / name / "work" for name in ("k1", "k2")]
    workspaces.create(SPEC, False, work_dirs[0])
    (work_dirs[0] / "data").write_text("kept")
    workspaces.create(SPEC, False, work_dirs[0])  # again, as after an agent crash
    workspaces.remove_temporary(SPEC)
    workspaces.create(replace(SPEC, kernel_id=KernelId("k2")), False, work_dirs[1])
    assert (work_dirs[1] / "data").read_text() == "kept"
    [kept] = workspaces.list_kept()
    assert (kept.session_id, kept.size) == ("s1", 4)
    assert kept.changed_at == pytest.approx((work_dirs[1] / "data").stat().st_mtime, abs=5)


def test_container_of_any_user_may_write_and_other_users_have_no_access(tmp_path: Path) -> None:
    workspaces = Workspaces(tmp_path)
    umask = os.umask(0o077)
    try:
        for workspace in ("keep", "drop"):
            spec = replace(SPEC, workspace=workspace)
            workspaces.create(spec, True, tmp_path / "unused")
            path = workspaces.path(spec, True)
            assert path is not None
            assert path.stat().st_mode & 0o777 == 0o777
            assert path.parent.stat().st_mode & 0o077 == 0
    finally:
        os.umask(umask)

    assert not (tmp_path / "unused").exists()
    workspaces.remove_temporary(SPEC)
    assert [kept.session_id for kept in workspaces.list_kept()] == ["s1"]
    assert list((tmp_path / "workspaces" / "temporary").iterdir()) == []


def test_no_workspace_by_default_and_none_for_a_process_that_drops_it(tmp_path: Path) -> None:
    workspaces = Workspaces(tmp_path)
    for spec, contained in (
        (replace(SPEC, workspace=""), True),
        (replace(SPEC, workspace="drop"), False),
    ):
        assert workspaces.path(spec, contained) is None
        workspaces.create(spec, contained, tmp_path / "work")
    assert list(tmp_path.iterdir()) == []
    assert workspaces.list_kept() == []


@pytest.mark.parametrize("name", ["", ".", "..", "../kept/s1", "s1/..", "s2", "/"])
def test_remove_kept_touches_kept_workspaces_only(tmp_path: Path, name: str) -> None:
    workspaces = Workspaces(tmp_path)
    workspaces.create(SPEC, False, tmp_path / "work")
    assert workspaces.remove_kept(SessionId(name)) is None
    assert len(workspaces.list_kept()) == 1
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "work" / "link").symlink_to(outside)
    assert workspaces.remove_kept(SessionId("s1")) is not None
    assert workspaces.list_kept() == []
    assert outside.is_dir()


async def test_workspace_in_use_is_not_removed(tmp_path: Path) -> None:
    workspaces = Workspaces(tmp_path)
    in_use = {SessionId("s1")}
    workspaces.create(SPEC, False, tmp_path / "work")
    handler = WorkspaceRequestHandler(workspaces, lambda: in_use)
    refused = await handler.handle(WorkspaceRequest("r", "s1"))
    assert "stop it first" in refused.error
    listed = await handler.handle(WorkspaceRequest("r"))
    assert [(one.session_id, one.in_use) for one in listed.workspaces] == [("s1", True)]
    in_use.clear()
    removed = await handler.handle(WorkspaceRequest("r", "s1"))
    assert (removed.request_id, [one.session_id for one in removed.workspaces]) == ("r", ["s1"])
    assert list((await handler.handle(WorkspaceRequest("r"))).workspaces) == []
