"""Moorage schedules models and jobs on GPUs and routes requests to models."""

__version__ = "0.1.0"
