"""A session's reload method, as users write it, with validation: how the program is asked, and how
it acknowledges."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from moorage.common.model.base import Model
from moorage.common.model.kernel import Acknowledge, KernelReload
from moorage.common.model.progress import PROGRESS_FROM
from moorage.common.model.runtimes import traits_of
from moorage.common.model.service_ports import NAME_LENGTH, NAME_PATTERN, ServicePort

# Signals that programs may define freely. All others end or stop a program.
ReloadSignal = Literal["HUP", "USR1", "USR2", "WINCH"]


class Reload(Model):
    """Asks the program to read its settings again, by a signal or by a POST request."""

    signal: ReloadSignal | None = Field(
        default=None,
        description=(
            "Signal sent to the main program of each kernel. The program must handle it: by "
            "default the signal ends it."
        ),
    )
    http: Annotated[str, Field(pattern=r"^/[\x21-\x7e]*$", max_length=2048)] | None = Field(
        default=None,
        description=(
            "Path of a POST request to the main kernel; a 2xx response acknowledges the reload."
        ),
    )
    port: Annotated[str, Field(pattern=NAME_PATTERN, max_length=NAME_LENGTH)] | None = Field(
        default=None,
        description=(
            "Service port for `http`. null means the port that serves requests, or otherwise the "
            "only service port."
        ),
    )
    acknowledge: Acknowledge = Field(
        default="handler",
        description=(
            "Acknowledgement. handler: the signal's handler has returned, or the response is "
            '2xx. progress: the program also writes the line {"reloaded": true} to the file that '
            "MOORAGE_PROGRESS names."
        ),
    )
    timeout_s: Annotated[float, Field(gt=0, le=3600)] = Field(
        default=60, description="Seconds within which a kernel must acknowledge."
    )

    @model_validator(mode="after")
    def _check_way(self) -> Self:
        if (self.signal is None) is (self.http is None):
            raise ValueError(
                "`reload` requires either `signal`, such as HUP, or `http`, such as /-/reload"
            )
        if self.port is not None and self.http is None:
            raise ValueError("`reload.port` applies only to `reload.http`; omit it")
        return self

    def declared(self, *, is_main: bool) -> KernelReload | None:
        """The reload that a kernel receives; None for a sub kernel without a service port."""
        if self.http is not None and not is_main:
            return None
        way = self.signal or "", self.http or "", self.port or ""
        return KernelReload(*way, self.acknowledge, self.timeout_s)


def find_reload_problem(
    reload: Reload,
    runtime: str,
    ports: Iterable[ServicePort],
    env: Iterable[tuple[str, str]],
    *,
    serves: bool,
) -> str:
    """Explain why a session cannot be reloaded this way; "" if it can.

    ``serves``: the session answers requests for a model, or has a readiness probe."""
    traits = traits_of(runtime)
    if reload.signal is not None and not traits.signals:
        return (
            f"`reload.signal`: runtime {runtime!r} cannot send its programs signals other than "
            "those that end them; use `reload.http`"
        )

    if reload.acknowledge == "progress" and (traits.settings or (PROGRESS_FROM, "log") in env):
        return (
            "`reload.acknowledge` progress requires the file that MOORAGE_PROGRESS names, which "
            f"jobs of a site and sessions with {PROGRESS_FROM}=log lack; use handler"
        )

    if reload.http is None:
        return ""

    names = [port.name for port in ports if port.protocol == "http"]
    if reload.port is None:
        if serves or len(names) == 1 or traits.images:
            return ""
        return f"`reload.http` requires `reload.port`: the session has {_listed(names)}"

    if reload.port in names or traits.images:  # an image may declare additional ports
        return ""

    return (
        f"`reload.port` {reload.port!r} is not a service port for http: the session has "
        f"{_listed(names)}"
    )


def _listed(names: list[str]) -> str:
    return (
        f"the service ports {', '.join(names)}"
        if names
        else "no service port for http; add one to `ports`"
    )
