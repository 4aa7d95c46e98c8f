"""Faults in the agent's interpretation of a device driver. A part of the catalog."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

NVIDIA = "agent/devices/nvidia"
VENDOR = ("tests/nvml/test_vendor.py",)
VISIBLE = ("tests/unit/agent/test_device_environment.py",)

MUTATIONS = (
    Mutation(
        "a job of a site sees none of the GPUs that the site hands out",
        "agent/kernel/create.py",
        "if context.devices is None or capabilities.own_address:",
        "if context.devices is None:",
        VISIBLE,
    ),
    Mutation(
        "a program without a GPU sees all",
        f"{NVIDIA}/vendor.py",
        "return cuda_environment(devices)",
        "return cuda_environment(devices) if devices else {}",
        VISIBLE,
    ),
    Mutation(
        "a failing plug-in stops containers",
        "agent/devices/manager.py",
        "if contained and vendor is not self._cuda:",
        "if False:",
        VISIBLE,
    ),
    Mutation(
        "a broken driver counts as no GPUs",
        f"{NVIDIA}/inventory.py",
        "if error.absent and not self._gpus:",
        "if not self._gpus:",
        VENDOR,
    ),
    Mutation(
        "slices without rights are taken for none",
        f"{NVIDIA}/inventory.py",
        "                if error.value in _NO_SLICE:\n                    continue\n                raise",
        "                continue",
        VENDOR,
    ),
    Mutation(
        "a GPU whose mode is unknown is offered whole",
        f"{NVIDIA}/inventory.py",
        "            if error.value in _NO_MIG:\n                return False\n            raise",
        "            return False",
        VENDOR,
    ),
    Mutation(
        "a GPU that is listed no more is forgotten",
        f"{NVIDIA}/inventory.py",
        "if not self._forgets_missing:",
        "if False:",
        VENDOR,
    ),
    Mutation(
        "an upgraded driver goes unnoticed",
        f"{NVIDIA}/driver.py",
        "if self._file is not None and _identity(self._file[0]) != self._file[1]:",
        "if False:",
        VENDOR,
    ),
    Mutation(
        "a driver that hangs is waited for each time",
        f"{NVIDIA}/calls.py",
        "if self._returned < self._late:",
        "if False:",
        VENDOR,
    ),
    Mutation(
        "events are lost after the driver came back",
        f"{NVIDIA}/health.py",
        "if self._generation != driver.generation:",
        "if self._generation == 0:",
        VENDOR,
    ),
    Mutation(
        "a restarted agent forgets the GPUs of a failing driver",
        f"{NVIDIA}/vendor.py",
        "        if self._known is not None:\n            self._known.save",
        "        if False:\n            self._known.save",
        VENDOR,
    ),
    Mutation(
        "a container gets the GPU that has its GPU's index now",
        "agent/runtimes/docker/cdi.py",
        "if nodes is None or (place.node and place.node in nodes):",
        "if nodes is None or nodes:",
        ("tests/unit/agent/test_docker_node_settings.py",),
    ),
    Mutation(
        "GPUs of an engine that lists none are not looked for",
        "agent/runtimes/docker/cdi_specifications.py",
        'if info.get("DiscoveredDevices") is None:\n        return described',
        'if info.get("DiscoveredDevices") is None:\n        return {}',
        ("tests/unit/agent/test_docker_node_settings.py",),
    ),
    Mutation(
        "a label holds for one of the GPUs of a node",
        "agent/devices/labels.py",
        'return next(iter(values)) if len(values) == 1 else ""',
        "return max(values)",
        ("tests/unit/agent/test_device_labels.py",),
    ),
    Mutation(
        "labels of the driver vanish when it fails",
        "agent/devices/nvidia/facts.py",
        "        return before",
        "        return DriverFacts()",
        VENDOR,
    ),
    Mutation(
        "a restarted agent forgets the labels of a failing driver",
        f"{NVIDIA}/vendor.py",
        "self.facts = before.facts",
        "self.facts = DriverFacts()",
        VENDOR,
    ),
)
