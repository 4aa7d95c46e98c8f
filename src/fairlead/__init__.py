"""Fairlead guides work to GPUs and requests to models."""

__version__ = "0.1.0"
