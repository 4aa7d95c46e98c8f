"""Renderings of ``deploy/kubernetes``, as ``kubectl kustomize`` produces them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.trixie import KUBECTL

SOURCE = Path(__file__).parents[2] / "deploy" / "kubernetes"
OVERLAYS = ("trial", "cluster")
# The files that an overlay expects next to it, and the Secret that docs/kubernetes.md creates
# later.
SECRETS = {
    "dsn": "postgresql://moorage:s3cret@moorage-postgres:5432/moorage\n",
    "ca-secret": "a passphrase for the authority\n",
    "secrets-keys": "a key that encrypts secrets\n",
    "admin-key": "mg-0123456789abcdef0123456789abcdef\n",
    "postgres-password": "s3cret",
}
LATER = "moorage-join-tokens"


def kustomize(overlay: str, folder: Path, **secrets: str) -> str:
    """The YAML of an overlay, from a copy of the manifests in ``folder``."""
    copy = folder / "kubernetes"
    shutil.copytree(SOURCE, copy, dirs_exist_ok=True)
    for name, text in (SECRETS | secrets).items():
        (copy / overlay / name).write_text(text)

    done = subprocess.run(
        [KUBECTL, "kustomize", str(copy / overlay)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


class Manifests:
    """The objects in a rendering."""

    def __init__(self, text: str) -> None:
        self.all: list[dict[str, Any]] = list(yaml.safe_load_all(text))

    def of(self, *kinds: str) -> list[dict[str, Any]]:
        return [one for one in self.all if one["kind"] in kinds]

    def pods(self) -> dict[str, dict[str, Any]]:
        """Each workload's pod template, by workload name."""
        workloads = self.of("Deployment", "StatefulSet", "DaemonSet")
        return {one["metadata"]["name"]: one["spec"]["template"] for one in workloads}


def containers(pod: dict[str, Any]) -> list[dict[str, Any]]:
    return [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]
