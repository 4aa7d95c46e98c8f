"""Load generator for an endpoint: sends prompts at a given rate or concurrency, and measures the
answers."""

from moorage.sdk.benchmark.requests import BenchmarkTarget, Measured
from moorage.sdk.benchmark.runner import Load, Progress, run
from moorage.sdk.benchmark.statistics import Summary, summarize
from moorage.sdk.benchmark.workload import Prompt, random_prompts, read_dataset

__all__ = [
    "BenchmarkTarget",
    "Load",
    "Measured",
    "Progress",
    "Prompt",
    "Summary",
    "random_prompts",
    "read_dataset",
    "run",
    "summarize",
]
