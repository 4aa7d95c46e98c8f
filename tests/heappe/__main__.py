"""The test server as a program: ``python -m tests.heappe --command PROGRAM``. Prints its URL; ends
when its standard input does.

Jobs run their template's command: in a shell, or with ``--slurm PARTITION`` in the Slurm of
``SLURM_CONF``.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys

from tests.heappe.cluster import Cluster, Script, ScriptedCluster
from tests.heappe.server import HeappeServer
from tests.heappe.site import Site, Template, Timing
from tests.heappe.slurm_site import SlurmSite
from tests.heappe.wire import PROFILES


async def serve(options: argparse.Namespace) -> None:
    commands = options.command or ["true"]
    templates = tuple(
        Template(
            11 + number, "engine" if not number else f"engine-{number + 1}", 7, command=command
        )
        for number, command in enumerate(commands)
    )
    cluster: Cluster
    if options.slurm:
        cluster = SlurmSite(os.environ, partition=options.slurm)
    else:
        cluster = ScriptedCluster()
        engine = {"program": "program", "played": None, "none": False}[options.engine]
        cluster.script = lambda job: Script(engine=engine, queue_s=options.queue_s)

    timing = Timing(poll_s=options.poll_s, cache_s=min(10.0, options.poll_s))
    server = HeappeServer(
        options.profile, site=Site(templates=templates), cluster=cluster, timing=timing
    )
    await server.start(options.port)

    try:
        print(server.url, flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    finally:
        await server.stop()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.heappe")
    parser.add_argument("--profile", choices=PROFILES, default=PROFILES[-1])
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument(
        "--poll-s", type=float, default=30.0, help="how often the database copies the cluster"
    )
    parser.add_argument(
        "--queue-s", type=float, default=0.0, help="how long a job waits, without Slurm"
    )
    parser.add_argument(
        "--command", action="append", help="executable of a command template; may repeat"
    )
    parser.add_argument(
        "--engine",
        choices=("program", "played", "none"),
        default="program",
        help="what a job runs without Slurm: the command, an engine within the server, or nothing",
    )
    parser.add_argument(
        "--slurm", metavar="PARTITION", default="", help="run jobs in this partition of Slurm"
    )
    asyncio.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
