"""Disks of sandboxed kernels: a kernel fills only its own disk, and leaves nothing behind when it
ends."""

from __future__ import annotations

import asyncio
import gzip
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from moorage.agent.execution.kept_workspaces import Workspaces
from moorage.agent.runtimes import Handle, ProcessRuntime
from moorage.agent.runtimes.execution import Command
from moorage.common.model.ids import SessionId

from .conftest import Node, launch, mounts, python, until_exited

LIMIT = 64 << 20
FILL = """
import os
written = 0
try:
    with open("filling", "wb", 0) as file:
        while written < 256 << 20:
            written += file.write(bytes(1 << 20))
except OSError as error:
    print(error.strerror, written >> 20, flush=True)
"""


async def printed(runtime: ProcessRuntime, handle: Handle) -> str:
    await until_exited(runtime, handle)
    return await runtime.log_tail(handle)


def used(path: Path) -> int:
    """Bytes on the node's disk."""
    return sum(file.stat().st_blocks * 512 for file in path.rglob("*") if file.is_file())


async def until(condition: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)


@pytest.fixture(params=["enforced", "counted"])
def with_quotas(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Path, bool]]:
    """A state directory on a file system with user quotas, and whether they are enforced."""
    image = tmp_path / "quotas.img"
    home = tmp_path / "quotas"
    home.mkdir()
    with image.open("wb") as file:
        file.truncate(512 << 20)

    quiet = {"check": True, "capture_output": True, "text": True}
    options = ("-O", "quota", "-E", "quotatype=usrquota")
    subprocess.run(["mkfs.ext4", "-q", "-F", *options, str(image)], **quiet)  # type: ignore[call-overload]
    enforced = request.param == "enforced"
    how = "loop,usrquota" if enforced else "loop"
    done = subprocess.run(
        ["mount", "-o", how, str(image), str(home)], capture_output=True, text=True
    )
    if done.returncode:
        assert "CONFIG_QFMT_V2=y" not in config_of_linux(), done.stderr
        pytest.skip(
            "this Linux has no quotas of ext4 (CONFIG_QFMT_V2): `make test-cgroup2` has them"
        )

    yield home, enforced
    # Kernel disks in it are removed in threads.
    subprocess.run(["umount", "--lazy", str(home)], **quiet)  # type: ignore[call-overload]


def config_of_linux() -> str:
    path = Path("/proc/config.gz")
    return gzip.decompress(path.read_bytes()).decode() if path.exists() else "CONFIG_QFMT_V2=y"


async def test_a_quota_is_used_where_it_is_enforced(with_quotas: tuple[Path, bool]) -> None:
    home, enforced = with_quotas
    node = Node(home / "home")
    try:
        runtime = await node.start(disk=LIMIT)
        handle = await runtime.create(python(FILL))
        text = await printed(runtime, handle)
        message = "Disk quota exceeded" if enforced else "No space left on device"
        assert text.startswith(message), text
        assert 32 <= int(text.split()[-1]) <= 64
        assert (mounts(node.state) == []) is enforced
        same = await runtime.create(python(FILL))
        assert (await printed(runtime, same)).startswith(f"{message} 0" if enforced else message)
        other = await runtime.create(
            python("open('mine', 'w').write('x'); print('room')", session="two")
        )
        assert await printed(runtime, other) == "room\n"
        await runtime.destroy(handle)
        again = await runtime.create(python("open('mine', 'w').write('x'); print('room')"))
        assert await printed(runtime, again) == "room\n"
    finally:
        await node.close()


@pytest.mark.parametrize("how", ["first", "spare"])
async def test_a_kernel_cannot_store_more_than_its_limit(node: Node, how: str) -> None:
    runtime = await node.start(disk=LIMIT)
    if how == "spare":  # made after the first kernel
        await runtime.destroy(await runtime.create(launch("true")))
        await until(lambda: any(map(os.path.ismount, (node.state / "disks").glob("spare-*/"))))

    handle = await runtime.create(python(FILL))
    text = await printed(runtime, handle)
    assert text.startswith("No space left on device"), text
    assert 32 <= int(text.split()[-1]) < 64
    other = await runtime.create(
        python("open('mine', 'w').write('x'); print('room')", session="two")
    )
    assert await printed(runtime, other) == "room\n", "the space of another kernel is its own"
    for ended in (handle, other):
        await runtime.destroy(ended)

    runtime.close()
    assert (mounts(node.state), used(node.state / "disks")) == ([], 0)


async def test_home_is_private_and_empty_as_without_a_limit(node: Node) -> None:
    runtime = await node.start(disk=LIMIT)
    program = (
        "import os; s = os.stat('.'); print(os.listdir(), oct(s.st_mode), s.st_uid == os.getuid())"
    )
    handle = await runtime.create(python(program))
    assert await printed(runtime, handle) == "[] 0o40700 True\n"
    [work] = mounts(node.state)[:1]
    options = next(
        line for line in Path("/proc/self/mountinfo").read_text().splitlines() if work in line
    )
    assert {"nosuid", "nodev"} <= set(options.split()[5].split(","))


async def test_a_command_in_a_kernel_is_limited_too(node: Node) -> None:
    runtime = await node.start(disk=LIMIT)
    handle = await runtime.create(launch("sleep", "600"))
    argv = ("sh", "-c", "exec 2>&1; head -c 200M /dev/zero > filling; stat -c %s filling")
    command = await runtime.exec(handle, Command(argv, {}, tty=False, stdin=False, rows=0, cols=0))
    output = b""
    while (piece := await command.read()) is not None:
        output += piece[1]

    await command.wait()
    assert b"No space left on device" in output
    assert int(output.split()[-1]) < LIMIT


async def test_a_disk_ends_while_a_younger_kernel_runs(node: Node) -> None:
    """The younger kernel has the older kernel's disk, hidden, among its mounts, but the space is
    still freed."""
    runtime = await node.start(disk=LIMIT)
    older = await runtime.create(python(FILL + "import time; time.sleep(600)"))
    await until(lambda: used(node.state / "disks") > LIMIT // 2)
    younger = await runtime.create(launch("sleep", "600", session="two"))
    await runtime.destroy(older)
    await until(lambda: loop_bytes(node.state / "disks") < LIMIT // 2)
    await runtime.destroy(younger)


def loop_bytes(folder: Path) -> int:
    """The space that disks use, including disks whose file is deleted but still mounted
    somewhere."""
    devices = [
        backing.parts[3]
        for backing in Path("/sys/block").glob("loop*/loop/backing_file")
        if (path := backing.read_text().strip()).startswith(f"{folder}/")
        and path.endswith("(deleted)")
    ]
    return used(folder) + sum(map(allocated, devices))


def allocated(device: str) -> int:
    """The bytes that a loop device holds, without its holes."""
    fd = os.open(f"/dev/{device}", os.O_RDONLY)
    try:
        size = os.lseek(fd, 0, os.SEEK_END)
        found = 0
        for offset in range(0, size, 1 << 20):
            found += bool(os.pread(fd, 1 << 20, offset).strip(b"\0")) << 20

        return found
    finally:
        os.close(fd)


async def test_a_kept_workspace_is_limited_outlives_the_agent_and_is_removed(node: Node) -> None:
    runtime = await node.start(disk=LIMIT)
    workspaces = Workspaces(node.state)
    session = SessionId("kept-one")

    def order(program: str) -> Any:
        made = python(program, session=session)
        kept = node.state / "workspaces" / "kept" / session
        kept.mkdir(mode=0o700, parents=True, exist_ok=True)
        work = runtime.work_dir(made.kernel_id)
        work.parent.mkdir(mode=0o700, parents=True)
        work.symlink_to(kept)
        return made

    handle = await runtime.create(order(FILL))
    assert (await printed(runtime, handle)).startswith("No space left")
    await runtime.destroy(handle)
    handle = await runtime.create(order("import os; print(os.path.getsize('filling') > 1 << 20)"))
    assert await printed(runtime, handle) == "True\n", "the next kernel of the session has it"
    await runtime.destroy(handle)
    runtime.close()
    kept = node.state / "workspaces" / "kept" / session
    assert mounts(node.state) == [str(kept)]
    subprocess.run(["umount", str(kept)], check=True)  # as after a boot
    runtime = await node.start(disk=LIMIT)
    assert mounts(node.state) == [str(kept)]
    assert (kept / "filling").stat().st_size > 1 << 20
    removed = workspaces.remove_kept(session)
    assert removed is not None
    assert removed.size > 1 << 20
    assert (mounts(node.state), kept.exists(), used(node.state / "disks")) == ([], False, 0)


async def test_what_a_killed_agent_left_is_taken_up(node: Node) -> None:
    first = await node.start(disk=LIMIT)
    running = await first.create(launch("sleep", "600"))
    await until(lambda: any(map(os.path.ismount, (node.state / "disks").glob("spare-*/"))))
    (node.state / "disks" / "kernel-gone.img").write_bytes(b"x")
    second = await node.start(disk=LIMIT)
    assert [Path(path).name for path in mounts(node.state)] == ["work"], "no spare of before"
    assert [path.name for path in (node.state / "disks").iterdir()] == [
        f"kernel-{running.state['kernel_id']}.img"
    ]
    await second.destroy(running)
    assert (mounts(node.state), list((node.state / "disks").iterdir())) == ([], [])


async def test_without_a_way_to_limit_processes_of_members_are_refused(
    node: Node, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The error names the setting, why it cannot be honored, and what to do."""
    tools = tmp_path / "tools"
    tools.mkdir()
    shell = shutil.which("sh")
    (tools / "mount").write_text(f"#!{shell}\necho 'mount: no loop devices' >&2\nexit 32\n")
    (tools / "mount").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    with pytest.raises(AssertionError) as failed:
        await node.start(disk=LIMIT)

    for part in (
        "agent.process_disk = 64MiB cannot be enforced",
        "user quotas",
        "mount: no loop devices",
    ):
        assert part in str(failed.value)

    state = await node.runtimes[-1].check()
    assert not state.isolates
    assert "usrquota" in state.detail
    assert (mounts(node.state), list((node.state / "disks").iterdir())) == ([], [])
