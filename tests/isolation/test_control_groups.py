"""An agent's control groups, removed by something else on the node."""

from __future__ import annotations

from pathlib import Path

from moorage.agent.runtimes.process.control_groups import ControlGroups


def test_removed_group_of_the_agent_is_made_again(tmp_path: Path) -> None:
    """While it is empty, programs that clean up control groups may remove it."""
    groups = ControlGroups(f"test-{tmp_path.name}", memory=1 << 40, pids=100)
    groups.prepare()
    groups.close()
    groups.remove_others(())
    files = groups.create()
    try:
        assert files
        assert all(Path(file).exists() for file in files)
        parents = {Path(file).parent.parent for file in files}
        limits = [p / name for p in parents for name in ("memory.max", "memory.limit_in_bytes")]
        assert [file.read_text() for file in limits if file.exists()] == [f"{1 << 40}\n"]
    finally:
        groups.remove(files)
        groups.close()
