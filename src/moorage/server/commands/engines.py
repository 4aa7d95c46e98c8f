"""``moorage agent install-engine``: an isolated environment for an engine on this node."""

from __future__ import annotations

import os
import pwd
import sys
from pathlib import Path
from typing import Annotated

import typer

from moorage import progress
from moorage.common.model.errors import InvalidInput
from moorage.server.commands.daemons import agent_commands

INSTALLABLE = ("vllm",)


@agent_commands.command("install-engine")
def install_engine(
    engine: Annotated[str, typer.Argument(help="vllm.")] = "vllm",
    build: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    package: Annotated[
        str,
        typer.Option(
            help="Requirement for pip to install instead, such as vllm==0.33.0 or a wheel."
        ),
    ] = "",
) -> None:
    """Install an engine on this node, as the user of the agent, in a separate environment.

    The environment is in ~/.cache/moorage/engines, and agents of this user find it within seconds.
    It is created once; an interrupted installation starts again. pip uses its usual configuration
    (pip config, PIP_INDEX_URL).

    \b
    Examples:
      moorage agent install-engine vllm
      moorage agent install-engine vllm --build cpu
    """
    from moorage.agent.environments import engines_folder, install, vllm_recipe
    from moorage.agent.environments.recipes import BUILDS

    if engine not in INSTALLABLE:
        raise InvalidInput(
            f"{engine!r} cannot be installed with this command; choose one of "
            f"{', '.join(INSTALLABLE)}"
        )

    if build not in ("auto", *BUILDS):
        raise InvalidInput(f"--build {build!r} is not auto, {' or '.join(BUILDS)}")
    if build == "auto":
        build = "cuda" if Path("/proc/driver/nvidia/version").exists() else "cpu"

    recipe = vllm_recipe(build, sys.version.split()[0], package)

    def report(message: str, packages: int) -> None:
        print(message, flush=True)
        if recipe.packages:
            progress(step=min(packages, recipe.packages), of=recipe.packages, message=message)
        else:
            progress(message=message)

    # In a session, HOME is the session's, but pip's settings and its cache belong to the agent's
    # user.
    env = {**os.environ, "HOME": pwd.getpwuid(os.getuid()).pw_dir}
    made = install(engines_folder(env), recipe, report, env)
    print(f"{engine} is installed: {made / 'bin' / engine}")
