"""Proxies in the proxy benchmark: Moorage with its manager, and its peers, all in front of the same
upstream.

Peers that are not installed are skipped. Every proxy runs on one core, everything else on the
others.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from cluster import Cluster, free_port, start_cluster
from measuring import Caller, cpu_s, family
from moorage.common.config.settings import ProxySettings

HERE = Path(__file__).parent
CHAT = (
    b'{"model":"bench","messages":[{"role":"user","content":"How deep is the harbour '
    b'here?"}],"max_tokens":5}'
)
ALWAYS = ("direct", "nginx", "haproxy", "aiohttp", "moorage")
VARIANTS = ("moorage-2", "moorage-compiled", "moorage-compiled-2")
# From PyPI, each in a separate environment; they take minutes to install.
FROM_PYPI = {"litellm": "litellm[proxy]", "vllm-router": "vllm-router"}
VENVS = HERE.parent / ".venv-peers"
COMPILED = HERE.parent / "build" / "compiled" / "packages"  # tools/compiled
LITELLM_KEY = f"sk-{secrets.token_hex(32)}"
_START_S = 120.0
_CORES = sorted(os.sched_getaffinity(0))
PROXY_CORE = {_CORES[-1]}
LOAD_CORES = set(_CORES[:-1]) or PROXY_CORE

NGINX = """
daemon off;
worker_processes 1;
worker_rlimit_nofile 60000;
pid {home}/nginx.pid;
error_log {home}/nginx.log warn;
events {{ worker_connections 30000; }}
http {{
  access_log off;
  client_body_temp_path {home}/a; proxy_temp_path {home}/b; fastcgi_temp_path {home}/c;
  uwsgi_temp_path {home}/d; scgi_temp_path {home}/e;
  keepalive_requests 1000000000;
  upstream engine {{ server 127.0.0.1:{upstream}; keepalive 512; keepalive_requests 1000000000; }}
  server {{
    listen 127.0.0.1:{port} backlog=8192;
    location / {{ proxy_pass http://engine; proxy_http_version 1.1; proxy_set_header Connection ""; }}
  }}
}}
"""
HAPROXY = """
global
  nbthread 1
  maxconn 9000
defaults
  mode http
  timeout connect 5s
  timeout client 300s
  timeout server 300s
  http-reuse always
  option http-no-delay
frontend f
  bind 127.0.0.1:{port} backlog 8192
  default_backend b
backend b
  server s 127.0.0.1:{upstream} pool-max-conn -1
"""


@dataclass
class Proxy:
    """A running proxy. ``pid`` is 0 for the upstream itself, without a proxy. ``internal``: port of
    Moorage's metrics."""

    name: str
    port: int
    pid: int
    key: str = "none"
    internal: int = 0

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self.port

    def cpu_s(self) -> float:
        return sum(map(cpu_s, family(self.pid))) if self.pid else 0.0


@contextmanager
def running(
    log: Path, *command: str, env: dict[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A process on the proxies' core, stopped at the end."""
    with log.open("ab") as out:
        pinned = ["taskset", "--cpu-list", ",".join(map(str, PROXY_CORE)), *command]
        process = subprocess.Popen(pinned, stdout=out, stderr=out, env=env)

    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def command_line(name: str, port: int, upstream: int, home: Path) -> tuple[str, ...] | str:
    """A peer's command or, if it is not installed, the reason."""
    if name == "aiohttp":
        return sys.executable, str(HERE / "proxy_relay.py"), str(port), str(upstream)

    if name in ("nginx", "haproxy"):
        path = shutil.which(name) or shutil.which(name, path="/usr/sbin")
        if path is None:
            return f"{name} is not installed (apt install {'nginx-light' if name == 'nginx' else name})"

        configuration = home / f"{name}.cfg"
        template = NGINX if name == "nginx" else HAPROXY
        configuration.write_text(template.format(port=port, upstream=upstream, home=home))
        return (
            (path, "-c", str(configuration))
            if name == "nginx"
            else (path, "-db", "-f", str(configuration))
        )

    program = VENVS / name / "bin" / name
    if not program.exists():
        return f"{name} is not installed (--install)"

    if name == "vllm-router":
        worker = f"http://127.0.0.1:{upstream}"
        address = (
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
            "--prometheus-port",
            str(free_port()),
        )
        return str(program), "--worker-urls", worker, "--policy", "round_robin", *address

    configuration = home / "litellm.yaml"
    engine = {
        "model": "openai/bench",
        "api_base": f"http://127.0.0.1:{upstream}/v1",
        "api_key": "none",
    }
    models = [{"model_name": "bench", "litellm_params": engine}]
    general = {"master_key": LITELLM_KEY}  # it does not start without one
    configuration.write_text(json.dumps({"model_list": models, "general_settings": general}))
    address = ("--host", "127.0.0.1", "--port", str(port), "--num_workers", "1")

    return str(program), "--config", str(configuration), *address


def install(name: str) -> None:
    """A peer from PyPI, in a separate environment."""
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(VENVS / name)], check=True)
    pip = VENVS / name / "bin" / "pip"
    subprocess.run([str(pip), "install", "--quiet", FROM_PYPI[name]], check=True)


async def answers(proxy: Proxy) -> bool:
    caller = Caller(*proxy.address, proxy.key)
    try:
        async with asyncio.timeout(5):
            return (await caller.call("POST", "/v1/chat/completions", CHAT))[0] == 200
    except (OSError, EOFError, ValueError, TimeoutError):
        return False
    finally:
        caller.close()


async def until(holds: Callable[[], object], what: str) -> None:
    try:
        async with asyncio.timeout(_START_S):
            while not (value := holds()) or (asyncio.iscoroutine(value) and not await value):
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise SystemExit(f"waited {_START_S:g} s for {what}") from None


class Site:
    """A manager with an agent, whose kernels are the upstream. ``upstream``: the port of the first
    one."""

    def __init__(self, cluster: Cluster, home: Path, env: dict[str, str]) -> None:
        self.cluster = cluster
        self.home = home
        self.env = env
        self.engines = home / "engines"
        self.upstream = 0

    async def serve(self, replicas: int) -> None:
        self.engines.mkdir()
        upstream = [sys.executable, str(HERE / "proxy_upstream.py"), "{port}", str(self.engines)]
        endpoint = {
            "name": "bench", "engine": "custom", "command": upstream, "probe": {"path": "/"},
            "resources": {"cpu": 0.1}, "replicas": replicas,
        }  # fmt: skip
        status, answer = await self.cluster.caller().call(
            "POST", "/v1/endpoints", json.dumps(endpoint).encode()
        )
        if status != 201:
            raise SystemExit(f"the endpoint was refused: {answer.decode()}")

        await until(lambda: self.kernels(), "the first replica")
        self.upstream = next(iter(self.kernels().values()))

    def kernels(self) -> dict[int, int]:
        """Ports of the live replicas, by process id."""
        pairs = (
            path.read_text().split() for path in self.engines.glob("[0-9]*") if not path.suffix
        )
        found = {int(pid): int(port) for pid, port in pairs}
        return {pid: port for pid, port in found.items() if Path(f"/proc/{pid}").exists()}

    @asynccontextmanager
    async def proxy(self, name: str, **settings: str) -> AsyncIterator[Proxy]:
        port = free_port()
        internal = free_port()
        env = self.env | {
            f"MOORAGE_PROXY__{key.upper()}": value
            for key, value in (settings | {"id": name}).items()
        }
        if "compiled" in name.split("-"):
            env["PYTHONPATH"] = str(COMPILED)

        listen = ("--listen", f"127.0.0.1:{port}", "--internal-listen", f"127.0.0.1:{internal}")
        home = str(self.home / name)
        command = (sys.executable, "-m", "moorage", "proxy", "--home", home, *listen)
        with running(self.home / f"{name}.log", *command, env=env) as process:
            started = Proxy(name, port, pid=process.pid, key=self.cluster.key, internal=internal)
            await until(
                lambda: answers(started), f"an answer through {name}; see {self.home / name}.log"
            )
            yield started


@asynccontextmanager
async def site(replicas: int = 1) -> AsyncIterator[Site]:
    os.sched_setaffinity(0, LOAD_CORES)
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(start_cluster(0))
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="moorage-proxy-")))
        first = 23_000 + os.getpid() % 5000
        env = {name: value for name, value in os.environ.items() if not name.startswith("MOORAGE_")}
        env |= {
            "MOORAGE_COMMON__LOG_LEVEL": "warning",
            "MOORAGE_COMMON__LINK_TOKEN": "bench",
            "MOORAGE_COMMON__LINK_TLS": "off",
            "MOORAGE_AGENT__MANAGER": f"127.0.0.1:{cluster.link}",
            "MOORAGE_AGENT__STOP_KERNELS_ON_EXIT": "true",
            "MOORAGE_PROXY__MANAGER": f"127.0.0.1:{cluster.link}",
        }
        command = [
            sys.executable,
            "-m",
            "moorage",
            "agent",
            "--id",
            "node",
            "--home",
            str(home / "node"),
        ]
        command += [
            "--set",
            f"agent.port_range={first}-{first + 99}",
            "--set",
            'agent.runtimes=["process"]',
        ]
        log = stack.enter_context((home / "agent.log").open("wb"))
        agent = subprocess.Popen(command, env=env, stdout=log, stderr=log)
        stack.callback(agent.wait, 60)
        stack.callback(agent.terminate)
        started = Site(cluster, home, env)
        await started.serve(replicas)
        yield started


@asynccontextmanager
async def proxies(site: Site, names: list[str]) -> AsyncIterator[dict[str, Proxy]]:
    """All of ``names`` that are available, running side by side."""
    async with AsyncExitStack() as stack:
        found: dict[str, Proxy] = {}
        for name in names:
            if name == "direct":
                found[name] = Proxy(name, site.upstream, 0)
            elif name.startswith("moorage"):
                settings = _variant(name)
                if isinstance(settings, str):
                    print(f"skipped: {name}: {settings}", file=sys.stderr)
                    continue

                found[name] = await stack.enter_async_context(site.proxy(name, **settings))
            else:
                port = free_port()
                command = command_line(name, port, site.upstream, site.home)
                if isinstance(command, str):
                    print(f"skipped: {command}", file=sys.stderr)
                    continue

                process = stack.enter_context(running(site.home / f"{name}.log", *command))
                found[name] = Proxy(
                    name, port, process.pid, LITELLM_KEY if name == "litellm" else "none"
                )
                await until(lambda name=name: answers(found[name]), f"an answer through {name}")

        yield found


def _variant(name: str) -> dict[str, str] | str:
    """Settings of ``moorage`` and its variants: ``-simple`` is the other plane, ``-2`` has two
    workers, ``-compiled`` runs the code built by ``tools/compiled``. If there is no such variant,
    returns the reason."""
    found: dict[str, str] = {}
    for variant in name.split("-")[1:]:
        if variant == "compiled":
            if not COMPILED.exists():
                return f"{COMPILED} does not exist (tools/compiled)"
        elif variant.isdigit():
            found["workers"] = variant
        else:
            found["plane"] = variant

    unknown = found.keys() - ProxySettings.model_fields.keys()
    return f"this release has no setting {unknown.pop()}" if unknown else found
