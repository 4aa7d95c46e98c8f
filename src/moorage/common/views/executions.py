"""REST models for code execution: code runs in sessions, completions and code kernels."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from moorage.common.model import code_runs
from moorage.common.model.code_runs import RunStatus
from moorage.common.model.spec import Model, NoNul
from moorage.common.model.spec_fields import most_bytes
from moorage.common.views.resources import View

RunId = Annotated[str, Field(pattern=f"^{code_runs.RUN_ID}$", max_length=64)]
Code = Annotated[str, most_bytes(code_runs.MAX_CODE_BYTES)]
Language = Annotated[NoNul, Field(min_length=1, max_length=64)]
WaitS = Annotated[float, Field(ge=0, le=code_runs.MAX_WAIT_S)]
Hostname = Annotated[NoNul, Field(max_length=64)]
_LANGUAGE = (
    "Name of one of the session's kernelspecs, or a language, which selects its first kernelspec."
)
_KERNEL = "Kernel of a cluster session to run in, such as sub1."


class ExecutionSpec(Model):
    """A code run in a session."""

    EXAMPLE: ClassVar = {"code": "x = 6 * 7\nx", "language": "python", "timeout_s": 60}

    mode: Literal["query", "batch"] = Field(
        default="query",
        description=(
            "query: `code` runs in the code kernel of `language`. batch: the commands `clean`, "
            "`build` and `exec` run in the workspace, each in a shell."
        ),
    )
    code: Code = ""
    language: Language = Field(default="python", description=_LANGUAGE)
    clean: Code = Field(default="", description="First command of a batch run.")
    build: Code = Field(
        default="", description="Command of a batch run; if it fails, `exec` is not run."
    )
    exec: Code = Field(
        default="", description="Command of a batch run whose exit code becomes the run's."
    )
    run_id: RunId | None = Field(
        default=None,
        description=(
            "Makes the request safe to repeat: the same id denotes the same run. Default: a new "
            "run."
        ),
    )
    timeout_s: Annotated[float, Field(gt=0, le=code_runs.MAX_TIMEOUT_S)] = Field(
        default=code_runs.DEFAULT_TIMEOUT_S,
        description=(
            "Time after which the run is interrupted. If that has no effect, its kernel is killed."
        ),
    )
    wait_s: WaitS = Field(
        default=2.0,
        description=(
            "Longest wait, in seconds, for the end of the run, a request for input or the end of a "
            "stage."
        ),
    )
    stdin: bool = Field(default=True, description="Whether the code may request input.")
    kernel: Hostname = Field(default="main1", description=_KERNEL)

    @model_validator(mode="after")
    def _matches_mode(self) -> ExecutionSpec:
        commands = [name for name in code_runs.STAGES if getattr(self, name)]
        if self.mode == "query" and commands:
            raise ValueError(f"`{commands[0]}` applies to mode batch, but mode is query")
        if self.mode == "batch" and (self.code or not commands):
            raise ValueError(
                "mode batch requires `clean`, `build` or `exec`, and does not take `code`"
            )
        return self


class ExecutionInput(Model):
    """Input for a run that waits for it."""

    EXAMPLE: ClassVar = {"text": "Ada", "after": 3}

    text: Code
    after: Annotated[int, Field(ge=0)] = Field(
        default=0, description="`next` of the previous response."
    )
    wait_s: WaitS = 2.0
    kernel: Hostname = Field(default="main1", description=_KERNEL)


class ExecutionView(View):
    """Part of a run's output, and its status at the end of this part.

    Continue with `after` set to `next` until the status is finished or exec-timeout.
    """

    run_id: str
    kernel: str = Field(description="Kernelspec that runs it, or batch.")
    status: RunStatus
    console: list[dict[str, Any]] = Field(
        description=(
            "Items by `type`: stream (`name`, `text`); display and result (`data`: text by MIME "
            "type, binary data in base64); error (`name`, `message`, `traceback`); input "
            "(`prompt`, `password`); answered; clear; stage (`stage`, `exit_code`); truncated, "
            "gap: output was dropped; end."
        )
    )
    next: int
    exit_code: int | None = Field(
        default=None, description="0 if the code ran to its end. null if unknown."
    )
    reason: str = Field(default="", description="Why the run ended, if it did not end by itself.")
    waiting_for: int = Field(
        default=0,
        description="Number of queued runs before this one, not counting the running one.",
    )

    @property
    def ended(self) -> bool:
        return self.status in code_runs.ENDED


class CompletionSpec(Model):
    """Request for code completions."""

    EXAMPLE: ClassVar = {"code": "import ma", "language": "python"}

    code: Code
    cursor: Annotated[int | None, Field(ge=0)] = Field(
        default=None, description="Position in the code, in characters. Defaults to its end."
    )
    language: Language = Field(default="python", description=_LANGUAGE)
    kernel: Hostname = Field(default="main1", description=_KERNEL)


class CompletionView(View):
    """``matches`` replace the characters from ``cursor_start`` to ``cursor_end``."""

    matches: list[str]
    cursor_start: int
    cursor_end: int


class CodeKernelView(View):
    """A session's kernelspec, and the state of its code kernel."""

    name: str
    language: str
    display_name: str
    state: Literal["none", "idle", "busy"]
