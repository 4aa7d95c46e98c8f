"""The type of the ``moorage`` fixture: runs one command line and returns its result."""

from collections.abc import Callable

from typer.testing import Result

Run = Callable[..., Result]
