"""A kernel's launch parameters: translates its spec into the arguments of a runtime's ``create``.
Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from moorage.agent.engines.base import (
    Engine,
    Invocation,
    NodeInfo,
    contained_environment,
    environment,
    granted_gpus,
    is_path,
    needs_port,
    substitute,
)
from moorage.agent.kernel import cluster as kernel_cluster
from moorage.agent.kernel import overlay
from moorage.agent.kernel.cluster import Network
from moorage.agent.kernel.run_variables import default_variables, run_variables
from moorage.agent.runtimes.base import LOOPBACK, PORT_TOKEN, PROGRESS_FOLDER, WORKSPACE, Launch
from moorage.agent.tasks.launch import task_command
from moorage.common.model import service_ports
from moorage.common.model.cluster import ClusterMembership
from moorage.common.model.ids import KernelId
from moorage.common.model.kernel import KernelSpec
from moorage.common.model.progress import PROGRESS_FROM, PROGRESS_VAR
from moorage.common.model.service_ports import AppPort

# A container has its own address, which the node reaches through the published ports.
_ANY_ADDRESS = "0.0.0.0"
# Address of a sandboxed process on a node that is reached over IPv6.
_ANY_ADDRESS6 = "::"
# SSH directory inside the containers of a cluster.
_SSH = "/etc/moorage/ssh"


@dataclass(frozen=True, slots=True)
class LaunchContext:
    """The environment in which a kernel is launched.

    ``contained``: the kernel sees neither the agent's environment nor the node's address, programs
    and directories. ``host``: the address that it listens on if it uses the node's network.
    ``agent_env``: the agent's own environment. ``workspace``: the directory on the node for the
    session's workspace, or "". ``own_user``: the kernel is a sandboxed process with its own uid and
    network. ``own_address``: the kernel runs on another node, which shares only the file system,
    and chooses its port there. ``overlay``: clusters over several nodes have a separate network.
    ``progress``: the directory on the node for a container's progress, or "". ``started_at``: when
    the kernel is launched; None if another system decides when it starts. ``task_runner``: the text
    of the program that works through a task list.
    """

    contained: bool
    host: str
    node: NodeInfo
    work_dir: str
    agent_env: Mapping[str, str]
    workspace: str = ""
    own_user: bool = False
    own_address: bool = False
    overlay: bool = False
    progress: str = ""
    started_at: datetime | None = None
    task_runner: str = ""


def build_invocation(
    engine: Engine,
    spec: KernelSpec,
    port: int,
    context: LaunchContext,
    *,
    apps: tuple[AppPort, ...] = (),
) -> Invocation:
    """The command of the kernel's main program, with its service ports filled in."""
    cores = max(1, spec.slots.get("cpu", 0) // 1000)
    tasks = spec.tasks
    if tasks is not None:
        spec = replace(spec, command=tasks.command)
    if context.contained:
        call = engine.invocation(spec, host=_ANY_ADDRESS, port=port, node=NodeInfo(cores=cores))
    elif context.own_address:
        node = replace(context.node, cores=cores)
        token = PORT_TOKEN if needs_port(spec) else 0
        call = engine.invocation(spec, host=_ANY_ADDRESS, port=token, node=node)
    else:
        any_address = _ANY_ADDRESS6 if ":" in context.host else _ANY_ADDRESS
        host = any_address if context.own_user else context.host
        call = engine.invocation(spec, host=host, port=port, node=context.node)

    if apps:
        env = service_ports.environment(spec.session_id, apps)
        values = service_ports.placeholders(spec.session_id, apps)
        argv = tuple(substitute(word, values) for word in call.argv)
        call = replace(call, argv=argv, env=call.env | env)
    return call if tasks is None else replace(call, argv=_task_runner(spec, call, context))


def _task_runner(spec: KernelSpec, call: Invocation, context: LaunchContext) -> tuple[str, ...]:
    """The program that runs ``call`` for each task. A container's image has its own Python."""
    python = "python3" if context.contained else context.node.python
    folder = PROGRESS_FOLDER if context.contained else context.work_dir
    return task_command(spec, call.argv, python=python, source=context.task_runner, folder=folder)


def build_launch(
    spec: KernelSpec,
    call: Invocation,
    port: int,
    context: LaunchContext,
    *,
    apps: tuple[AppPort, ...] = (),
) -> Launch:
    launch = _without_cluster(spec, call, port=port, context=context, apps=apps)
    cluster = spec.cluster
    if cluster is None:
        return launch

    folder = _SSH if context.contained else f"{context.work_dir}/.ssh"
    network = _network(cluster, context)
    launch = replace(
        launch,
        env=launch.env | kernel_cluster.fixed_environment(cluster, network, folder),
        files=kernel_cluster.ssh_files(cluster, network, folder),
        hostname=cluster.hostname,
        hosts={
            peer.hostname: LOOPBACK if network is Network.SHARED else peer.address
            for peer in cluster.members
        },
    )
    if network is not Network.PRIVATE:
        return launch
    if cluster.mode == "single-node":
        return replace(launch, network=cluster.group)
    if not cluster.private_key:
        return launch  # the runtime refuses the launch

    interface = overlay.interface(cluster, kernel_cluster.overlay_port(cluster))
    return replace(launch, hosts=overlay.hosts(cluster), overlay=interface)


def _network(cluster: ClusterMembership, context: LaunchContext) -> Network:
    return kernel_cluster.network(
        cluster, context.contained, context.overlay, sandboxed=context.own_user
    )


def _without_cluster(
    spec: KernelSpec,
    call: Invocation,
    port: int,
    context: LaunchContext,
    *,
    apps: tuple[AppPort, ...],
) -> Launch:
    if spec.cluster is not None:
        # Defaults come before the user's environment, which can override them.
        network = _network(spec.cluster, context)
        defaults = kernel_cluster.default_environment(spec.cluster, network)
        call = replace(call, defaults=call.defaults | defaults)

    if spec.traceparent:
        call = replace(call, defaults=call.defaults | {"TRACEPARENT": spec.traceparent})
    if spec.workspace:
        workspace = WORKSPACE if context.contained else context.work_dir
        call = replace(call, env=call.env | {"MOORAGE_WORKSPACE": workspace})

    call = replace(
        call,
        env=call.env
        | _progress_environment(spec, context)
        | run_variables(spec, context.started_at),
    )
    defaults = {} if context.own_address else default_variables(spec)
    if context.contained or context.own_address:
        env = contained_environment(spec, call)
    else:
        env = environment(
            context.agent_env,
            spec,
            call,
            work_dir=context.work_dir,
            node=context.node,
            own_user=context.own_user,
        )
        env = defaults | env

    return Launch(
        spec.kernel_id,
        call.argv,
        env=env,
        default_env={name: value for name, value in defaults.items() if name not in env},
        port=port,
        stop_grace_s=spec.stop_grace_s,
        image=spec.image or (context.node.vllm_image if spec.engine == "vllm" else ""),
        slots=spec.slots,
        devices=tuple(filter(None, granted_gpus(spec))),
        paths=(spec.model,) if is_path(spec.model) else (),
        apps=apps,
        user=spec.container_user,
        workspace=context.workspace,
        progress=context.progress,
        session_id=spec.session_id,
        isolated=spec.isolated,
        serves=needs_port(spec),
        hpc=spec.hpc,
    )


def progress_file(kernel_id: KernelId) -> str:
    """The name of a kernel's progress file. The kernels of a session may share its directory."""
    return f".moorage-progress-{kernel_id}"


def _progress_environment(spec: KernelSpec, context: LaunchContext) -> dict[str, str]:
    """Variables for progress. A site's jobs have no progress file; only their log is read."""
    if spec.env.get(PROGRESS_FROM) == "log":
        return {PROGRESS_VAR: "/dev/stderr"}
    if context.own_address:
        return {}
    folder = PROGRESS_FOLDER if context.contained else context.work_dir
    return {PROGRESS_VAR: f"{folder}/{progress_file(spec.kernel_id)}"}
