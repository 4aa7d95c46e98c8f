"""The supervisors' programs, compiled into the state directory.

This happens once per agent start, because Python would otherwise compile a script at each run,
which takes 4 ms.
"""

from __future__ import annotations

import py_compile
from pathlib import Path

SHIM = "process_shim"
COMMAND_SHIM = "command_shim"
# Modules by the name of the compiled file, in the order of compilation. The programs import the
# other modules from their own directory, so they are compiled last. If the shim exists, the runtime
# knows that all of them do.
_MODULES = {
    "process_init": "shim_init",
    "process_log": "../../state/log_writer",
    "process_sandbox": "sandbox",
    "process_system": "shim_system",
    COMMAND_SHIM: "command_shim",
    SHIM: "shim",
}


def program(folder: Path, name: str) -> Path:
    return folder / f"{name}.pyc"


def compile_programs(folder: Path) -> None:
    """Compile the programs. Raises ``OSError`` or ``py_compile.PyCompileError``."""
    for name, module in _MODULES.items():
        source = (Path(__file__).parent / f"{module}.py").resolve()
        py_compile.compile(str(source), cfile=str(program(folder, name)), doraise=True)
