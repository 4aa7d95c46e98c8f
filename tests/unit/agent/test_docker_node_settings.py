"""Node settings for containers: model cache, user, GPU requests, and the vLLM image."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from moorage.agent.engines import NodeInfo
from moorage.agent.kernel.launch import LaunchContext, build_launch
from moorage.agent.runtimes.base import Launch
from moorage.agent.runtimes.docker import ContainerRules
from moorage.agent.runtimes.docker.container_config import container_config, host_config, lists_cdi_gpus
from moorage.common.model.ids import KernelId, SessionId
from moorage.common.model.kernel import KernelSpec
from moorage.common.model.status import SessionType

CACHED = ContainerRules(model_cache="/var/models", mounts=("/data",))


def order(**fields: Any) -> Launch:
    given = {"kernel_id": KernelId("k"), "argv": ("run",), "env": {}, "image": "img"}
    return Launch(**given | fields)


def test_model_cache_is_mounted_for_kernels_that_use_it() -> None:
    plain = host_config(order(), CACHED, "127.0.0.1", "bridge")["mounts"]
    assert [mount["Source"] for mount in plain] == ["/data"]
    assert "HF_HOME" not in container_config(order(), CACHED, {}, "bridge")["environment"]
    mounts = host_config(order(model_cache=True), CACHED, "127.0.0.1", "bridge")["mounts"]
    assert [(m["Source"], m["Target"], m["ReadOnly"]) for m in mounts] == [
        ("/data", "/data", True),
        ("/var/models", "/moorage/cache", False),
    ]
    env = container_config(order(model_cache=True, env={"HF_HOME": "/mine"}), CACHED, {}, "bridge")[
        "environment"
    ]
    assert (env["HF_HOME"], env["VLLM_CACHE_ROOT"]) == ("/mine", "/moorage/cache/vllm")
    without_cache = container_config(order(model_cache=True), ContainerRules(), {}, "bridge")["environment"]
    assert "HF_HOME" not in without_cache


@pytest.mark.parametrize(
    ("group", "node", "user"), [("", "", None), ("", "1:2", "1:2"), ("3", "1:2", "3"), ("3:4", "", "3:4")]
)
def test_user_of_a_container(group: str, node: str, user: str | None) -> None:
    assert container_config(order(user=group), ContainerRules(user=node), {}, "bridge")["user"] == user


def test_read_only_model_cache() -> None:
    rules = ContainerRules(model_cache="/var/models", cache_writable=False)
    assert host_config(order(model_cache=True), rules, "127.0.0.1", "bridge")["mounts"][0]["ReadOnly"] is True
    assert (
        container_config(order(model_cache=True), rules, {}, "bridge")["environment"]["HF_HUB_OFFLINE"] == "1"
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
def test_engine_lists_gpus_by_cdi(info: dict[str, Any], lists: bool) -> None:
    assert lists_cdi_gpus(info) is lists


@pytest.mark.parametrize(
    ("setting", "listed", "cdi"),
    [("auto", True, True), ("auto", False, False), ("nvidia", True, False), ("cdi", False, True)],
)
def test_gpu_request_by_cdi_or_nvidia_driver(
    setting: Literal["auto", "nvidia", "cdi"], listed: bool, cdi: bool
) -> None:
    rules, gpus = ContainerRules(gpus=setting), order(devices=("GPU-a", "GPU-b"))
    [request] = host_config(gpus, rules, "127.0.0.1", "bridge", listed)["device_requests"]
    visible = container_config(gpus, rules, {}, "bridge", listed)["environment"]["NVIDIA_VISIBLE_DEVICES"]
    if cdi:
        names = ["nvidia.com/gpu=GPU-a", "nvidia.com/gpu=GPU-b"]
        assert (request, visible) == ({"Driver": "cdi", "DeviceIDs": names}, "void")
    else:
        assert (request["Driver"], request["DeviceIDs"]) == ("nvidia", ["GPU-a", "GPU-b"])
        assert visible == "GPU-a,GPU-b"


@pytest.mark.parametrize(
    ("engine", "image", "used"),
    [("vllm", "", "own/vllm:1"), ("vllm", "mine:1", "mine:1"), ("custom", "mine:1", "mine:1")],
)
def test_vllm_image_of_the_node_is_the_default(engine: str, image: str, used: str) -> None:
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
    launched = build_launch(spec, Invocation(("run",)), 1, context)
    assert (launched.image, launched.model_cache) == (used, engine == "vllm")
