"""A machine booted by systemd, as a container: this machine's /usr, the daemons in /opt/moorage,
and the repository's units. It shares the network of the tests."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path
from typing import Any

from .daemon_image import IMAGE as DAEMONS
from .daemon_image import build

IMAGE = "moorage-test/systemd:1"
_DEPLOYED = Path(__file__).parents[2] / "deploy" / "systemd"
_LINKS = ("bin", "sbin", "lib", "lib64")
_FOLDERS = ("dev", "etc/moorage", "etc/systemd/system", "proc", "run", "sys", "usr", "var/lib")
# The image sets these variables in its environment, which systemd does not pass on.
_MOORAGE = """#!/bin/sh
export PYTHONHOME=/opt/python PYTHONPATH=/opt/site LD_LIBRARY_PATH=/opt/python/lib
exec /opt/python/bin/python3 -m moorage "$@"
"""
_ACCOUNTS = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\n",
    "etc/group": "root:x:0:\n",
    "etc/machine-id": f"{0:032x}\n",
    "etc/os-release": "ID=test\n",
}
_DOCKERFILE = f"""FROM {DAEMONS} AS daemons
FROM scratch
ADD root.tar /
COPY --from=daemons /opt/python /opt/python
COPY --from=daemons /opt/moorage /opt/site
"""
_PATH = "/opt/moorage/bin:/usr/sbin:/usr/bin"
_TMPFS = {"/run": "", "/tmp": ""}
# With cgroup v1 it shares the machine's hierarchy; with v2 it has its own namespace.
_CGROUPS = "/sys/fs/cgroup"
_INIT = """test -e /sys/fs/cgroup/cgroup.controllers && mount -o remount,rw /sys/fs/cgroup
exec /usr/lib/systemd/systemd --system --unit=multi-user.target"""


def missing_requirement() -> str:
    """The first missing requirement, or "" if none is known."""
    if not os.access("/usr/lib/systemd/systemd", os.X_OK):
        return "not installed: systemd"
    if not all(os.path.realpath(f"/{name}").startswith("/usr/") for name in ("bin", "sbin", "lib")):
        return "not all programs are below /usr"
    return ""


class Machine:
    """The caller closes it."""

    def __init__(self, api: Any, folder: Path, settings: str) -> None:
        """``folder``: the build context. ``settings``: the content of /etc/moorage/moorage.toml."""
        self._api = api
        with tarfile.open(folder / "root.tar", "w") as tar:
            _write(tar, settings)

        build(api, folder, _DOCKERFILE, IMAGE, args={})
        cgroup_v1 = not Path(_CGROUPS, "cgroup.controllers").exists()
        host = api.create_host_config(
            network_mode="host",
            cap_add=["SYS_ADMIN", "NET_ADMIN", "SYS_PTRACE"],
            security_opt=["seccomp=unconfined", "apparmor=unconfined"],
            binds=["/usr:/usr:ro", *([f"{_CGROUPS}:{_CGROUPS}:rw"] if cgroup_v1 else [])],
            tmpfs=_TMPFS,
        )
        environment = {"container": "docker", "PATH": _PATH}
        self._container = api.create_container(
            IMAGE, ["/bin/sh", "-c", _INIT], host_config=host, environment=environment
        )["Id"]
        api.start(self._container)

    def run(self, *command: str, user: str = "root", **env: str) -> tuple[int, str]:
        """Runs a command; returns the exit code and the output."""
        exec_id = self._api.exec_create(
            self._container, list(command), user=user, environment=env | {"PATH": _PATH}
        )["Id"]
        output = self._api.exec_start(exec_id).decode()
        return self._api.exec_inspect(exec_id)["ExitCode"], output

    def close(self) -> None:
        self._api.remove_container(self._container, force=True, v=True)


def _write(tar: tarfile.TarFile, settings: str) -> None:
    for name in _LINKS:
        link = tarfile.TarInfo(name)
        link.type = tarfile.SYMTYPE
        link.linkname = f"usr/{name}"
        tar.addfile(link)

    for name in _FOLDERS:
        folder = tarfile.TarInfo(name)
        folder.type = tarfile.DIRTYPE
        folder.mode = 0o755
        tar.addfile(folder)

    for name, text in (_ACCOUNTS | {"etc/moorage/moorage.toml": settings}).items():
        _text(tar, name, text, 0o644)

    _text(tar, "opt/moorage/bin/moorage", _MOORAGE, 0o755)
    for unit in sorted(_DEPLOYED.glob("*.service")):
        tar.add(unit, f"etc/systemd/system/{unit.name}")

    tar.add(_DEPLOYED / "moorage.sysusers", "etc/sysusers.d/moorage.conf")


def _text(tar: tarfile.TarFile, name: str, text: str, mode: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(text.encode())
    entry.mode = mode
    tar.addfile(entry, io.BytesIO(text.encode()))
