"""Reload of a session's program as users write it, validated: how it is asked, and how it
acknowledges."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from moorage.common.model.base import Model
from moorage.common.model.kernel import Acknowledge, KernelReload
from moorage.common.model.progress import PROGRESS_FROM
from moorage.common.model.runtimes import traits_of
from moorage.common.model.service_ports import NAME_LENGTH, NAME_PATTERN, ServicePort

# Signals whose meaning programs choose. Others end or stop a program.
ReloadSignal = Literal["HUP", "USR1", "USR2", "WINCH"]


class Reload(Model):
    """How the program is asked to read its settings again: by a signal, or by a POST request."""

    signal: ReloadSignal | None = Field(
        default=None,
        description=(
            "To the main program of each kernel. It must have a handler: the default ends it."
        ),
    )
    http: Annotated[str, Field(pattern=r"^/[\x21-\x7e]*$", max_length=2048)] | None = Field(
        default=None, description="Path of a POST request to the main kernel; 2xx acknowledges it."
    )
    port: Annotated[str, Field(pattern=NAME_PATTERN, max_length=NAME_LENGTH)] | None = Field(
        default=None,
        description="`http`: the service port. null: the port that serves requests, else the only "
        "service "
        "port.",
    )
    acknowledge: Acknowledge = Field(
        default="handler",
        description="handler: the signal's handler has returned, or the response is 2xx. "
        "progress: the "
        'program also writes the line {"reloaded": true} to the file that MOORAGE_PROGRESS names.',
    )
    timeout_s: Annotated[float, Field(gt=0, le=3600)] = Field(
        default=60, description="How long a kernel may take to acknowledge, in seconds."
    )

    @model_validator(mode="after")
    def _check_way(self) -> Self:
        if (self.signal is None) is (self.http is None):
            raise ValueError(
                "`reload` needs one of `signal`, such as HUP, and `http`, such as /-/reload"
            )
        if self.port is not None and self.http is None:
            raise ValueError("`reload.port` belongs to `reload.http`; leave it out")
        return self

    def declared(self, *, is_main: bool) -> KernelReload | None:
        """What a kernel is told; None for a sub kernel, which has no service port."""
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
    """Why a session cannot be reloaded so, as a sentence; "": it can. ``serves``: it answers
    requests for a model, or has a readiness probe."""
    traits = traits_of(runtime)
    if reload.signal is not None and not traits.signals:
        return (
            f"`reload.signal`: runtime {runtime!r} sends its programs no signals other than those "
            "that end "
            "them; use `reload.http`"
        )

    if reload.acknowledge == "progress" and (traits.settings or (PROGRESS_FROM, "log") in env):
        return (
            "`reload.acknowledge` progress needs the file that MOORAGE_PROGRESS names, which jobs "
            "of a site "
            f"and sessions with {PROGRESS_FROM}=log do not have; use handler"
        )

    if reload.http is None:
        return ""

    names = [port.name for port in ports if port.protocol == "http"]
    if reload.port is None:
        if serves or len(names) == 1 or traits.images:
            return ""
        return f"`reload.http` needs `reload.port`: the session has {_listed(names)}"

    if reload.port in names or traits.images:  # an image may declare more of them
        return ""

    return (
        f"`reload.port` {reload.port!r} is no service port for http: the session has "
        f"{_listed(names)}"
    )


def _listed(names: list[str]) -> str:
    return (
        f"the service ports {', '.join(names)}"
        if names
        else "no service port for http; add one to `ports`"
    )
