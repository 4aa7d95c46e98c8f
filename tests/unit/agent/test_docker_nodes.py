"""What a node adds to its containers: the model cache, and GPUs in the way that its engine knows."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from moorage.agent.engines import NodeInfo
from moorage.agent.kernel.launch import LaunchContext, build_launch
from moorage.agent.runtimes.base import Launch
from moorage.agent.runtimes.docker import ContainerRules
from moorage.agent.runtimes.docker import container_config as policy
from moorage.common.model.ids import KernelId, SessionId
from moorage.common.model.kernel import KernelSpec
from moorage.common.model.status import SessionType

CACHED = ContainerRules(model_cache="/var/models", mounts=("/data",))


def order(**fields: Any) -> Launch:
    given = {"kernel_id": KernelId("k"), "argv": ("run",), "env": {}, "image": "img"}
    return Launch(**given | fields)


def test_the_model_cache_is_for_those_that_load_models() -> None:
    plain = policy.host_config(order(), CACHED, "127.0.0.1", "bridge")["mounts"]
    assert [mount["Source"] for mount in plain] == ["/data"]
    assert "HF_HOME" not in policy.container_config(order(), CACHED, {}, "bridge")["environment"]
    mounts = policy.host_config(order(model_cache=True), CACHED, "127.0.0.1", "bridge")["mounts"]
    assert [(m["Source"], m["Target"], m["ReadOnly"]) for m in mounts] == [
        ("/data", "/data", True),
        ("/var/models", "/moorage/cache", False),
    ]
    env = policy.container_config(order(model_cache=True, env={"HF_HOME": "/mine"}), CACHED, {}, "bridge")[
        "environment"
    ]
    assert (env["HF_HOME"], env["VLLM_CACHE_ROOT"]) == ("/mine", "/moorage/cache/vllm")
    nowhere = policy.container_config(order(model_cache=True), ContainerRules(), {}, "bridge")["environment"]
    assert "HF_HOME" not in nowhere


@pytest.mark.parametrize(
    ("group", "node", "user"), [("", "", None), ("", "1:2", "1:2"), ("3", "1:2", "3"), ("3:4", "", "3:4")]
)
def test_who_a_container_runs_as(group: str, node: str, user: str | None) -> None:
    assert policy.container_config(order(user=group), ContainerRules(user=node), {}, "bridge")["user"] == user


def test_a_cache_that_none_may_change() -> None:
    rules = ContainerRules(model_cache="/var/models", cache_writable=False)
    assert (
        policy.host_config(order(model_cache=True), rules, "127.0.0.1", "bridge")["mounts"][0]["ReadOnly"]
        is True
    )
    assert (
        policy.container_config(order(model_cache=True), rules, {}, "bridge")["environment"]["HF_HUB_OFFLINE"]
        == "1"
    )


LISTED = {"DiscoveredDevices": [{"Source": "cdi", "ID": "nvidia.com/gpu=GPU-a"}]}


@pytest.mark.parametrize(
    ("info", "lists"),
    [
        ({}, False),
        ({"DiscoveredDevices": None, "CDISpecDirs": ["/etc/cdi"]}, False),
        ({"DiscoveredDevices": [{"Source": "cdi", "ID": "vendor.com/net=1"}]}, False),
        (LISTED, True),
    ],
)
def test_whether_the_engine_lists_gpus(info: dict[str, Any], lists: bool) -> None:
    assert policy.lists_gpus(info) is lists


@pytest.mark.parametrize(
    ("setting", "listed", "by_cdi"),
    [("auto", True, True), ("auto", False, False), ("nvidia", True, False), ("cdi", False, True)],
)
def test_gpus_are_asked_for_as_the_engine_knows_them(
    setting: Literal["auto", "nvidia", "cdi"], listed: bool, by_cdi: bool
) -> None:
    rules, asked = ContainerRules(gpus=setting), order(devices=("GPU-a", "GPU-b"))
    [request] = policy.host_config(asked, rules, "127.0.0.1", "bridge", listed)["device_requests"]
    visible = policy.container_config(asked, rules, {}, "bridge", listed)["environment"][
        "NVIDIA_VISIBLE_DEVICES"
    ]
    if by_cdi:
        names = ["nvidia.com/gpu=GPU-a", "nvidia.com/gpu=GPU-b"]
        assert (request, visible) == ({"Driver": "cdi", "DeviceIDs": names}, "void")
    else:
        assert (request["Driver"], request["DeviceIDs"]) == ("nvidia", ["GPU-a", "GPU-b"])
        assert visible == "GPU-a,GPU-b"


@pytest.mark.parametrize(
    ("engine", "image", "used"),
    [("vllm", "", "own/vllm:1"), ("vllm", "mine:1", "mine:1"), ("custom", "mine:1", "mine:1")],
)
def test_vllm_has_an_image_of_the_node(engine: str, image: str, used: str) -> None:
    from moorage.agent.engines import Invocation

    spec = KernelSpec(
        kernel_id=KernelId("k"),
        session_id=SessionId("s"),
        session_name="s",
        session_type=SessionType.INFERENCE,
        runtime="docker",
        engine=engine,
        served_name="s",
        image=image,
    )
    context = LaunchContext(True, "127.0.0.1", NodeInfo(vllm_image="own/vllm:1"), "/work", {})
    told = build_launch(spec, Invocation(("run",)), 1, context)
    assert (told.image, told.model_cache) == (used, engine == "vllm")
