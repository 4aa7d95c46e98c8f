"""SFTP throughput through a proxy: what Moorage costs on top of asyncssh.

    python benchmarks/bench_sftp.py [--mib 256] [--rounds 3]

Starts `moorage up` with SSH on its proxy and an interactive session, and a bare asyncssh SFTP
server in a separate process. OpenSSH's `sftp` gets and puts the same file on both, in shuffled
turns.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bench_e2e import all_in_one
from measuring import machine, machine_line
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import SessionType, Status
from moorage.common.views.ssh_keys import SshKeySpec
from moorage.sdk import Client

GOAL = 0.8
CIPHERS = ("chacha20-poly1305@openssh.com", "aes128-gcm@openssh.com")
BARE = """
import asyncio, sys, asyncssh
async def main(port, keys, root):
    await asyncssh.listen("127.0.0.1", port, server_host_keys=[asyncssh.generate_private_key("ssh-ed25519")],
        authorized_client_keys=keys, sftp_factory=lambda chan: asyncssh.SFTPServer(chan, chroot=root))
    print("ready", flush=True)
    await asyncio.Event().wait()
asyncio.run(main(int(sys.argv[1]), sys.argv[2], sys.argv[3]))
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@asynccontextmanager
async def bare_server(folder: Path, key: Path) -> AsyncIterator[tuple[int, int]]:
    """Its port and process."""
    root = folder / "bare"
    port = free_port()
    root.mkdir()
    command = [sys.executable, "-c", BARE, str(port), f"{key}.pub", str(root)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        await asyncio.to_thread(process.stdout.readline)
        yield port, process.pid
    finally:
        process.kill()
        process.wait()


def transfer(port: int, key: Path, login: str, cipher: str, *, line: str) -> float:
    """Seconds for a whole `sftp` run, including its login."""
    pairs = {"Port": port, "IdentityFile": key, "Ciphers": cipher, "StrictHostKeyChecking": "no"}
    pairs |= {"UserKnownHostsFile": "/dev/null", "LogLevel": "ERROR", "BatchMode": "yes"}
    options = [part for name, value in pairs.items() for part in ("-o", f"{name}={value}")]
    began = time.perf_counter()
    command = ["sftp", "-F", "none", *options, "-b", "-", f"{login}@127.0.0.1"]
    subprocess.run(command, input=f"{line}\n".encode(), check=True, capture_output=True)
    return time.perf_counter() - began


def read(pid: int, name: str) -> str:
    """A process's file in /proc, or "" if the process has ended."""
    try:
        return Path(f"/proc/{pid}/{name}").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def descendants(pid: int) -> list[int]:
    threads = [path.name for path in Path(f"/proc/{pid}/task").glob("*")]
    children = [
        int(one) for thread in threads for one in read(pid, f"task/{thread}/children").split()
    ]
    return [pid, *(below for child in children for below in descendants(child))]


def cpu_s(pids: list[int]) -> float:
    """CPU time of these processes, and of their children that have ended."""
    ticks = 0
    for pid in pids:
        ticks += sum(map(int, read(pid, "stat").rpartition(")")[2].split()[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


async def cpu_of(server: int) -> float:
    """CPU time of a server with its children, once no file server is left."""
    while any("common.sftp" in read(pid, "cmdline") for pid in descendants(server)):
        await asyncio.sleep(0.02)
    return cpu_s(descendants(server))


async def start_session(client: Client, key: Path) -> None:
    await client.ssh_keys.create(
        SshKeySpec(public_key=Path(f"{key}.pub").read_text(), name="bench")
    )
    await client.sessions.create(SessionSpec(name="files", type=SessionType.INTERACTIVE))
    while (await client.sessions.get("files")).status is not Status.RUNNING:
        await asyncio.sleep(0.05)


async def measure(mib: int, rounds: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="moorage-sftp-", dir="/dev/shm") as name:
        folder = Path(name)
        source = folder / "source"
        key = folder / "key"
        port = free_port()
        source.write_bytes(os.urandom(1024 * 1024) * mib)
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
        settings = {"MOORAGE_PROXY__SSH_LISTEN": f"127.0.0.1:{port}"}
        async with (
            all_in_one(folder / "home", settings) as platform,
            bare_server(folder, key) as (bare, of_bare),
        ):
            await start_session(platform.client, key)
            pids = {"asyncssh": of_bare}
            pids["moorage"] = next(one for one in descendants(os.getpid())[1:] if one != of_bare)
            seconds: dict[tuple[str, str, str], list[float]] = {}
            cpu: dict[tuple[str, str, str], list[float]] = {}
            for _ in range(rounds):
                for cipher, way in ((cipher, way) for cipher in CIPHERS for way in ("put", "get")):
                    turns = [("asyncssh", bare, "/"), ("moorage", port, "/default/files/")]
                    random.shuffle(turns)
                    for server, at, there in turns:
                        put = f"put {source} {there}file"
                        get = f"get {there}file {folder}/back"
                        line = put if way == "put" else get
                        before = await cpu_of(pids[server])
                        took = await asyncio.to_thread(
                            transfer, at, key, "admin", cipher, line=line
                        )
                        used = await cpu_of(pids[server]) - before
                        seconds.setdefault((cipher, way, server), []).append(took)
                        cpu.setdefault((cipher, way, server), []).append(used)

            await platform.client.sessions.stop("files")
            while (await platform.client.sessions.get("files")).status is not Status.TERMINATED:
                await asyncio.sleep(0.05)

    result = {}
    for (cipher, way, server), values in seconds.items():
        name = f"{cipher.partition('@')[0]} {way} {server}"
        result[name] = mib / statistics.median(values)
        result[f"{name} cpu"] = statistics.median(cpu[cipher, way, server])

    return result


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found = machine()
    result = asyncio.run(measure(options.mib, options.rounds))
    print(machine_line(found))
    print(
        f"{'MiB/s; CPU s of the server':26} asyncssh   moorage   ratio (goal {GOAL:g})   asyncssh   moorage"
    )

    for name in dict.fromkeys(" ".join(key.split()[:2]) for key in result):
        bare = result[f"{name} asyncssh"]
        ours = result[f"{name} moorage"]
        used = "".join(
            f"{result[f'{name} {server} cpu']:11.2f}" for server in ("asyncssh", "moorage")
        )
        print(f"{name:26} {bare:8.0f} {ours:9.0f} {ours / bare:7.2f}            {used}")

    if options.json:
        options.json.write_text(json.dumps({"machine": found, **result}))


if __name__ == "__main__":
    main()
