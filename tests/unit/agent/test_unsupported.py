"""Operations that are refused because the runtime lacks the capability, and launches on another
node."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from moorage.agent.engines import ENGINES, NodeInfo
from moorage.agent.kernel.launch import LaunchContext, build_invocation, build_launch
from moorage.agent.kernel.preflight import find_unsupported
from moorage.agent.runtimes.base import PORT_TOKEN, Capabilities
from moorage.common.model.cluster import ClusterMembership
from moorage.common.model.ids import KernelId, SessionId
from moorage.common.model.kernel import KernelSpec
from moorage.common.model.service_ports import AppPort, ServicePort, port_token
from moorage.common.model.status import SessionType

SPEC = KernelSpec(
    KernelId("k"),
    SessionId("s"),
    session_name="name",
    session_type=SessionType.BATCH,
    runtime="somewhere",
    engine="custom",
    served_name="",
)
CLUSTER = ClusterMembership(
    "main1",
    "main",
    index=1,
    mode="multi-node",
    group=KernelId("k"),
    members=(),
    private_key="",
    public_key="",
)
POOR = Capabilities(max_jobs=1, clusters=False, service_ports=False, workspaces=False)


@pytest.mark.parametrize(
    ("wanted", "named"),
    [
        ({"cluster": CLUSTER}, "`cluster`"),
        ({"ports": (ServicePort("web"),)}, "`ports`"),
        ({"workspace": "keep"}, "`workspace`"),
        ({"image": "python"}, "`image`"),
        ({}, ""),
    ],
)
def test_unsupported_field_is_named(wanted: dict[str, Any], named: str) -> None:
    refusal = find_unsupported(replace(SPEC, **wanted), POOR)
    assert refusal == (f"runtime 'somewhere' has no {named}; leave it out" if named else "")
    assert not find_unsupported(replace(SPEC, **wanted), Capabilities(images=True))


@pytest.mark.parametrize("engine", ["llamacpp", "vllm", "custom"])
def test_port_that_is_picked_on_the_other_node_has_a_token(engine: str) -> None:
    spec = replace(
        SPEC, session_type=SessionType.INFERENCE, engine=engine, model="/models/m.gguf", served_name="m",
        command=("serve", "--port={port}"), slots={"cpu": 3000}, secret="key",
    )  # fmt: skip
    node = NodeInfo(python="/opt/python", home="/root")
    context = LaunchContext(
        False, "login", node=node, work_dir="/work", agent_env={"PATH": "/login"}, own_address=True
    )
    call = build_invocation(ENGINES[engine], spec, 0, context)
    launch = build_launch(spec, call, 0, context)
    assert any(PORT_TOKEN in word for word in launch.argv)
    assert (launch.port, launch.serves) == (0, True)
    assert "PATH" not in launch.env  # the job has the environment of its own node
    assert not any("login" in word for word in (*launch.argv, *launch.env.values()))


def test_service_ports_that_are_picked_on_the_other_node_have_tokens() -> None:
    spec = replace(SPEC, command=("serve", "{port:web}", "{port:side-door}"))
    apps = (AppPort("web", 0), AppPort("side-door", 0, "tcp"))
    context = LaunchContext(
        False, "login", node=NodeInfo(), work_dir="/work", agent_env={}, own_address=True
    )
    launch = build_launch(
        spec,
        build_invocation(ENGINES["custom"], spec, 0, context, apps=apps),
        0,
        context,
        apps=apps,
    )
    assert launch.argv == ("serve", port_token("web"), port_token("side-door"))
    assert launch.env["MOORAGE_PORT_SIDE_DOOR"] == port_token("side-door") != PORT_TOKEN


def test_batch_kernel_without_a_port_has_no_token() -> None:
    spec = replace(SPEC, command=("true",))
    context = LaunchContext(
        False, "login", node=NodeInfo(), work_dir="/work", agent_env={}, own_address=True
    )
    launch = build_launch(spec, build_invocation(ENGINES["custom"], spec, 0, context), 0, context)
    assert (launch.serves, "PORT" in launch.env) == (False, False)
