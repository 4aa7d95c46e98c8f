"""Node settings for containers: model cache, user, GPU requests, and the vLLM image."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import pytest
import yaml

from moorage.agent.engines import NodeInfo
from moorage.agent.kernel.launch import LaunchContext, build_launch
from moorage.agent.runtimes.base import DevicePlace, Launch
from moorage.agent.runtimes.docker import ContainerRules
from moorage.agent.runtimes.docker.cdi import CdiDevices, device_name
from moorage.agent.runtimes.docker.cdi_specifications import known_devices
from moorage.agent.runtimes.docker.container_config import container_config, host_config
from moorage.common.model.ids import KernelId, SessionId
from moorage.common.model.kernel import KernelSpec
from moorage.common.model.status import SessionType

MODEL = "/var/models/huggingface/hub/models--org--tiny"


def order(**fields: Any) -> Launch:
    given = {"kernel_id": KernelId("k"), "argv": ("run",), "env": {}, "image": "img"}
    return Launch(**given | fields)


def test_a_container_has_its_own_model_only_and_cannot_change_it() -> None:
    rules = ContainerRules(mounts=("/data",))
    plain = host_config(order(), rules, "127.0.0.1", "bridge")["mounts"]
    assert [mount["Source"] for mount in plain] == ["/data"]
    mounts = host_config(order(model_folder=MODEL), rules, "127.0.0.1", "bridge")["mounts"]
    assert [(m["Source"], m["Target"], m["ReadOnly"]) for m in mounts] == [
        ("/data", "/data", True),
        (MODEL, "/moorage/models/models--org--tiny", True),
    ]
    config = container_config(order(model_folder=MODEL), rules, {}, "bridge")
    assert not {"HF_HOME", "VLLM_CACHE_ROOT"} & config["environment"].keys()


@pytest.mark.parametrize(
    ("group", "node", "user"),
    [("", "", None), ("", "1:2", "1:2"), ("3", "1:2", "3"), ("3:4", "", "3:4")],
)
def test_user_of_a_container(group: str, node: str, user: str | None) -> None:
    assert (
        container_config(order(user=group), ContainerRules(user=node), {}, "bridge")["user"] == user
    )


GPU0 = {"name": "0", "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0"}]}}
BY_UUID = {"name": "GPU-a", "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0"}]}}
ALL = {
    "name": "all",
    "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0"}, {"path": "/dev/nvidia1"}]},
}


@pytest.mark.parametrize(
    ("listed", "known"),
    [
        (None, {"0": {"/dev/nvidia0"}, "all": {"/dev/nvidia0", "/dev/nvidia1"}}),
        ([], {}),
        (
            [
                {"Source": "cdi", "ID": "vendor.com/net=1"},
                {"Source": "x", "ID": "nvidia.com/gpu=2"},
            ],
            {},
        ),
        (
            [{"Source": "cdi", "ID": f"nvidia.com/gpu={n}"} for n in ("0", "GPU-a")],
            {"0": {"/dev/nvidia0"}, "GPU-a": None},
        ),
    ],
    ids=["an engine that lists none", "no device", "others", "what it lists"],
)
def test_gpus_that_an_engine_knows_by_cdi(
    tmp_path: Path, listed: list[Any] | None, known: dict[str, Any]
) -> None:
    (tmp_path / "nvidia.yaml").write_text(
        yaml.safe_dump({"kind": "nvidia.com/gpu", "devices": [GPU0, ALL]})
    )
    (tmp_path / "net.json").write_text(json.dumps({"kind": "vendor.com/net", "devices": [BY_UUID]}))
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "nvidia.yaml~").write_text("kind: nvidia.com/gpu\ndevices: [{name: old}]")
    info = {"CDISpecDirs": [str(tmp_path), str(tmp_path / "none")], "DiscoveredDevices": listed}
    assert known_devices(info) == known


A = DevicePlace("/dev/nvidia0", "0")
SLICE = DevicePlace("/dev/nvidia0", "0:1")


@pytest.mark.parametrize(
    ("place", "known", "name"),
    [
        (A, {"0": {"/dev/nvidia0"}, "GPU-a": {"/dev/nvidia0"}}, "GPU-a"),
        (
            A,
            {"0": {"/dev/nvidia0"}, "1": {"/dev/nvidia1"}, "all": {"/dev/nvidia0", "/dev/nvidia1"}},
            "0",
        ),
        (A, {"0": None}, "0"),
        (A, {"0": {"/dev/nvidia3"}, "2": {"/dev/nvidia0"}}, "2"),
        (A, {"0": {"/dev/nvidia3"}}, "GPU-a"),
        (A, {"all": {"/dev/nvidia0", "/dev/nvidia1"}}, "GPU-a"),
        (DevicePlace("", "0"), {"0": {"/dev/nvidia0"}}, "GPU-a"),
        (None, {"0": {"/dev/nvidia0"}}, "GPU-a"),
        (A, {}, "GPU-a"),
        (SLICE, {"0:1": {"/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap3"}}, "0:1"),
        (SLICE, {"0:1": {"/dev/nvidia5"}, "0": {"/dev/nvidia0"}}, "GPU-a"),
    ],
    ids=[
        *(
            "by id",
            "by index",
            "by an index without nodes",
            "of another index since",
            "of no device any more",
        ),
        *(
            "all is not one",
            "unknown node",
            "unknown place",
            "none known",
            "slice",
            "slice of another GPU",
        ),
    ],
)
def test_name_of_a_gpu(place: DevicePlace | None, known: dict[str, Any], name: str) -> None:
    assert device_name("GPU-a", place, known) == f"nvidia.com/gpu={name}"


@pytest.mark.parametrize(
    ("setting", "known", "cdi"),
    [
        ("auto", {"0": None}, True), ("auto", {}, False), ("auto", None, False),
        ("nvidia", {"0": None}, False), ("cdi", {}, True),
    ],
)  # fmt: skip
def test_gpu_request_by_cdi_or_nvidia_driver(
    setting: Literal["auto", "nvidia", "cdi"], known: CdiDevices | None, cdi: bool
) -> None:
    rules = ContainerRules(gpus=setting)
    gpus = order(devices=("GPU-a", "GPU-b"))
    [request] = host_config(gpus, rules, "127.0.0.1", "bridge", cdi=known)["device_requests"]
    visible = container_config(gpus, rules, {}, "bridge", cdi=known)["environment"][
        "NVIDIA_VISIBLE_DEVICES"
    ]
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
    context = LaunchContext(
        True, "127.0.0.1", node=NodeInfo(vllm_image="own/vllm:1"), work_dir="/work", agent_env={}
    )
    launched = build_launch(spec, Invocation(("run",)), 1, context)
    assert launched.image == used
