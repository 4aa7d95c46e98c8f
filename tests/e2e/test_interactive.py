"""Interactive sessions through the real commands: logs, exec, terminals, file copies and
workspaces."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
import pty
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from .harness import Platform, until

SMALL = ("--resources", "cpu=0.1", "--resources", "mem=16MiB")


@pytest.mark.timeout(180)
async def test_session_is_started_followed_and_stopped(one_node: Platform) -> None:
    platform = one_node
    idle = await asyncio.to_thread(platform.run, "start", "--name", "dev", *SMALL)
    assert (idle.returncode, idle.stdout) == (0, "dev\n"), idle.stderr
    program = "echo first; read line <gate; echo $line"
    own = await asyncio.to_thread(
        platform.run,
        "start",
        "--name",
        "own",
        *SMALL,
        "--",
        "/bin/sh",
        "-c",
        f"mkfifo gate; {program}",
    )
    assert own.returncode == 0, own.stderr
    described = await asyncio.to_thread(platform.run, "describe", "dev")
    assert "moorage logs -f dev" in described.stdout
    follower = subprocess.Popen(
        [sys.executable, "-m", "moorage", "logs", "-f", "own"],
        env=platform.env,
        stdout=subprocess.PIPE,
    )
    assert follower.stdout is not None

    try:
        assert await asyncio.to_thread(follower.stdout.readline) == b"first\n"
        [gate] = platform.home.rglob("gate")
        await asyncio.to_thread(gate.write_text, "second\n")
        assert await asyncio.to_thread(follower.stdout.readline) == b"second\n"
        assert await asyncio.to_thread(follower.wait, 30) == 0
    finally:
        follower.kill()
        follower.wait()
        follower.stdout.close()

    assert (await asyncio.to_thread(platform.run, "stop", "dev")).returncode == 0
    gone = await asyncio.to_thread(platform.run, "describe", "dev")
    assert "TERMINATED" in gone.stdout
    assert "moorage stop dev" not in gone.stdout


class Terminal:
    """A command on a pseudo-terminal, with a user who types and reads the output."""

    def __init__(self, platform: Platform, *arguments: str) -> None:
        self.ours, theirs = pty.openpty()
        self.resize(30, 100)
        self.before = termios.tcgetattr(theirs)
        self.process = subprocess.Popen(
            ["setsid", "--ctty", sys.executable, "-m", "moorage", *arguments],
            env=platform.env | {"TERM": "vt100"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        )
        self.theirs = theirs
        self.seen = b""
        self.seen_before = b""

    def resize(self, rows: int, cols: int) -> None:
        fcntl.ioctl(self.ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def type(self, text: str) -> None:
        os.write(self.ours, text.encode())

    def until(self, text: str, timeout_s: float = 20) -> None:
        """Read until ``text`` appears. ``seen_before`` is the output before it, and ``seen`` the
        output after it."""
        deadline = time.monotonic() + timeout_s
        while text.encode() not in self.seen:
            remaining_s = deadline - time.monotonic()
            assert remaining_s > 0, f"{text!r} did not appear; output: {self.seen!r}"
            if select.select([self.ours], [], [], remaining_s)[0]:
                self.seen += os.read(self.ours, 65_536)
        self.seen_before, _, self.seen = self.seen.partition(text.encode())

    def end(self) -> int:
        code = self.process.wait(20)
        assert termios.tcgetattr(self.theirs) == self.before, "the terminal settings are restored"
        return code

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.ours)
        os.close(self.theirs)


def use_a_terminal(platform: Platform) -> None:
    terminal = Terminal(platform, "exec", "-it", "dev", "--", "/bin/sh")
    try:
        terminal.type("PS1='> '; stty -echo; echo $((6*7)) $TERM\r")
        terminal.until("42 vt100")
        terminal.type("stty size\r")
        terminal.until("30 100")
        terminal.resize(50, 200)

        # The new size and the keys travel independently.
        terminal.type("until [ \"$(stty size)\" = '50 200' ]; do :; done; echo it-is-larger\r")
        terminal.until("it-is-larger")

        # The job itself reports that it has started: until it owns the terminal, Ctrl-C reaches the
        # shell, which runs its trap when the job has ended.
        terminal.type("trap 'echo inter''rupted' INT; sh -c 'echo be\"\"gun; exec sleep 600'\r")
        terminal.until("begun")
        terminal.type("\x03")
        terminal.until("interrupted")
        terminal.until("> ")  # the shell discards input typed before its prompt
        terminal.type("exit 7\r")
        assert terminal.end() == 7
    finally:
        terminal.close()


def lose_a_terminal(platform: Platform, number: signal.Signals) -> None:
    """After the client is killed, the terminal is usable and no command is running."""
    terminal = Terminal(
        platform, "exec", "-it", "dev", "--", "/bin/sh", "-c", "echo pid $$; exec sleep 1234"
    )
    try:
        terminal.until("pid ")
        terminal.until("\n")
        pid = int(terminal.seen_before)
        terminal.process.send_signal(number)

        # After SIGKILL nothing restores the terminal, but the command must still end.
        assert (terminal.process.wait(20) if number is signal.SIGKILL else terminal.end()) != 0
        end = time.monotonic() + 20
        while (stat := _state(pid)) not in ("", "Z"):
            assert time.monotonic() < end, f"the command is still running: {stat}"
            time.sleep(0.05)
    finally:
        terminal.close()


def _state(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0]
    except OSError:
        return ""


@pytest.mark.timeout(180)
async def test_commands_in_a_session(one_node: Platform) -> None:
    platform = one_node
    started = await asyncio.to_thread(platform.run, "start", "--name", "dev", *SMALL)
    assert "moorage exec -it dev -- sh" in started.stderr
    script = "cat; echo out; echo err >&2; echo $MOORAGE_SESSION_NAME $OWN; "
    script += "echo $MOORAGE_ATTEMPT $MOORAGE_USER $MOORAGE_PROJECT $MOORAGE_CPUS; exit 7"
    arguments = ["exec", "-i", "--env", "OWN=x=y", "dev", "--", "/bin/sh", "-c", script]
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "moorage", *arguments],
        env=platform.env,
        input=b"\0\xff" * 200_000,
        capture_output=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (7, b"err\n")
    assert done.stdout == b"\0\xff" * 200_000 + b"out\ndev x=y\n1 admin default 0.1\n"
    await asyncio.to_thread(use_a_terminal, platform)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGKILL):
        await asyncio.to_thread(lose_a_terminal, platform, number)

    ending = subprocess.Popen(
        [sys.executable, "-m", "moorage", "exec", "dev", "--", "/bin/sh", "-c", "echo there; sleep 600"],
        env=platform.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert ending.stdout is not None
    assert await asyncio.to_thread(ending.stdout.readline) == b"there\n"
    await asyncio.to_thread(platform.run, "stop", "dev")
    _, stderr = await asyncio.to_thread(ending.communicate, None, 30)
    assert ending.returncode != 0
    assert b"the session has ended" in stderr
    rejected = await asyncio.to_thread(platform.run, "exec", "dev", "--", "true")
    assert rejected.returncode == 1
    assert "is not running: it is TERMINATED" in rejected.stderr
    missing = await asyncio.to_thread(platform.run, "exec", "nobody", "--", "true")
    assert missing.returncode == 3
    assert "command started" in platform.output("up")
    await _pipe_into_a_program(platform)


async def _pipe_into_a_program(platform: Platform) -> None:
    """Its record is removed when it ends."""
    data = "text\n" * 200_000
    command = ("run", "-i", "--rm", "--name", "piped", *SMALL, "--", "sha256sum")
    done = await asyncio.to_thread(platform.run, *command, stdin=data)
    assert done.returncode == 0, done
    assert done.stdout.split()[0] == hashlib.sha256(data.encode()).hexdigest()
    assert "piped" not in platform.run("ps", "--all", "-o", "name").stdout.split()


async def _cp(platform: Platform, *arguments: str, code: int = 0, error: str = "") -> None:
    done = await asyncio.to_thread(platform.run, "cp", *arguments)
    assert done.returncode == code, done.stderr
    assert error in done.stderr


@pytest.mark.timeout(300)
async def test_files_are_copied_in_and_out(one_node: Platform, tmp_path: Path) -> None:
    platform = one_node
    await asyncio.to_thread(platform.run, "start", "--name", "files", *SMALL)
    [kernel] = (await asyncio.to_thread(platform.run, "exec", "files", "--", "pwd")).stdout.split()
    workdir = Path(kernel)
    data = os.urandom(5_000_000)
    (tmp_path / "tree" / "sub dir").mkdir(parents=True)
    (tmp_path / "tree" / "sub dir" / "-x").write_bytes(data)
    (tmp_path / "tree" / "link").symlink_to("sub dir/-x")
    await _cp(platform, str(tmp_path / "tree"), "files:")
    assert (workdir / "tree" / "sub dir" / "-x").read_bytes() == data
    assert (workdir / "tree" / "link").is_symlink()
    await _cp(platform, str(tmp_path / "tree" / "link"), "files:tree/other name")
    assert (workdir / "tree" / "other name").read_bytes() == data
    await _cp(platform, "files:tree", str(tmp_path / "back"))
    assert (tmp_path / "back" / "sub dir" / "-x").read_bytes() == data
    await _cp(platform, "files:tree/link", str(tmp_path))
    assert (tmp_path / "link").read_bytes() == data
    given = await asyncio.to_thread(platform.run, "cp", "-", "files:tree/given", stdin="piped\n")
    assert (given.returncode, (workdir / "tree" / "given").read_text()) == (0, "piped\n"), (
        given.stderr
    )
    assert (
        await asyncio.to_thread(platform.run, "cp", "files:tree/given", "-")
    ).stdout == "piped\n"
    await _cp(platform, "files:tree", "-", code=2, error="files:tree is not a file")
    (workdir / "tree" / "given").unlink()
    (workdir / "tree" / "new").touch()
    (workdir / "tree" / "out").symlink_to("/etc/passwd")
    await _cp(
        platform, "files:tree/.", str(tmp_path / "back"), error="skipped: out points to /etc/passwd"
    )
    assert sorted(p.name for p in (tmp_path / "back").iterdir()) == [
        "link",
        "new",
        "other name",
        "sub dir",
    ]

    # A link that an earlier copy could have created leads nowhere: it is replaced on both sides.
    for ours in (tmp_path / "back", workdir / "tree"):
        (tmp_path / f"outside {ours.name}").mkdir()
        (ours / "merged").symlink_to(tmp_path / f"outside {ours.name}")

    (tmp_path / "in" / "merged").mkdir(parents=True)
    (tmp_path / "in" / "merged" / "planted").touch()
    await _cp(platform, f"{tmp_path}/in/merged", "files:tree")
    assert (workdir / "tree" / "merged" / "planted").is_file()
    (workdir / "in" / "tree" / "merged").mkdir(parents=True)
    (workdir / "in" / "tree" / "merged" / "planted").touch()
    await _cp(platform, "files:in/tree/.", str(tmp_path / "back"))
    assert (tmp_path / "back" / "merged" / "planted").is_file()
    assert not [*(tmp_path / "outside back").iterdir(), *(tmp_path / "outside tree").iterdir()]
    shutil.rmtree(workdir / "tree" / "merged")

    # Failed copies report an error and change nothing.
    await _cp(
        platform,
        "files:nothing",
        str(tmp_path),
        code=3,
        error="there is no nothing, in session 'files'",
    )
    await _cp(
        platform,
        str(tmp_path / "link"),
        "files:no/where/x",
        code=3,
        error="there is no directory no/where",
    )
    await _cp(
        platform, str(tmp_path / "tree"), "files:tree/new", code=1, error="nothing was copied"
    )
    await _interrupt(platform, tmp_path, workdir)
    await _fill(platform, tmp_path, workdir)
    assert list(workdir.glob("**/.moorage-cp-*")) == list(tmp_path.glob("**/.moorage-cp-*")) == []
    await asyncio.to_thread(platform.run, "stop", "files")
    await _cp(platform, "files:tree", str(tmp_path), code=1, error="is not running")


async def _interrupt(platform: Platform, local_dir: Path, workdir: Path) -> None:
    """An interrupted copy leaves nothing on either side."""
    for into, paths in (
        (workdir, ("huge", "files:huge")),
        (local_dir, ("files:endless", "endless", "--max-size", "2TiB")),
    ):
        for place in (local_dir / "huge", workdir / "endless"):
            with place.open("wb") as file:
                file.write(os.urandom(1 << 20))  # A received hole does not show in the file's size.
                file.truncate(1 << 40)

        arguments = [sys.executable, "-m", "moorage", "cp", *paths]
        copying = subprocess.Popen(
            arguments, env=platform.env, cwd=local_dir, stderr=subprocess.DEVNULL
        )

        async def some(into: Path = into) -> bool:
            return any(p.is_file() and p.stat().st_size for p in into.glob(".moorage-cp-*/*"))

        async def none(into: Path = into) -> bool:
            leftovers = [*into.glob(".moorage-cp-*"), *into.glob(".moorage-cp-*/*")]
            assert not leftovers
            return True

        try:
            await until("something has been copied", some)
            copying.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(copying.wait, 30) != 0
        finally:
            copying.kill()
            copying.wait()

        await until("the partial copy is removed", none)
        assert not (into / paths[1].removeprefix("files:")).exists()
        (local_dir / "huge").unlink()
        (workdir / "endless").unlink()


async def _fill(platform: Platform, local_dir: Path, workdir: Path) -> None:
    small = workdir / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(small)]
    if (
        os.geteuid()
        or (await asyncio.to_thread(subprocess.run, mount, capture_output=True)).returncode
    ):
        return  # only root can mount a small disk

    try:
        await _cp(
            platform,
            str(local_dir / "link"),
            "files:small/x",
            code=1,
            error="the session's disk is full",
        )
        assert list(small.iterdir()) == []
    finally:
        await asyncio.to_thread(subprocess.run, ["umount", str(small)], check=True)


@pytest.mark.timeout(180)
async def test_kept_workspace_outlives_its_session_and_retries(one_node: Platform) -> None:
    platform = one_node
    # The retry finds the file of the first attempt, and succeeds.
    program = "pwd; echo $MOORAGE_WORKSPACE; cat mark && exit 0; echo left >mark; exit 3"
    arguments = ["run", "--name", "worker", "--retries", "1", "--workspace", "keep", *SMALL]
    ran = await asyncio.to_thread(platform.run, *arguments, "--", "/bin/sh", "-c", program)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.endswith("left\n")
    listed = await asyncio.to_thread(platform.run, "workspaces", "list")
    assert "worker" in listed.stdout, listed.stderr
    [mark] = platform.home.rglob("kept/*/mark")

    async with platform.client() as client:

        async def not_in_use() -> bool:
            [found] = (await client.workspaces.list()).items
            return not found.in_use

        await until("the agent has forgotten its kernels", not_in_use)

    assert " no " in (await asyncio.to_thread(platform.run, "workspaces", "list")).stdout
    removed = await asyncio.to_thread(platform.run, "workspaces", "delete", "worker")
    assert removed.returncode == 0, removed.stderr
    assert removed.stdout.startswith("worker on node-1: ")
    assert not mark.exists()
    assert (await asyncio.to_thread(platform.run, "workspaces", "delete", "worker")).returncode == 3

    # A workspace that is not kept is deleted with its session.
    arguments = ["run", "--workspace", "drop", *SMALL, "--", "/bin/sh", "-c", "pwd; touch mark"]
    dropped = Path((await asyncio.to_thread(platform.run, *arguments)).stdout.strip())

    async def gone() -> bool:
        return not await asyncio.to_thread(dropped.exists)

    await until("its workspace is gone", gone)
