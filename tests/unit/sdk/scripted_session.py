"""A session with scripted statuses: each ``advance`` moves it to the next one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from moorage.common.model.reasons import Reason
from moorage.common.model.slots import parse_slots
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import LIVE, TERMINAL, Result, SessionType, Status
from moorage.common.views.endpoints import ReplicaView
from moorage.common.views.resources import HistoryEntry, Hold, KernelView, SessionView, UserHold
from moorage.common.views.steps import StepRef
from moorage.manager.identity.keys import Owner

CREATED_AT = datetime(2026, 1, 1, tzinfo=UTC)
ROOT = Owner("root", "default")
START = (Status.SCHEDULED, Status.PREPARING, Status.CREATING, Status.RUNNING)


@dataclass
class ScriptedSession:
    """``script``: the next statuses; the last one is final. ``log_breaks``: how often reading fails
    after the first piece. ``log_rotates``: how many pieces are rotated away at each failure."""

    id: str
    name: str
    spec: SessionSpec
    owner: Owner = ROOT
    endpoint: str | None = None
    actor: str = "test"
    script: list[Status] = field(default_factory=list)
    status: Status = Status.PENDING
    reason: Reason = Reason.NONE
    detail: str = ""
    exit_code: int | None = None
    log: list[bytes] = field(default_factory=list)
    log_breaks: int = 0
    log_rotates: int = 0
    log_tail: str = ""
    hold: Hold | None = None
    held: UserHold | None = None
    advances_to_stop: int = 1
    pipeline: StepRef | None = None
    history: list[HistoryEntry] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._note(None, "created", self.actor)

    def advance(self) -> None:
        if self.script:
            self._move(self.script.pop(0), "move", "test")

    def finish(self) -> None:
        """Advance to the end of the script."""
        while self.script:
            self.advance()

    def stop(self, reason: Reason, actor: str = "test") -> None:
        """A pending session is cancelled; others terminate after ``advances_to_stop``."""
        if self.status not in LIVE:
            return

        self.reason = reason
        if self.status is Status.PENDING:
            self.script = []
            self._move(Status.CANCELLED, "stop", actor)
        else:
            self.exit_code = 0
            self.script = [*[Status.TERMINATING] * (self.advances_to_stop - 1), Status.TERMINATED]
            self._move(Status.TERMINATING, "stop", actor)

    def note_update(self, event: str, actor: str, detail: str) -> None:
        """Note a change of the session."""
        self._note(self.status, event, actor)
        self.history[-1] = self.history[-1].model_copy(update={"detail": detail})

    def view(self) -> SessionView:
        ended = self.status in TERMINAL
        result = Result.SUCCESS if self.exit_code == 0 else Result.FAILED
        has_result = ended and self.status is not Status.CANCELLED
        return SessionView(
            id=self.id,
            name=self.name,
            type=self.spec.type,
            status=self.status,
            result=result if has_result else Result.UNDEFINED,
            reason=self.reason if ended else Reason.NONE,
            detail=self.detail if ended else "",
            resource_group=self.spec.resource_group,
            priority=self.spec.priority,
            user_labels=self.spec.user_labels,
            attempt=1,
            revision=len(self.history),
            endpoint=self.endpoint,
            pipeline=self.pipeline,
            created_at=CREATED_AT,
            status_since=CREATED_AT,
            user=self.owner.user,
            project=self.owner.project,
            slots=parse_slots(self.spec.resources),
            spec=self.spec,
            kernels=[self._kernel(ended)],
            hold=self.hold if self.status is Status.PENDING else None,
            held=self.held if self.status is Status.PENDING else None,
        )

    def replica(self) -> ReplicaView:
        view = self.view()
        return ReplicaView(
            session_id=self.id,
            name=self.name,
            status=view.status,
            reason=view.reason,
            detail=view.detail,
            agent_id=view.kernels[0].agent_id if view.kernels else None,
            status_since=CREATED_AT,
            log_tail=self.log_tail if view.status in TERMINAL else "",
        )

    def _kernel(self, ended: bool) -> KernelView:
        return KernelView(
            id=f"kernel-of-{self.id}",
            attempt=1,
            status=self.status,
            agent_id=None if self.status in (Status.PENDING, Status.CANCELLED) else "node-1",
            reason=self.reason if ended else Reason.NONE,
            exit_code=self.exit_code if ended else None,
            log_tail=self.log_tail if ended else "",
            status_since=CREATED_AT,
        )

    def _move(self, status: Status, event: str, actor: str) -> None:
        before = self.status
        self.status = status
        if before is not status:
            self._note(before, event, actor)

    def _note(self, before: Status | None, event: str, actor: str) -> None:
        failed = self.status in TERMINAL
        self.history.append(
            HistoryEntry(
                revision=len(self.history) + 1,
                at=CREATED_AT + timedelta(seconds=0.25 * len(self.history)),
                event=event,
                from_status=before,
                to_status=self.status,
                reason=self.reason if failed else Reason.NONE,
                actor=actor,
                detail=self.detail if failed else "",
            )
        )


def fails_with(reason: Reason, detail: str, log_tail: str) -> dict[str, Any]:
    """Fields of a session that starts and then ends in ERROR."""
    script: Sequence[Status] = (Status.SCHEDULED, Status.CREATING, Status.ERROR)
    return {
        "script": list(script),
        "reason": reason,
        "detail": detail,
        "log_tail": log_tail,
        "exit_code": 1,
    }


def runs(exit_code: int, reason: Reason, *log: bytes) -> dict[str, Any]:
    """Fields of a batch session that runs and exits."""
    end = Status.TERMINATED if exit_code == 0 else Status.ERROR
    script = [Status.SCHEDULED, Status.RUNNING, end]
    return {"script": script, "exit_code": exit_code, "reason": reason, "log": list(log)}


def batch(name: str | None = None, **fields: Any) -> SessionSpec:
    return SessionSpec(name=name, type=SessionType.BATCH, command=["true"], **fields)
