"""Task lists: the program that works through one in a kernel, and its exchange with the manager."""

from moorage.agent.tasks.feeder import TICK_S, ListResult, NoTasks, TaskFeeder, TaskService
from moorage.agent.tasks.source import runner_source

__all__ = ["TICK_S", "ListResult", "NoTasks", "TaskFeeder", "TaskService", "runner_source"]
