"""Recipes for the environments of engines. Pure."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

_CPU = Path(__file__).with_name("vllm_cpu")
_CUDA_PACKAGE = "vllm>=0.32,<1"
_GIB = 1024**3
BUILDS = ("cpu", "cuda")
# The index with CPU builds of PyTorch, which PyPI lacks.
_TORCH_INDEX = "https://download.pytorch.org/whl/cpu"


@dataclass(frozen=True, slots=True)
class InstallStep:
    """Arguments for the environment's Python. ``instead``: arguments to try if the first ones
    fail."""

    arguments: tuple[str, ...]
    instead: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Recipe:
    """A recipe. ``key``: identifies the result; recipes with the same key share an environment.
    ``size``: bytes needed on disk during the installation. ``packages``: the number of packages, 0
    if not known in advance."""

    engine: str
    key: str
    steps: tuple[InstallStep, ...]
    size: int
    packages: int = 0


def vllm_recipe(build: str, python: str, package: str = "") -> Recipe:
    """The recipe for vLLM. ``build``: cpu or cuda. ``python``: the Python version. ``package``: a
    requirement that replaces the build's default."""
    if package or build == "cuda":
        steps: tuple[InstallStep, ...] = (InstallStep(_pip("install", package or _CUDA_PACKAGE)),)
        return Recipe("vllm", _key(python, package or _CUDA_PACKAGE), steps, 16 * _GIB)

    pinned = ("install", "--no-deps")
    requirements = _CPU / "requirements.txt"
    torch = _pip(*pinned, "-r", str(_CPU / "torch.txt"))
    steps = (
        InstallStep(_pip(*pinned, "--require-hashes", "-r", str(requirements))),
        InstallStep(torch, (*torch, "--extra-index-url", _TORCH_INDEX)),
        InstallStep((str(_CPU / "name_vllm.py"),)),
    )
    text = requirements.read_text()

    return Recipe("vllm", _key(python, text), steps, 5 * _GIB, packages=text.count("==") + 1)


def _pip(*arguments: str) -> tuple[str, ...]:
    return ("-m", "pip", "--disable-pip-version-check", "--no-input", *arguments)


def _key(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]
