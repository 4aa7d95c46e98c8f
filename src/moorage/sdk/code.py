"""Results of code that has run: ``client.executions.run`` returns an ``Execution``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from moorage.common.model.code_runs import RunStatus

Item = dict[str, Any]
OnItem = Callable[[Item], None]
OnInput = Callable[[str, bool], str]


@dataclass(slots=True)
class Execution:
    """A completed run of code. ``items``: its output, as in ``ExecutionView.console``."""

    run_id: str
    status: RunStatus
    exit_code: int | None
    reason: str
    items: list[Item] = field(default_factory=list)

    @property
    def stdout(self) -> str:
        return "".join(
            i["text"] for i in self.items if i["type"] == "stream" and i["name"] == "stdout"
        )

    @property
    def stderr(self) -> str:
        return "".join(
            i["text"] for i in self.items if i["type"] == "stream" and i["name"] == "stderr"
        )

    @property
    def results(self) -> list[dict[str, Any]]:
        """Results and displays, each a dict of data by MIME type, with binary data in base64."""
        return [item["data"] for item in self.items if item["type"] in ("result", "display")]

    @property
    def error(self) -> Item | None:
        """Name, message and traceback of the exception that ended the run."""
        return next((item for item in self.items if item["type"] == "error"), None)
