"""Tests of isolation on cgroup v2, in a virtual machine: ``python -m tests.cgroup2``.

Machines with cgroup v1, such as those of CI, cannot run them otherwise. QEMU emulates the
processor, so no virtualization is needed. The machine runs Debian's cloud kernel, and has the files
of this machine that the tests use. Installs QEMU on Debian, and downloads the kernel. Exits with 1
if the tests fail, and prints the reason if they could not run.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from tests.cgroup2.archive import Archive
from tests.cgroup2.guest import RESULT
from tests.containers.prepare import install

ROOT = Path(__file__).parents[2]
TESTS = (
    "tests/isolation/test_hostile_process.py",
    "tests/isolation/test_kernel_networks.py",
    "tests/isolation/test_sandbox_parts.py",
    "tests/isolation/test_disks.py",
)
_OPTIONS = (
    *("-p", "pytest_asyncio.plugin", "-p", "pytest_timeout", "-p", "no:cacheprovider"),
    *("--timeout=600", "--confcutdir=tests/isolation", "-m", "isolation and not docker"),
)
_QEMU = "qemu-system-x86_64"
_KERNEL = "linux-image-cloud-amd64"
_PROGRAMS = (
    *("sh", "sleep", "true", "cat", "id", "env", "nft", "ip", "nsenter", "uname", "ldconfig"),
    *("mkfs.ext4", "mount", "umount", "head", "stat"),
)
_FILES = ("passwd", "group", "shadow", "nsswitch.conf", "resolv.conf", "hosts", "ld.so.cache")
_MODULES = (
    *(
        "nf_tables",
        "nf_conntrack",
        "nft_ct",
        "nft_chain_nat",
        "nft_nat",
        "nft_masq",
        "nft_reject_inet",
    ),
    *("nft_fib_ipv4", "nft_fib_ipv6", "nft_fib_inet", "veth", "bridge", "loop", "quota_v2"),
)
_UNUSED = (
    "test",
    "tests",
    "idlelib",
    "lib2to3",
    "ensurepip",
    "tkinter",
    "site-packages",
    "__pycache__",
)
_TIMEOUT_S = 900
_FILES_OF_MODULES = (
    "import json, pytest, sys\n"
    "code = pytest.main([*sys.argv[1:], '--collect-only', '-q'])\n"
    "files = [getattr(module, '__file__', None) for module in sys.modules.values()]\n"
    "print('\\n' + json.dumps([int(code), [file for file in files if file]]))\n"
)


def _environment() -> dict[str, str]:
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
        "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "HOME": "/root",
    }


def _imported() -> list[str]:
    """The files of the Python modules that the tests import."""
    argv = [sys.executable, "-c", _FILES_OF_MODULES, *_OPTIONS, *TESTS]
    done = subprocess.run(
        argv, cwd=ROOT, env=_environment(), capture_output=True, text=True, check=True
    )
    *output, last = done.stdout.splitlines()
    code, files = json.loads(last)
    assert code == 0, "\n".join(output)
    return [str(file) for file in files]


def _archive(kernel: Path) -> Archive:
    archive = Archive()
    site = sysconfig.get_path("purelib")
    packages = {
        os.path.join(site, os.path.relpath(file, site).split(os.sep)[0])
        for file in _imported()
        if file.startswith(site + os.sep)
    }
    libraries = []
    for package in packages:
        archive.add(package)
        archive.add_tree(package, ("__pycache__",))
        libraries += [str(path) for path in Path(package).rglob("*.so")]

    for folder in Path(site).glob("*.dist-info"):
        archive.add_tree(str(folder))

    stdlib = sysconfig.get_path("stdlib")
    archive.add_tree(stdlib, _UNUSED)
    libraries += map(str, Path(stdlib, "lib-dynload").glob("*.so"))
    for folder in (ROOT / "src", ROOT / "tests"):
        archive.add_tree(str(folder))

    archive.add(str(ROOT / "pyproject.toml"))
    archive.add(str(Path(sys.prefix) / "pyvenv.cfg"))
    programs = [
        path for name in _PROGRAMS if (path := shutil.which(name, path=_environment()["PATH"]))
    ]
    archive.add_programs([sys.executable, *programs, *libraries])
    for name in _FILES:
        if os.path.exists(f"/etc/{name}"):
            archive.add(f"/etc/{name}")

    archive.make_console()
    modules = _with_needed(kernel)
    for path in modules:
        archive.write(f"/{path.name}", path.read_bytes())

    task = {
        "modules": [f"/{path.name}" for path in modules],
        "argv": [sys.executable, "-m", "pytest", *_OPTIONS, *sys.argv[1:], *TESTS],
        "env": _environment(),
        "cwd": str(ROOT),
    }
    archive.write("/tests.json", json.dumps(task).encode())
    script = f"#!{sys.executable}\n{Path(__file__).with_name('guest.py').read_text()}"
    archive.write("/init", script.encode())

    return archive


def _with_needed(kernel: Path) -> list[Path]:
    """The files of the modules, each preceded by the modules that it needs."""
    files = {path.stem.replace("-", "_"): path for path in kernel.rglob("*.ko")}
    found: list[Path] = []

    def add(name: str) -> None:
        path = files[name]
        needed = re.search(rb"\0depends=([^\0]*)\0", path.read_bytes())
        for other in needed.group(1).decode().split(",") if needed else ():
            if other:
                add(other.replace("-", "_"))
        if path not in found:
            found.append(path)

    for name in _MODULES:
        add(name)

    return found


def _download_kernel(folder: Path) -> Path:
    """Debian's kernel, unpacked. Raises ``CalledProcessError``."""
    depends = subprocess.run(
        ["apt-cache", "depends", _KERNEL], capture_output=True, text=True, check=True
    ).stdout
    package = re.search(r"Depends: (\S+)", depends)
    assert package is not None, f"apt knows no {_KERNEL}"
    subprocess.run(["apt-get", "-qq", "download", package.group(1)], cwd=folder, check=True)
    [archive] = folder.glob("*.deb")
    subprocess.run(["dpkg-deb", "-x", archive, folder / "kernel"], check=True)
    archive.unlink()

    return folder / "kernel"


def _run(folder: Path) -> int:
    kernel = _download_kernel(folder)
    _archive(kernel).save(folder / "archive")
    [image] = (kernel / "boot").glob("vmlinuz-*")
    argv = [
        *(
            _QEMU,
            "-accel",
            "tcg",
            "-cpu",
            "max",
            "-smp",
            "2",
            "-m",
            "3072",
            "-nographic",
            "-no-reboot",
        ),
        *("-nic", "none", "-kernel", image, "-initrd", folder / "archive"),
        *("-append", "console=ttyS0 quiet panic=-1 rdinit=/init"),
    ]
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
    ) as machine:
        try:
            assert machine.stdout is not None
            for line in machine.stdout:
                print(line, end="", flush=True)
                if line.startswith(RESULT):
                    return int(line.split()[-1] != "0")
        finally:
            machine.kill()

    return 1


def main() -> int:
    why = install({"qemu-system-x86": _QEMU, "nftables": "nft"})
    if platform.machine() != "x86_64":
        why = f"this machine is no x86-64, but {platform.machine()}"
    elif not why and os.geteuid() != 0:
        why = "they need root"

    if not why:
        with tempfile.TemporaryDirectory(prefix="moorage-cgroup2-") as folder:
            try:
                return _run(Path(folder))
            except subprocess.CalledProcessError as error:
                why = str(error)

    print(f"\n*** THE TESTS ON CGROUP V2 DID NOT RUN: {why}\n", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
