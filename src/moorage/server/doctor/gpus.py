"""NVIDIA GPUs in node and host diagnostics."""

from __future__ import annotations

from moorage.agent.devices.nvidia import DriverReport
from moorage.server.doctor.checks import CheckResult

_NAME = "NVIDIA driver"
# How many GPUs one line names.
_MAX_NAMED = 3


def check_driver(report: DriverReport, *, configured: bool) -> CheckResult:
    """Check a node's driver. ``configured``: the settings name GPUs, so missing GPUs are a
    failure."""
    gpus = {offer.parent or offer.device_id for offer in report.offers}
    faults = {o.parent or o.device_id: o.unhealthy_reason for o in report.offers if not o.healthy}
    if not gpus:
        return _without_gpus(report, configured=configured)
    if not faults:
        return CheckResult("ok", _NAME, f"{report.version}, {len(gpus)} GPUs")
    if not report.version:
        next_step = "repair the driver until nvidia-smi works; the agent notices it automatically"
        return CheckResult("fail", _NAME, next(iter(faults.values())), next_step)

    named = "; ".join(f"{gpu}: {reason}" for gpu, reason in list(faults.items())[:_MAX_NAMED])
    more = f"; and {len(faults) - _MAX_NAMED} more" if len(faults) > _MAX_NAMED else ""
    detail = f"{report.version}, {len(gpus) - len(faults)} of {len(gpus)} GPUs; {named}{more}"
    return CheckResult(
        "fail", _NAME, detail, "`moorage agents describe NODE` shows each; docs/devices.md"
    )


def _without_gpus(report: DriverReport, *, configured: bool) -> CheckResult:
    if report.unserved:
        detail = f"driver {report.version} serves no GPU, although this machine has one"
        return CheckResult(
            "fail" if configured else "warn", _NAME, detail, "`dmesg` and `lspci -k` say why"
        )

    detail = (
        f"driver {report.version}, but no GPU" if report.version else f"no GPUs ({report.absence})"
    )
    if not configured:
        return CheckResult("ok", _NAME, detail)

    next_step = "install the driver until nvidia-smi works, or remove agent.gpus from the settings"
    return CheckResult("fail", _NAME, detail, next_step)


def check_host_gpus(report: DriverReport) -> CheckResult:
    """Check the GPUs of a machine on which nothing is configured yet."""
    name = "NVIDIA GPUs"
    if not report.offers and not report.unserved:
        return CheckResult(
            "absent", name, f"none ({report.absence})", "sessions without GPUs use CPU slots"
        )

    found = check_driver(report, configured=False)
    if found.status != "ok":
        return CheckResult("missing", name, found.detail, found.next_step)

    models = sorted({offer.model for offer in report.offers})
    return CheckResult("ok", name, f"{len(report.offers)} × {', '.join(models)}")
