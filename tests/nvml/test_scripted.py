"""The scripted NVML, compared with the known facts about the real one: its layouts, and the answers
of an H200."""

from __future__ import annotations

import ast
import ctypes
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pynvml

from tests.nvml.conftest import MakeNvml
from tests.nvml.scripted import LIBRARY, encoded, recording

SOURCES = Path(__file__).parents[2] / "src" / "moorage"
CLASSES = {
    "nvmlMemory_t": pynvml.c_nvmlMemory_t,
    "nvmlMemory_v2_t": pynvml.c_nvmlMemory_v2_t,
    "nvmlUtilization_t": pynvml.c_nvmlUtilization_t,
    "nvmlPciInfo_t": pynvml.nvmlPciInfo_t,
    "nvmlProcessInfo_t": pynvml.c_nvmlProcessInfo_v3_t,
    "nvmlProcessUtilizationSample_t": pynvml.c_nvmlProcessUtilizationSample_t,
    "nvmlEventData_t": pynvml.c_nvmlEventData_t,
}
# Makes every recorded call that it receives, and prints the code and value of each.
_CALLER = """
import json, sys, pynvml

def plain(value):
    fields = getattr(value, "_fields_", None) or getattr(type(value), "_fields_", None)
    if fields:
        return {name: plain(getattr(value, name)) for name, *_ in fields if name != "version"}
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if isinstance(value, pynvml.nvmlFriendlyObject):
        return {name: plain(one) for name, one in vars(value).items()}
    return value

def answer(entry):
    name = entry["call"]
    try:
        gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
        arguments = list(entry.get("arguments", ()))
        if name == "nvmlDeviceRegisterEvents":
            arguments.append(events)
        if name == "nvmlEventSetWait_v2":
            arguments.insert(0, events)
        elif name.startswith("nvmlDevice") and not name.startswith(("nvmlDeviceGetHandle",
        "nvmlDeviceGetCount")):
            arguments.insert(0, gpu)
        if name == "nvmlDeviceGetMemoryInfo" and "nvmlMemory_v2" in str(arguments):
            arguments = [gpu, pynvml.nvmlMemory_v2]
        value = getattr(pynvml, name)(*arguments)
        return 0, plain(value) if "value" in entry else None
    except pynvml.NVMLError as error:
        return error.value, None

pynvml.nvmlInit()
events = pynvml.nvmlEventSetCreate()
for line in sys.stdin:
    print(json.dumps(answer(json.loads(line))))
"""


def exported(library: Path) -> set[str]:
    """The NVML functions of a library."""
    return {
        name.decode()
        for name in re.findall(rb"\0(nvml[A-Z][A-Za-z0-9_]+)(?=\0)", library.read_bytes())
    }


def test_structures_are_laid_out_as_those_of_the_header(make_nvml: MakeNvml) -> None:
    class Entry(ctypes.Structure):
        _fields_ = (
            ("type", ctypes.c_char_p),
            ("field", ctypes.c_char_p),
            ("value", ctypes.c_size_t),
        )

    library = ctypes.CDLL(str(make_nvml().folder / LIBRARY))
    entries = (Entry * 100).in_dll(library, "scripted_layouts")
    compared = set()
    for entry in entries:
        if entry.type is None:
            break

        structure = CLASSES[entry.type.decode()]
        field = entry.field.decode()
        expected = getattr(structure, field).offset if field else ctypes.sizeof(structure)
        assert entry.value == expected, f"{entry.type.decode()} {field}"
        compared.add(entry.type.decode())

    assert compared == set(CLASSES)


def test_every_function_that_the_agent_calls_is_scripted(make_nvml: MakeNvml) -> None:
    called = set()
    for file in (SOURCES / "agent" / "devices" / "nvidia").glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Attribute) and re.match(
                "nvml(Device|System|Event|Init|Shut)[A-Z]?", node.attr
            ):
                called.add(node.attr)

    called = {name for name in called if not name.startswith("nvmlEventType")}
    assert len(called) > 20
    scripted = exported(make_nvml().folder / LIBRARY)
    missing = [name for name in called if not any(one.startswith(name) for one in scripted)]
    assert missing == []


def test_answers_are_those_of_an_h200(make_nvml: MakeNvml) -> None:
    """Every recorded call in the library answers as recorded, except for the values that a test
    scripts: which GPU it is, its memory and its processes."""
    nvml = make_nvml()
    scripted = exported(nvml.folder / LIBRARY)
    by_test = (
        "UUID",
        "PciInfo",
        "MemoryInfo",
        "RunningProcesses",
        "ProcessUtilization",
        "MinorNumber",
        "Shutdown",
    )
    entries = [
        entry
        for entry in recording()["calls"]
        if (entry.get("symbol", entry["call"]) in scripted)
        and not any(word in entry["call"] for word in by_test)
        and all(isinstance(argument, int) for argument in entry.get("arguments", ()))
    ]  # fmt: skip
    assert len(entries) >= 35
    done = subprocess.run(
        [sys.executable, "-c", _CALLER],
        input="".join(json.dumps(entry) + "\n" for entry in entries),
        env=os.environ | nvml.environment,
        capture_output=True,
        text=True,
        check=True,
    )
    for entry, line in zip(entries, done.stdout.splitlines(), strict=True):
        code, value = json.loads(line)
        expected = encoded(entry["value"]) if entry["returns"] == 0 and "value" in entry else None
        got = encoded(value) if value is not None else None
        assert (code, got) == (entry["returns"], expected), entry["call"]


def test_recorded_loads_are_what_the_script_makes_of_them(make_nvml: MakeNvml) -> None:
    """``use_memory`` follows the behavior seen on the H200: the older structure counts the reserved
    memory as used."""
    nvml = make_nvml()
    for seen in recording()["observed"]["memory"]:
        nvml.use_memory(0, seen["used"])
        old = [int(word) for word in nvml.answers["gpu.0.nvmlDeviceGetMemoryInfo"].split()]
        new = [int(word) for word in nvml.answers["gpu.0.nvmlDeviceGetMemoryInfo_v2"].split()]
        assert sum(new[1:]) == new[0] == old[0]
        assert (old[1], old[2]) == (new[2], new[1] + new[3])

    recorded = next(one for one in recording()["calls"] if one["call"] == "nvmlDeviceGetMemoryInfo")
    nvml.use_memory(0, 1_626_144_768)
    assert nvml.answers["gpu.0.nvmlDeviceGetMemoryInfo"] == encoded(recorded["value"])
