"""Builds the image of the daemons from its Dockerfile and the packages of this machine, without a
registry."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import re
import shutil
import subprocess
import tempfile
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from tests import wheel

from .images import PYTHON_IMAGE

IMAGE = "moorage-test/daemons:1"
_CHECKOUT = Path(__file__).parents[2]
DOCKERFILE = _CHECKOUT / "deploy" / "docker" / "Dockerfile"
_EXTRAS = ("manager", "agent", "proxy")
# The timestamp of the files in the image.
EPOCH = 1_700_000_000


def ensure(api: Any, folder: Path) -> None:
    """Build the image unless the engine has it. ``folder`` must be accessible to the engine."""
    if not api.images(IMAGE):
        with tempfile.TemporaryDirectory(dir=folder) as context:
            _build(api, Path(context))


def _build(api: Any, folder: Path) -> None:
    context = folder / "context"
    base = folder / "base"
    site = context / packages().PLACE
    with zipfile.ZipFile(wheel.build(folder)) as packed:
        packed.extractall(site)

    for name in _needed():
        _copy(name, site)

    packages().finish(context, EPOCH)
    text = f"FROM {PYTHON_IMAGE}\nCOPY libraries /opt/python/lib\n"
    _add_libraries(api, base, text, IMAGE + "-base", site=site)
    build(api, context, DOCKERFILE.read_text(), IMAGE, args={"BASE": IMAGE + "-base"})


@functools.cache
def packages() -> Any:
    """deploy/docker/packages.py, which is a program and not a module in a package."""
    spec = importlib.util.spec_from_file_location("packages", DOCKERFILE.with_name("packages.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _add_libraries(api: Any, folder: Path, text: str, tag: str, *, site: Path) -> None:
    """Add the libraries that Python extensions need and that the minimal test image does not
    have."""
    libraries = folder / "libraries"
    libraries.mkdir(parents=True)
    extensions = [str(path) for path in site.rglob("*.so*")]
    output = subprocess.run(
        ["ldd", *extensions], capture_output=True, text=True, check=False
    ).stdout
    for path in set(re.findall(r"=> (/\S+) \(0x", output)):
        if not Path(path).is_relative_to(site):
            shutil.copy(path, libraries / Path(path).name)

    build(api, folder, text, tag, args={})


def build(
    api: Any, folder: Path, text: str, tag: str, *, args: dict[str, str], nocache: bool = False
) -> None:
    """``text``: the Dockerfile; ``folder``: the build context. Fails with the output of the
    build."""
    (folder / "Dockerfile").write_text(text)
    output = []
    options = {"rm": True, "decode": True, "buildargs": args, "nocache": nocache}
    for line in api.build(path=str(folder), tag=tag, **options):
        output.append(str(line.get("stream") or line.get("error") or ""))
        assert "error" not in line, "".join(output)


def _needed() -> set[str]:
    """The names of all distributions that the daemons need, according to pyproject.toml."""
    project = tomllib.loads((_CHECKOUT / "pyproject.toml").read_text())["project"]
    declared = [
        *project["dependencies"],
        *(r for e in _EXTRAS for r in project["optional-dependencies"][e]),
    ]
    pending = [Requirement(one) for one in declared]
    seen = set()
    while pending:
        one = pending.pop()
        extras = ("", *sorted(one.extras))
        if (one.name, extras) in seen:
            continue

        seen.add((one.name, extras))
        # for another platform or Python version
        with contextlib.suppress(metadata.PackageNotFoundError):
            required = [Requirement(text) for text in metadata.requires(one.name) or []]
            pending += [
                r
                for r in required
                if not r.marker or any(r.marker.evaluate({"extra": e}) for e in extras)
            ]

    return {name for name, _ in seen}


def _copy(name: str, site: Path) -> None:
    try:
        files = metadata.files(name) or []
    except metadata.PackageNotFoundError:
        return  # for another platform or Python version

    for file in files:
        source = Path(str(file.locate()))
        if ".." in file.parts or "__pycache__" in file.parts or not source.is_file():
            continue

        (site / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, site / file)
