"""deploy/compose with a real `docker compose`, started as the file's header describes."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.addresses import free_port
from tests.trixie import COMPOSE

from . import official_postgres
from .daemon_image import IMAGE, ensure
from .engine import PrivateEngine
from .images import PYTHON_IMAGE
from .polling import until
from .postgres_image import programs

pytestmark = [pytest.mark.xdist_group("platform"), pytest.mark.timeout(240, func_only=True)]
FILE = Path(__file__).parents[2] / "deploy" / "compose" / "compose.yaml"
PLUGINS = (
    "~/.docker",
    "/usr/local/lib/docker",
    "/usr/local/libexec/docker",
    "/usr/lib/docker",
    "/usr/libexec/docker",
    str(COMPOSE.parents[1]),
)


def compose() -> str:
    """Path of Docker Compose 2 or newer; skips the test if there is none."""
    candidates = [
        shutil.which("docker-compose"),
        *(f"{folder}/cli-plugins/docker-compose" for folder in PLUGINS),
    ]
    for candidate in candidates:
        if candidate and os.access(path := os.path.expanduser(candidate), os.X_OK):
            output = subprocess.run(
                [path, "version"], capture_output=True, text=True, check=False
            ).stdout
            if re.search(r"version v?([2-9]|\d\d)\.", output):
                return path

    pytest.skip("no Docker Compose 2 is installed (make test-deploy has it)")


class Project:
    """A copy of the compose file with its own ports, socket and directories. ``project("up",
    "-d")`` runs ``docker compose up -d``."""

    def __init__(self, engine: PrivateEngine, folder: Path) -> None:
        self.folder = folder
        self._engine = engine
        self._program = compose()
        self.ports = {port: free_port() for port in (5432, 8700, 8701, 8800)}
        text = FILE.read_text()
        for port, free in self.ports.items():
            text = text.replace(f":{port}", f":{free}")

        text = text.replace(
            '"max_connections=200"', f'"max_connections=200", "-c", "port={self.ports[5432]}"'
        )
        text = text.replace('"-h", "127.0.0.1"', f'"-h", "127.0.0.1", "-p", "{self.ports[5432]}"')
        text = text.replace("/var/run/docker.sock:", f"{engine.socket}:")
        text = text.replace("/var/lib/docker:/var/lib/docker:", f"{engine.data}:{engine.data}:")
        text = text.replace("/var/lib/moorage-agent", str(folder / "agent"))
        (folder / "agent").mkdir()
        (folder / "compose.yaml").write_text(text)
        (folder / "postgres-password").write_text("s3cret")
        (folder / "dsn").write_text(
            f"postgresql://moorage:s3cret@127.0.0.1:{self.ports[5432]}/moorage\n"
        )

    def __call__(self, *arguments: str, stdin: str = "") -> str:
        """Returns the standard output."""
        env = os.environ | {
            "DOCKER_HOST": f"unix://{self._engine.socket}",
            "MOORAGE_IMAGE": IMAGE,
            "POSTGRES_IMAGE": official_postgres.IMAGE,
        }
        done = subprocess.run(
            [self._program, *arguments],
            cwd=self.folder, env=env, capture_output=True, text=True, timeout=120, check=False, input=stdin,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr

        return done.stdout

    def moorage(self, *arguments: str) -> str:
        return self("exec", "-T", "manager", "python3", "-m", "moorage", *arguments)


@pytest.fixture
def project(docker_engine: PrivateEngine, reachable_dir: Path) -> Iterator[Project]:
    bin_dir = programs()
    if bin_dir is None:
        pytest.skip("Debian's package postgresql is not installed")

    with (
        tempfile.TemporaryDirectory(dir=reachable_dir) as folder,
        contextlib.closing(docker_engine.api()) as api,
    ):
        project = Project(docker_engine, Path(folder))
        ensure(api, reachable_dir)
        official_postgres.ensure(api, docker_engine.socket, reachable_dir, bin_dir)

        try:
            yield project
        finally:
            project("down", "--volumes", "--timeout", "20")
            for kernel in api.containers(all=True, filters={"label": "moorage.kernel"}):
                api.remove_container(kernel["Id"], force=True)


def test_compose_file_as_documented(project: Project) -> None:
    project("up", "-d", "--wait", "postgres", "manager")
    url = f"http://127.0.0.1:{project.ports[8700]}"
    project.moorage("--url", url, "agents")
    agent = project.moorage("--url", url, "join-tokens", "create").strip()
    proxy = project.moorage("--url", url, "join-tokens", "create", "--proxy").strip()
    assert "joined" in project("run", "--rm", "-T", "agent", "agent", "join", url, stdin=agent)
    assert "joined" in project("run", "--rm", "-T", "proxy", "proxy", "join", url, stdin=proxy)
    project("up", "-d")
    small = ("--image", PYTHON_IMAGE, "--resources", "cpu=0.1", "--resources", "mem=64MiB")
    output = project.moorage(
        "--url", url, "run", *small, "--", "python3", "-c", "print('in a container')"
    )
    assert output == "in a container\n"
    project.moorage("--url", url, "start", "--name", "dev", *small)
    project("restart", "agent", "manager")
    command = ("--url", url, "exec", "dev", "--", "python3", "-c", "print('still here')")
    until(
        "agent and manager are back, and the container still runs",
        lambda: project.moorage(*command) == "still here\n",
    )
    assert "cannot read the usage" not in project("logs", "agent")
    assert "route feed connected" in project("logs", "proxy")
