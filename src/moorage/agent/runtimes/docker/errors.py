"""Docker Engine errors, and their translation into reasons for users."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from moorage.agent.runtimes.base import CreateFailed, RuntimeFailed
from moorage.common.model.reasons import Reason

_TOOLKIT = "install the NVIDIA container toolkit there"
# Substrings of the engine's messages, in lower case. The HTTP status does not distinguish most of
# the errors.
_EXPLANATIONS: tuple[tuple[str, Reason, str], ...] = (
    ("no such image", Reason.IMAGE_MISSING, "check its name, or pull it on that node"),
    (
        "unresolvable cdi devices",
        Reason.NO_NVIDIA_RUNTIME,
        "run `nvidia-ctk cdi generate` on that node",
    ),
    (
        "cdi device injection failed",
        Reason.NO_NVIDIA_RUNTIME,
        "run `nvidia-ctk cdi generate` on that node",
    ),
    ("could not select device driver", Reason.NO_NVIDIA_RUNTIME, _TOOLKIT),
    ("unknown runtime specified nvidia", Reason.NO_NVIDIA_RUNTIME, _TOOLKIT),
    (
        "nvidia-container-cli",
        Reason.NO_NVIDIA_RUNTIME,
        "check nvidia-smi and the driver on that node",
    ),
    ("port is already allocated", Reason.PORT_TAKEN, "check which program listens on that node"),
    ("address already in use", Reason.PORT_TAKEN, "check which program listens on that node"),
    ("range of cpus is from", Reason.LIMIT_REFUSED, "ask for no more CPUs than the node has"),
    ("minimum memory limit", Reason.LIMIT_REFUSED, "ask for more memory"),
    ("kernel memory", Reason.LIMIT_REFUSED, "ask for a different amount of memory"),
    (
        "inter-container",
        Reason.NO_NETWORK,
        "`modprobe br_netfilter` there, or set agent.docker_network",
    ),
    (
        "br_netfilter",
        Reason.NO_NETWORK,
        "`modprobe br_netfilter` there, or set agent.docker_network",
    ),
    (
        "address pool",
        Reason.NO_NETWORK,
        "add to default-address-pools in that engine's daemon.json",
    ),
    (
        "no space left on device",
        Reason.DISK_FULL,
        "free some space in the data directory of Docker on that node",
    ),
    (
        "disk quota exceeded",
        Reason.DISK_FULL,
        "free some space in the data directory of Docker on that node",
    ),
    ("executable file not found", Reason.CREATE_FAILED, "use a program that is in the image"),
    ("invalid mount config", Reason.CREATE_FAILED, "check agent.docker_mounts on that node"),
)


class EngineUnavailable(RuntimeFailed):
    """The Docker Engine did not answer, so the outcome of the request is unknown. ``unsent``: the
    request did not reach the engine."""

    def __init__(self, cause: str, *, unsent: bool = False) -> None:
        super().__init__(
            f"the Docker Engine does not answer: {cause}",
            next_step="check `systemctl status docker` on that node",
        )
        self.unsent = unsent

    def note_effect(self) -> None:
        """Note that an earlier request in the same step has reached the engine."""
        self.unsent = False


class RequestRefused(RuntimeFailed):
    """The Docker Engine answered with an error. ``status``: the HTTP status."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class NoSuchObject(RequestRefused):
    """The container, image, network or exec does not exist."""


class DiskFull(RuntimeFailed):
    """Less than ``agent.docker_min_free`` is free in the engine's data directory."""

    code = "disk-full"
    is_refusal = True


def explain(message: str) -> tuple[Reason, str]:
    """The reason for one of the engine's error messages, and the next step."""
    lower = message.lower()
    for part, reason, next_step in _EXPLANATIONS:
        if part in lower:
            return reason, next_step
    return Reason.CREATE_FAILED, ""


@contextmanager
def as_create_failed() -> Iterator[None]:
    """A context that translates engine errors into ``CreateFailed``."""
    try:
        yield
    except RequestRefused as error:
        reason, next_step = explain(str(error))
        raise CreateFailed(str(error), reason=reason, next_step=next_step) from None
    except DiskFull as error:
        raise CreateFailed(
            error.message, reason=Reason.DISK_FULL, clean=True, next_step=error.next_step
        ) from None
    except EngineUnavailable as error:
        reason = Reason.RUNTIME_UNAVAILABLE
        raise CreateFailed(
            error.message, reason=reason, clean=error.unsent, next_step=error.next_step
        ) from None
    except RuntimeFailed as error:  # the Docker SDK is not installed
        raise CreateFailed(error.message, clean=True, next_step=error.next_step) from None
