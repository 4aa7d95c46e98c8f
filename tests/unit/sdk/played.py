"""A session played by a script: each look at it plays the next move."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from moorage.common.model.reasons import Reason
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import LIVE, TERMINAL, Result, SessionType, Status
from moorage.common.views.resources import HistoryEntry, Hold, KernelView, ReplicaView, SessionView

BORN = datetime(2026, 1, 1, tzinfo=UTC)
STARTS = (Status.PENDING, Status.SCHEDULED, Status.PREPARING, Status.CREATING, Status.RUNNING)


@dataclass
class Played:
    """One session. ``script``: what comes next; the last status stays."""

    id: str
    name: str
    spec: SessionSpec
    endpoint: str | None = None
    script: list[Status] = field(default_factory=lambda: list(STARTS[1:]))
    status: Status = Status.PENDING
    reason: Reason = Reason.NONE
    detail: str = ""
    exit_code: int | None = None
    log: list[bytes] = field(default_factory=list)
    log_breaks: bool = False
    log_tail: str = ""
    hold: Hold | None = None
    stop_needs_looks: int = 1
    history: list[HistoryEntry] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._note(None)

    def _note(self, before: Status | None) -> None:
        failed = self.status in TERMINAL
        self.history.append(
            HistoryEntry(
                revision=len(self.history) + 1,
                at=BORN + timedelta(seconds=0.25 * len(self.history)),
                event="created" if before is None else "moved",
                from_status=before,
                to_status=self.status,
                reason=self.reason if failed else Reason.NONE,
                actor="test",
                detail=self.detail if failed else "",
            )
        )

    def look(self) -> None:
        if self.script:
            before, self.status = self.status, self.script.pop(0)
            self._note(before)

    def view(self) -> SessionView:
        ended = self.status in TERMINAL
        good = ended and self.exit_code == 0
        kernel = KernelView(
            id=self.id.replace("session", "kernel"),
            attempt=1,
            status=self.status,
            agent_id=None if self.status is Status.PENDING else "agent-1",
            exit_code=self.exit_code if ended else None,
            log_tail=self.log_tail if ended else "",
            status_since=BORN,
        )
        return SessionView(
            id=self.id,
            name=self.name,
            type=self.spec.type,
            status=self.status,
            result=(Result.SUCCESS if good else Result.FAILED) if ended else Result.UNDEFINED,
            reason=self.reason if ended else Reason.NONE,
            detail=self.detail if ended else "",
            resource_group=self.spec.resource_group,
            priority=self.spec.priority,
            attempt=1,
            revision=len(self.history),
            endpoint=self.endpoint,
            created_at=BORN,
            status_since=BORN,
            slots={"cpu": 1000, "mem": 1 << 30},
            spec=self.spec,
            kernels=[kernel],
            hold=self.hold if self.status is Status.PENDING else None,
        )

    def replica(self) -> ReplicaView:
        view = self.view()
        return ReplicaView(
            session_id=self.id,
            name=self.name,
            status=view.status,
            reason=view.reason,
            detail=view.detail,
            agent_id=view.kernels[0].agent_id,
            status_since=BORN,
            log_tail=self.log_tail if view.status in TERMINAL else "",
        )

    def end(self, reason: Reason) -> None:
        if self.status in LIVE:
            self.reason, self.exit_code = reason, 0
            self.script = [*[Status.TERMINATING] * self.stop_needs_looks, Status.TERMINATED]
            self.look()


def fails_with(reason: Reason, detail: str, log_tail: str) -> dict[str, Any]:
    """Fields of a session that starts and then ends in ERROR."""
    script: Sequence[Status] = (Status.SCHEDULED, Status.CREATING, Status.ERROR)
    return {"script": list(script), "reason": reason, "detail": detail, "log_tail": log_tail, "exit_code": 1}


def batch(name: str | None = None) -> SessionSpec:
    return SessionSpec(name=name, type=SessionType.BATCH, command=["true"])


def runs(exit_code: int, reason: Reason, *log: bytes) -> dict[str, Any]:
    """Fields of a batch session that runs and ends by itself."""
    end = Status.TERMINATED if exit_code == 0 else Status.ERROR
    script = [Status.SCHEDULED, Status.RUNNING, end]
    return {"script": script, "exit_code": exit_code, "reason": reason, "log": list(log)}
