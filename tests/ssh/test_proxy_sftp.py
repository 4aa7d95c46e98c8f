"""OpenSSH's sftp and scp with a proxy's virtual root, and rsync with a session through the
proxy."""

from __future__ import annotations

import asyncio
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.harness import until
from tests.ssh.proxy_clients import SMALL, SshPlatform, running_platform, started

BIG = 8 * 1024 * 1024
pytestmark = pytest.mark.ssh


@pytest.fixture(scope="module")
def platform(reachable_dir: Path) -> Iterator[SshPlatform]:
    with running_platform(reachable_dir) as made:
        yield made


@pytest.mark.timeout(240)
async def test_sftp_lands_in_the_files_of_all_sessions(
    platform: SshPlatform, tmp_path: Path
) -> None:
    await platform.wait_for_ssh()
    await started(platform, "first", "--workspace", "keep")
    await started(platform, "second")
    key = platform.new_key("files")
    source = tmp_path / "a b\n.bin"
    back = tmp_path / "back"
    source.write_bytes(os.urandom(BIG))
    batch = b"""pwd
ls
ls default
mkdir default/first/in
ls -l default/first
cd default/second
pwd
-rename /default/first/in /default/second/in
-mkdir /default/third
-mkdir /other
-get /default/first/in/../../../../../../../etc/passwd
"""
    listed = await platform.ssh(key, "-b", "-", "admin@127.0.0.1", program="sftp", stdin=batch)
    assert listed.returncode == 0, listed.stderr
    lines = [
        line.strip() for line in listed.stdout.decode().splitlines() if not line.startswith("sftp>")
    ]
    assert lines[:3] == [
        "Remote working directory: /",
        "default",
        "default/first   default/second",
    ], lines
    assert lines[-1] == "Remote working directory: /default/second"
    errors = listed.stderr.decode()
    assert "files cannot be moved" in errors or "Failure" in errors
    assert errors.count("Permission denied") >= 1
    assert not Path("passwd").exists()
    put = await platform.ssh(
        key, source, "admin@127.0.0.1:/default/first/in/copy.bin", program="scp"
    )
    assert (put.returncode, put.stderr) == (0, b"")

    # The session and SFTP see the same files, as the same user.
    seen = await platform.ssh(
        key, "default/first@127.0.0.1", "cat in/copy.bin; stat -c %U . in/copy.bin >&2"
    )
    assert seen.stdout == source.read_bytes()
    assert len(set(seen.stderr.split())) == 1, seen.stderr
    got = await platform.ssh(key, "admin@127.0.0.1:/default/first/in/copy.bin", back, program="scp")
    assert got.returncode == 0, got.stderr
    assert back.read_bytes() == source.read_bytes()
    refused = await platform.ssh(key, "admin@127.0.0.1", "true")
    assert (refused.returncode, b"this login is for SFTP" in refused.stderr) == (255, True)


@pytest.mark.timeout(240)
async def test_links_of_a_session_do_not_lead_out_of_its_files(
    platform: SshPlatform, tmp_path: Path
) -> None:
    await platform.wait_for_ssh()
    await started(platform, "hostile")
    key = platform.new_key("hostile")
    at = "default/hostile@127.0.0.1"
    script = (
        "ln -s /etc/passwd abs; ln -s ../../../../../../../etc up; ln -s / root; echo x > file; ln -s "
        "file in"
    )
    assert (await platform.ssh(key, at, script)).returncode == 0
    source = tmp_path / "source"
    source.write_bytes(b"y")
    batch = f"""cd default/hostile
-get abs {tmp_path}/stolen
-get up/passwd {tmp_path}/stolen
-get root/etc/passwd {tmp_path}/stolen
-put {source} root{tmp_path}/written
-symlink /etc/passwd another
get in {tmp_path}/good
"""
    outcome = await platform.ssh(
        key, "-b", "-", "admin@127.0.0.1", program="sftp", stdin=batch.encode()
    )
    assert outcome.returncode == 0, outcome.stderr
    assert sorted(one.name for one in tmp_path.iterdir()) == ["good", "source"]
    assert (tmp_path / "good").read_text() == "x\n"


@pytest.mark.timeout(240)
async def test_files_that_were_kept_are_there_after_the_session(
    platform: SshPlatform, tmp_path: Path
) -> None:
    await platform.wait_for_ssh()
    await started(platform, "kept", "--workspace", "keep")
    await started(platform, "dropped")
    key = platform.new_key("kept")
    assert (await platform.ssh(key, "default/kept@127.0.0.1", "echo result > out")).returncode == 0
    done = await asyncio.to_thread(platform.run, "stop", "kept", "dropped", "--wait")
    assert done.returncode == 0, done.stderr
    batch = f"get /default/kept/out {tmp_path}/out\n-ls /default/dropped\nls /default\n".encode()
    outcome = await platform.ssh(key, "-b", "-", "admin@127.0.0.1", program="sftp", stdin=batch)
    assert outcome.returncode == 0, outcome.stderr
    assert (tmp_path / "out").read_text() == "result\n"
    assert b"/default/kept" in outcome.stdout
    assert b"\n/default/dropped" not in outcome.stdout

    # A user who has lost the key no longer sees anything.
    assert (await asyncio.to_thread(platform.run, "keys", "remove-ssh", "kept")).returncode == 0
    assert (
        await platform.ssh(key, "-b", "-", "admin@127.0.0.1", program="sftp", stdin=b"ls\n")
    ).returncode == 255


@pytest.mark.timeout(240)
async def test_rsync_copies_a_tree_at_the_proxy(platform: SshPlatform, tmp_path: Path) -> None:
    await platform.wait_for_ssh()
    await started(platform, "copy")
    key = platform.new_key("copy")
    tree = tmp_path / "tree"
    back = tmp_path / "back"
    (tree / "deep").mkdir(parents=True)
    for number in range(50):
        (tree / "deep" / f"file {number}").write_bytes(os.urandom(10_000))

    shell = shlex.join(platform.openssh("ssh", key))
    for source, target in (
        (f"{tree}/", "default+copy@127.0.0.1:tree/"),
        ("default+copy@127.0.0.1:tree/", back),
    ):
        copied = await asyncio.create_subprocess_exec(
            "rsync", "-a", "-e", shell, source, target, stderr=asyncio.subprocess.PIPE
        )
        _, errors = await copied.communicate()
        assert copied.returncode == 0, errors

    for file in (tree / "deep").iterdir():
        assert (back / "deep" / file.name).read_bytes() == file.read_bytes()


@pytest.mark.timeout(240)
async def test_example(platform: SshPlatform) -> None:
    await platform.wait_for_ssh()
    await started(platform, "shown")
    key = platform.new_key("example")
    example = Path(__file__).parents[2] / "examples" / "ssh.sh"
    ran = await asyncio.create_subprocess_exec(
        *("sh", str(example), "127.0.0.1", str(platform.ssh_port), str(key), "admin", "default", "shown"),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, errors = await ran.communicate()
    assert ran.returncode == 0, errors
    lines = out.decode().splitlines()
    assert lines[:2] == ["hello from Linux", "exit code 3"]
    assert "/default/shown/results/accuracy" in out.decode()
    assert lines[-1] == "accuracy 0.93"


@pytest.mark.timeout(240)
async def test_example_of_system_sessions(platform: SshPlatform, tmp_path: Path) -> None:
    await platform.wait_for_ssh()

    async def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return await asyncio.to_thread(platform.run, *arguments)

    refused = await run("start", "--type", "system", "--name", "early", *SMALL)
    assert refused.returncode != 0
    assert "moorage groups set default session_types=" in refused.stderr
    types = "session_types=interactive,batch,inference,system"
    assert (await run("groups", "set", "default", types)).returncode == 0
    assert (await run("quotas", "set", "project", "default", "system_sessions=1")).returncode == 0
    held = await run("start", "--type", "system", "--name", "held", *SMALL)
    assert held.returncode == 0, held.stderr
    waits = await run("start", "--type", "system", "--name", "waits", "--no-wait", *SMALL)
    assert waits.returncode == 0, waits.stderr

    async def reason() -> bool:
        return "1 system sessions of 1" in (await run("why", "waits")).stdout

    await until("the second waits for the quota", reason)
    assert (await run("stop", "held", "waits", "--wait")).returncode == 0
    key = platform.new_key("system")
    tree = tmp_path / "tree"
    (tree / "deep").mkdir(parents=True)
    (tree / "deep" / "a file").write_bytes(os.urandom(100_000))
    example = Path(__file__).parents[2] / "examples" / "system_session.sh"
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    ran = await asyncio.create_subprocess_exec(
        *("sh", str(example), "127.0.0.1", str(platform.ssh_port), str(key), "default", str(tree)),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=platform.env | {"PATH": path},
    )  # fmt: skip
    out, errors = await ran.communicate()
    assert ran.returncode == 0, errors
    assert "all files are the same" in out.decode()
