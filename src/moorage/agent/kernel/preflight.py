"""What can be known before a kernel is started: its engine is installed, its model is there. Does IO."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import site as python_site
import sys
from pathlib import Path

from moorage.agent.engines.base import Site, is_path
from moorage.common.model.kernel import KernelSpec
from moorage.common.model.reasons import Reason


def this_site(vllm_command: str, vllm_image: str) -> Site:
    """What engines need to know of this node."""
    return Site(
        python=sys.executable,
        vllm_command=vllm_command,
        vllm_image=vllm_image,
        cores=len(os.sched_getaffinity(0)),
        home=os.environ.get("HOME") or str(Path.home()),
        user_base=python_site.getuserbase() or "",
    )


def installed(site: Site) -> tuple[str, ...]:
    """The engines that can run here; ``custom`` always can."""
    engines = {"llamacpp": _llamacpp_missing(), "vllm": _vllm_missing(site)}
    return (*(name for name, missing in engines.items() if not missing), "custom")


def missing(spec: KernelSpec, site: Site) -> tuple[Reason, str] | None:
    """Why it cannot start here, None if nothing is known to be missing."""
    lacks = ""
    if spec.engine == "llamacpp":
        lacks = _llamacpp_missing()
    elif spec.engine == "vllm":
        lacks = _vllm_missing(site)
    if lacks:
        return Reason.ENGINE_MISSING, lacks
    if spec.engine == "llamacpp" or (spec.engine == "vllm" and is_path(spec.model)):
        return _model_missing(spec)
    return None


def _llamacpp_missing() -> str:
    if importlib.util.find_spec("xllamacpp") is not None:
        return ""
    return "engine llamacpp needs the package xllamacpp: pip install 'moorage[llamacpp]' on this node"


def _vllm_missing(site: Site) -> str:
    words = shlex.split(site.vllm_command)
    if words and shutil.which(words[0]) is not None:
        return ""
    return (
        f"engine vllm: no program {site.vllm_command!r} on this node; install vLLM, or set agent.vllm_command"
    )


def _model_missing(spec: KernelSpec) -> tuple[Reason, str] | None:
    if not is_path(spec.model):
        return (
            Reason.MODEL_MISSING,
            f"llamacpp serves a GGUF file on this node; {spec.model!r} is not a path to one",
        )
    path = Path(spec.model)
    if not path.is_absolute():
        return (
            Reason.MODEL_MISSING,
            f"{spec.model!r} is relative, and kernels have their own directory: give a full path",
        )
    if not path.exists():
        return Reason.MODEL_MISSING, f"there is no {spec.model} on this node"
    if spec.engine == "llamacpp" and not path.is_file():
        return Reason.MODEL_MISSING, f"{spec.model} is not a file; llamacpp serves a GGUF file"
    return None
