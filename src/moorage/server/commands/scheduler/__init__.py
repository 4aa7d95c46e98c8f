"""The ``moorage scheduler`` commands: policy simulation, the decision log, and its replay."""

from moorage.server.commands.scheduler import log, replay, simulate

# Importing a module registers its commands.
__all__ = ["log", "replay", "simulate"]
