"""Preflight checks before a kernel starts: its engine is installed on the node, and its model
exists. The checks do IO."""

from __future__ import annotations

import importlib.util
import os
import pwd
import shlex
import shutil
import site as python_site
import sys
from dataclasses import replace
from pathlib import Path

from moorage.agent import models
from moorage.agent.engines.base import UNNAMED_USER, NodeInfo, is_path
from moorage.agent.environments.layout import prepared_program
from moorage.agent.runtimes.base import Capabilities
from moorage.common.hub.selection import is_gguf_id
from moorage.common.model.kernel import KernelSpec
from moorage.common.model.reasons import Reason

_DEFAULT_VLLM = "vllm"


def describe_node(vllm_command: str, vllm_image: str, inherited: tuple[str, ...] = ()) -> NodeInfo:
    """The facts about this node that engines need."""
    return NodeInfo(
        python=sys.executable,
        vllm_command=vllm_command,
        vllm_image=vllm_image,
        inherited=inherited,
        cores=len(os.sched_getaffinity(0)),
        home=os.environ.get("HOME") or str(Path.home()),
        user=_own_user(),
        user_base=python_site.getuserbase() or "",
    )


def _own_user() -> str:
    """The name of the agent's user. In a container or a pod, its uid often has none."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return UNNAMED_USER


def with_prepared(node: NodeInfo) -> NodeInfo:
    """The node with its own installed engines, unless other engines are configured or found."""
    prepared = prepared_program(os.environ, "vllm")
    if node.vllm_command != _DEFAULT_VLLM or shutil.which(_DEFAULT_VLLM) or not prepared.exists():
        return node
    return replace(node, vllm_command=shlex.quote(str(prepared)))


def installed_engines(node: NodeInfo) -> tuple[str, ...]:
    """The engines that can run on this node; ``custom`` always can."""
    engines = {"llamacpp": _find_llamacpp_problem(), "vllm": _find_vllm_problem(node)}
    return (*(name for name, problem in engines.items() if not problem), "custom")


def find_unsupported(spec: KernelSpec, capabilities: Capabilities) -> str:
    """The features that the kernel needs and its runtime lacks; empty if there are none."""
    wanted = {
        "`cluster`": spec.cluster is not None and not capabilities.clusters,
        "`ports`": bool(spec.ports) and not capabilities.service_ports,
        "`workspace`": bool(spec.workspace)
        and not capabilities.workspaces
        and not capabilities.simulated,
        "`outputs` and `inputs`": bool(spec.outputs or spec.inputs)
        and not (capabilities.simulated or capabilities.contained or capabilities.node_processes),
        "`image`": bool(spec.image) and not capabilities.images and not capabilities.simulated,
    }
    missing = [name for name, lacks in wanted.items() if lacks]
    return (
        f"runtime {spec.runtime!r} has no {' and no '.join(missing)}; leave it out"
        if missing
        else ""
    )


def find_unmet_requirement(spec: KernelSpec, node: NodeInfo) -> tuple[Reason, str] | None:
    """Return why the kernel cannot start on this node; None if no obstacle is known."""
    problem = ""
    if spec.engine == "llamacpp":
        problem = _find_llamacpp_problem()
    elif spec.engine == "vllm":
        problem = _find_vllm_problem(node)

    if problem := problem or models.find_unfetchable(spec):
        return Reason.ENGINE_MISSING, problem
    if is_gguf_id(spec.model):
        return None
    if spec.engine == "llamacpp" or (spec.engine == "vllm" and is_path(spec.model)):
        return _find_model_problem(spec)

    return None


def _find_llamacpp_problem() -> str:
    if importlib.util.find_spec("xllamacpp") is not None:
        return ""
    return (
        "engine llamacpp needs the package xllamacpp: pip install 'moorage[llamacpp]' on this node"
    )


def _find_vllm_problem(node: NodeInfo) -> str:
    argv = shlex.split(node.vllm_command)
    if argv and shutil.which(argv[0]) is not None:
        return ""
    if with_prepared(node) is not node:
        return ""
    return (
        f"engine vllm: no program {node.vllm_command!r} on this node; "
        "run `moorage agent install-engine vllm` there, or set agent.vllm_command"
    )


def _find_model_problem(spec: KernelSpec) -> tuple[Reason, str] | None:
    if not is_path(spec.model):
        return (
            Reason.MODEL_MISSING,
            f"llamacpp serves a GGUF file: {spec.model!r} is neither a path nor an id like "
            "OWNER/NAME-GGUF:Q8_0",
        )

    path = Path(spec.model)
    if not path.is_absolute():
        return (
            Reason.MODEL_MISSING,
            f"{spec.model!r} is relative, but kernels have their own directory: give a full path",
        )

    if not path.exists():
        return Reason.MODEL_MISSING, f"there is no {spec.model} on this node"
    if spec.engine == "llamacpp" and not path.is_file():
        return Reason.MODEL_MISSING, f"{spec.model} is not a file; llamacpp serves a GGUF file"

    return None
