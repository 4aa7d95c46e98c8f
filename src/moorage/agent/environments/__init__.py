"""Isolated environments for engines. A node creates one per engine and reuses it."""

from moorage.agent.environments.install import InstallFailed, install
from moorage.agent.environments.layout import engines_folder, prepared_program
from moorage.agent.environments.recipes import Recipe, vllm_recipe

__all__ = [
    "InstallFailed",
    "Recipe",
    "engines_folder",
    "install",
    "prepared_program",
    "vllm_recipe",
]
