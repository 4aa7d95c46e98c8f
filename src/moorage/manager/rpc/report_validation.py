"""Validation of agents' reports: rejects values that the database could not store. Pure."""

from __future__ import annotations

import re
from collections import Counter

from moorage.common.link.messages import (
    HIGHEST_GENERATION,
    AgentInfo,
    Observation,
    Report,
    ReportDelta,
    SlotOffer,
)
from moorage.common.model import service_ports
from moorage.common.model.service_ports import ServicePort
from moorage.common.model.slots import WHOLE_DEVICE

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_MAX_INT64 = 2**63 - 1
_MAX_KERNELS = 2**31 - 1
_MAX_TIME = 253_402_300_799  # the year 9999
_MAX_SILENCE_S = 31_536_000  # a year
# Limits, in characters, on a kernel's texts and on the texts of an agent's description.
_MAX_TEXT = 1 << 20
_AGENT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def find_problem(message: Report | ReportDelta) -> str:
    """The first invalid field with its value, or "" for a valid report."""
    info = message.info
    if not message.incarnation or "\0" in message.incarnation:
        return "a report requires an incarnation"
    if isinstance(message, Report) and message.stream > _MAX_INT64:
        return f"stream {message.stream} is above {_MAX_INT64}"

    seen = message.seen_generation if isinstance(message, Report) else message.orders_generation
    if seen > HIGHEST_GENERATION:
        return f"generation {seen} is above {HIGHEST_GENERATION}"

    problem = _problem_of_info(info) if info is not None else ""
    return problem or next((w for k in message.kernels if (w := _problem_of_kernel(k))), "")


def _problem_of_info(info: AgentInfo) -> str:
    if not _AGENT_ID.fullmatch(info.agent_id):
        return f"agent_id {_short(info.agent_id)} is not 1 to 128 letters, digits, dots, - and _"

    names = (info.resource_group, info.address, info.version, info.arch, info.identity)
    texts = (
        *names,
        *info.runtimes,
        *info.engines,
        *(runtime.name for runtime in info.runtime_states),
    )
    texts = (*texts, *info.labels, *info.labels.values())
    jobs = info.doubtful_jobs
    texts = (
        *texts,
        *(text for j in jobs for text in (j.runtime, j.name, j.job_id, j.why, j.tried)),
    )
    if (
        not info.resource_group
        or any("\0" in text for text in texts)
        or sum(map(len, texts)) > _MAX_TEXT
    ):
        return (
            f"a report requires a resource_group, and its texts may contain at most {_MAX_TEXT} "
            "characters and no NUL"
        )

    if wrong := [job.since for job in jobs if not 0 <= job.since <= _MAX_TIME]:
        return f"the time {wrong[0]} of a job in doubt is not 0 to {_MAX_TIME} Unix seconds"

    for (slot, device), count in Counter((o.slot, o.device_id) for o in info.offers).items():
        if count > 1 or not slot or "\0" in slot + device:
            return (
                f"slot {_short(slot)} of device {_short(device)} is offered {count} times, or "
                "has no name"
            )

    if not (1 <= info.share_quantum <= WHOLE_DEVICE and 1 <= info.share_minimum <= WHOLE_DEVICE):
        return (
            f"share_quantum {info.share_quantum} or share_minimum {info.share_minimum} is not 1 "
            "to 1000"
        )

    if info.max_kernels is not None and not 0 < info.max_kernels <= _MAX_KERNELS:
        return f"max_kernels {info.max_kernels} is not 1 to {_MAX_KERNELS}"

    times = [info.report_interval_s, *(runtime.silence_grace_s for runtime in info.runtime_states)]
    if wrong := [seconds for seconds in times if not 0 <= seconds <= _MAX_SILENCE_S]:
        return f"an interval or grace period of {wrong[0]} s is not 0 to {_MAX_SILENCE_S}"

    for offer in info.offers:
        if problem := _problem_of_location(offer):
            return f"device {_short(offer.device_id)}: {problem}"

    negative = next((o for o in info.offers if o.capacity < 0 or o.memory_bytes < 0), None)
    return (
        f"slot {_short(negative.slot)} has a capacity or memory below 0"
        if negative is not None
        else ""
    )


def _problem_of_location(offer: SlotOffer) -> str:
    if (
        any("\0" in text or "|" in text for text in (offer.nvlink_domain, offer.parent))
        or "\0" in offer.model
    ):
        return (
            "no text may contain a NUL character, and nvlink_domain and parent must not contain |"
        )
    return f"NUMA node {offer.numa} is below 0" if offer.numa is not None and offer.numa < 0 else ""


def _problem_of_kernel(kernel: Observation) -> str:
    if not _UUID.fullmatch(kernel.kernel_id):
        return f"kernel_id {_short(kernel.kernel_id)} is not a UUID in its canonical form"

    texts = (
        kernel.host
        + kernel.detail
        + kernel.log_tail
        + (kernel.reload.detail if kernel.reload else "")
    )
    if "\0" in texts or len(texts) > _MAX_TEXT:
        return (
            f"a text of kernel {kernel.kernel_id} contains a NUL character, or more than "
            f"{_MAX_TEXT} characters"
        )

    if kernel.reload is not None and not 0 < kernel.reload.generation <= _MAX_INT64:
        return (
            f"reload {kernel.reload.generation} of kernel {kernel.kernel_id} is not 1 to "
            f"{_MAX_INT64}"
        )

    if kernel.port and not kernel.host:
        return f"kernel {kernel.kernel_id} listens on port {kernel.port}, but has no host"

    wrong = [
        at
        for at in (kernel.expected_start, kernel.ends_at, kernel.kept_until)
        if not 0 <= at <= _MAX_TIME
    ]
    if wrong:
        return f"time {wrong[0]} of kernel {kernel.kernel_id} is not 0 to {_MAX_TIME} Unix seconds"
    if problem := _problem_of_apps(kernel):
        return f"kernel {kernel.kernel_id}: {problem}"

    return (
        f"port {kernel.port} of kernel {kernel.kernel_id} is above 65535"
        if kernel.port > 65535
        else ""
    )


def _problem_of_apps(kernel: Observation) -> str:
    if not kernel.apps:
        return ""

    nowhere = next((app for app in kernel.apps if not 0 < app.port <= 65535), None)
    if nowhere is not None or not kernel.host:
        return (
            f"it offers apps, but at {_short(kernel.host)}, port "
            f"{nowhere.port if nowhere else 'known'}"
        )

    declared = (
        ServicePort(
            app.name, 0, protocol=app.protocol, base_path=app.base_path, guarded=app.guarded
        )
        for app in kernel.apps
    )
    return service_ports.find_problem(declared)


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:60]}…")
