"""The image of the daemons, built by its own Dockerfile from this machine's packages, with no registry."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import tempfile
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

import moorage

from .images import PYTHON_IMAGE

IMAGE = "moorage-test/daemons:1"
_CHECKOUT = Path(__file__).parents[2]
_DOCKERFILE = _CHECKOUT / "deploy" / "docker" / "Dockerfile"
_EXTRAS = ("manager", "agent", "proxy")


def ensure(api: Any, folder: Path) -> None:
    """Build it, in a folder that the engine's user may enter, if the engine does not have it yet."""
    if not api.images(IMAGE):
        with tempfile.TemporaryDirectory(dir=folder) as made:
            _build(api, Path(made))


def _build(api: Any, folder: Path) -> None:
    site = folder / "site"
    shutil.copytree(Path(moorage.__file__).parent, site / "moorage", ignore=_no_caches)
    for name in _needed():
        _copy(name, site)
    _add_libraries(
        api, folder, "FROM " + PYTHON_IMAGE + "\nCOPY libraries /opt/python/lib\n", IMAGE + "-base", site
    )
    build(api, folder, _DOCKERFILE.read_text(), IMAGE, {"BASE": IMAGE + "-base"})


def _add_libraries(api: Any, folder: Path, text: str, tag: str, site: Path) -> None:
    """Extensions need libraries that the test's bare Python does not: an ordinary base has them."""
    libraries = folder / "libraries"
    libraries.mkdir()
    extensions = [str(path) for path in site.rglob("*.so*")]
    said = subprocess.run(["ldd", *extensions], capture_output=True, text=True, check=False).stdout
    for path in set(re.findall(r"=> (/\S+) \(0x", said)):
        if not Path(path).is_relative_to(site):
            shutil.copy(path, libraries / Path(path).name)
    build(api, folder, text, tag, {})


def build(api: Any, folder: Path, text: str, tag: str, args: dict[str, str]) -> None:
    """``text`` is the Dockerfile, ``folder`` the context. Fails with what the engine says."""
    (folder / "Dockerfile").write_text(text)
    said = []
    for line in api.build(path=str(folder), tag=tag, rm=True, decode=True, buildargs=args):
        said.append(str(line.get("stream") or line.get("error") or ""))
        assert "error" not in line, "".join(said)


def _needed() -> set[str]:
    """The names of all distributions that the daemons need, as the checkout says now."""
    project = tomllib.loads((_CHECKOUT / "pyproject.toml").read_text())["project"]
    said = [*project["dependencies"], *(r for e in _EXTRAS for r in project["optional-dependencies"][e])]
    waiting, seen = [Requirement(one) for one in said], set()
    while waiting:
        one = waiting.pop()
        extras = ("", *sorted(one.extras))
        if (one.name, extras) in seen:
            continue
        seen.add((one.name, extras))
        with contextlib.suppress(metadata.PackageNotFoundError):  # of another system or Python
            more = [Requirement(text) for text in metadata.requires(one.name) or []]
            waiting += [
                r for r in more if not r.marker or any(r.marker.evaluate({"extra": e}) for e in extras)
            ]
    return {name for name, _ in seen}


def _copy(name: str, site: Path) -> None:
    try:
        files = metadata.files(name) or []
    except metadata.PackageNotFoundError:
        return  # of another system or Python
    for file in files:
        source = Path(str(file.locate()))
        if ".." in file.parts or "__pycache__" in file.parts or not source.is_file():
            continue
        (site / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, site / file)


def _no_caches(folder: str, names: list[str]) -> set[str]:
    return {name for name in names if name == "__pycache__"}
