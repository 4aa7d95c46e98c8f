"""Clocks of a starting session: for any sequence of observations, losses and restarts, a status's
clock runs only while the site reports that status.

A site plays one job. Its agent counts the start by the rules in ``agent/kernel``, reports its
knowledge, and may be silent or restarted; a manager stores the reports by the pure rules in
``manager/lifecycle``.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from hypothesis import example, given
from hypothesis import strategies as st

from moorage.agent.kernel.start_clock import StartClock
from moorage.common.link.messages import Observation
from moorage.common.model.hpc_options import SiteJob
from moorage.common.model.ids import AgentId, KernelId, SessionId
from moorage.common.model.reasons import Reason
from moorage.common.model.spec import SessionSpec
from moorage.common.model.status import ObservedState as S
from moorage.common.model.status import SessionType, Status
from moorage.manager.lifecycle import KernelSnapshot, SessionSnapshot, Transition, reconcile_session
from moorage.manager.lifecycle.kernels import AgentUpdate, StoredKernel, kernel_changes

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
START_S = 60.0
QUEUE_S = 900.0
WALLTIME_S = 3600.0
GRACE_S = 120.0
TICK_S = 5.0
K = KernelId("k")
SESSION = SessionId("s")
SPEC = SessionSpec(
    engine="llamacpp", model="m", type=SessionType.INFERENCE, start_timeout_s=START_S, walltime_s=WALLTIME_S,
    job=SiteJob(),
)  # fmt: skip


@dataclass
class World:
    """``truth``: what the site does with the job; the site reports it while it ``answers``, and the
    agent hears it while it is ``up``. ``starting_s``, ``queued_s``: how long the agent has heard
    this since the state began."""

    spec: SessionSpec
    now: float = 0.0
    truth: S = S.QUEUED
    answers: bool = True
    up: bool = True
    clock: StartClock = field(default_factory=StartClock)
    known: S = S.UNKNOWN  # according to the agent
    kernel: StoredKernel = field(default_factory=lambda: StoredKernel(K, SESSION, Status.SCHEDULED))
    session: SessionSnapshot = field(init=False)
    deadline: float | None = 60.0
    starting_s: float = 0.0
    queued_s: float = 0.0
    entered: float = 0.0  # when its session entered its status
    ended: tuple[str, Reason] | None = None

    def __post_init__(self) -> None:
        self.session = SessionSnapshot(
            SESSION,
            Status.SCHEDULED,
            revision=1,
            attempt=1,
            spec=self.spec,
            kernels=(),
            other_agents=0,
        )
        self.known = S.PREPARING  # the agent submits the job
        self._report()

    @property
    def is_over(self) -> bool:
        return self.ended is not None or self.session.status is Status.RUNNING

    def step(self, action: S | str, lasts_s: float) -> None:
        """An event happens, and then nothing for a while."""
        if self.is_over:
            return

        if action == "agent down":
            self.up = False
        elif action == "agent up" and not self.up:
            self.clock = StartClock()
            self.up = True
            self.known = S.UNKNOWN
            self._report()  # it dies before the first observation
        elif action == "restart":
            self.clock = StartClock()
            self.up = True
            self.known = S.UNKNOWN
            self._report()
        elif action in ("silent", "answers"):
            self.answers = action == "answers"
        elif isinstance(action, S):
            self.truth = action

        until = self.now + lasts_s
        while not self.is_over and self.now < until:
            self._observe()
            self._tick(min(TICK_S, until - self.now))

    def _observe(self) -> None:
        if not self.up:
            return
        self.known = self.truth if self.answers else S.UNKNOWN
        self.clock.note(self.known, self.now)
        if self.clock.remaining_s(START_S, self.now) <= 0 and self.known is S.CREATING:
            self.ended = "agent", Reason.START_TIMEOUT
        self._report()

    def _tick(self, seconds: float) -> None:
        if self.is_over:
            return

        heard = self.known if self.up else S.UNKNOWN
        if heard is S.QUEUED:
            self.starting_s = 0.0
        if heard is S.CREATING:
            self.starting_s += seconds
            self.queued_s = 0.0

        # Between two checks that show QUEUED, the job was in the queue.
        self.queued_s += seconds if self.session.status is Status.QUEUED else 0.0
        self.now += seconds
        self._reconcile()

    def _report(self) -> None:
        update = AgentUpdate(
            None, "i", stream=1, draining=False, observed={K: Observation(K, SESSION, self.known)}
        )  # type: ignore[arg-type]
        for change in kernel_changes([self.kernel], update):
            silent = change.observation.state is S.UNKNOWN
            self.kernel = self.kernel._replace(status=change.new, is_silent=silent)
        self._reconcile()

    def _reconcile(self) -> None:
        """Until nothing changes."""
        now = EPOCH + timedelta(seconds=self.now)
        while self.ended is None and (move := self._move(now)) is not None:
            self.deadline = None if move.deadline_s is None else self.now + move.deadline_s
            self.session = replace(self.session, status=move.new, revision=move.revision + 1)
            self.entered, since = self.now, self.entered
            if move.new is Status.QUEUED:
                self.queued_s = 0.0
            if move.new is Status.TERMINATING or move.new is Status.PENDING:
                self.ended = ("manager", move.reason)
                self.entered = since

    def _move(self, now: datetime) -> Transition | None:
        silent = self.kernel.is_silent or not self.up
        kernel = KernelSnapshot(K, self.kernel.status, agent_id=AgentId("hpc"), silent=silent)
        deadline = None if self.deadline is None else EPOCH + timedelta(seconds=self.deadline)
        return reconcile_session(
            replace(self.session, kernels=(kernel,), deadline_at=deadline), now, GRACE_S
        )


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                S.QUEUED,
                S.CREATING,
                S.CREATING,
                S.RUNNING,
                "agent down",
                "agent up",
                "restart",
                "silent",
                "answers",
            ]
        ),
        st.sampled_from([5.0, 40.0, 70.0, 300.0, 1500.0]),
    ),
    max_size=10,
)
LONG_QUEUE = [(S.QUEUED, 1500.0), (S.CREATING, 20.0)]
SILENT_START = [(S.CREATING, 20.0), ("silent", 1500.0), ("answers", 20.0)]
AWAY = [(S.CREATING, 20.0), ("agent down", 1500.0), ("agent up", 40.0)]
REQUEUED = [(S.CREATING, 40.0), (S.QUEUED, 1500.0), (S.CREATING, 40.0)]


@given(steps=STEPS, limit_s=st.sampled_from([None, QUEUE_S]))
@example(steps=LONG_QUEUE, limit_s=None)
@example(steps=SILENT_START, limit_s=None)
@example(steps=AWAY, limit_s=None)
@example(steps=REQUEUED, limit_s=None)
@example(steps=[(S.QUEUED, 300.0), ("silent", 1500.0), ("answers", 5.0)], limit_s=QUEUE_S)
@example(steps=[(S.QUEUED, 300.0), ("silent", 1500.0), (S.CREATING, 300.0)], limit_s=QUEUE_S)
def test_no_status_counts_what_the_site_does_not_say(
    steps: list[tuple[S | str, float]], limit_s: float | None
) -> None:
    world = World(SPEC.model_copy(update={"queue_timeout_s": limit_s}))
    for action, lasts_s in steps:
        world.step(action, lasts_s)

    if world.ended is None:
        return

    by, reason = world.ended
    if (by, reason) == ("agent", Reason.START_TIMEOUT):
        assert world.starting_s >= START_S - TICK_S
    elif reason is Reason.START_TIMEOUT:
        assert world.now - world.entered >= WALLTIME_S, (
            "no silence is longer than the life of a job"
        )
    else:
        assert reason is Reason.QUEUE_TIMEOUT
        assert limit_s is not None
        assert world.queued_s >= limit_s
        assert (world.up, world.known) == (True, S.QUEUED), "it is known to wait when it ends"


@given(steps=STEPS)
def test_session_shows_what_its_agent_knows(steps: list[tuple[S | str, float]]) -> None:
    world = World(SPEC)
    for action, lasts_s in steps:
        world.step(action, lasts_s)
        if world.is_over:
            return
        if world.up and world.known is not S.UNKNOWN:
            shown = {S.QUEUED: Status.QUEUED, S.CREATING: Status.CREATING}
            assert world.session.status is shown[world.known]


def test_session_without_a_limit_waits_for_as_long_as_its_site_says() -> None:
    world = World(SPEC)
    world.step(S.QUEUED, 3 * WALLTIME_S)
    assert (world.ended, world.session.status, world.deadline) == (None, Status.QUEUED, None)


def test_start_that_takes_too_long_ends_and_so_does_a_queue_with_a_limit() -> None:
    world = World(SPEC)
    world.step(S.CREATING, 2 * START_S)
    assert world.ended == ("agent", Reason.START_TIMEOUT)
    world = World(SPEC.model_copy(update={"queue_timeout_s": QUEUE_S}))
    world.step(S.QUEUED, 2 * QUEUE_S)
    assert world.ended == ("manager", Reason.QUEUE_TIMEOUT)
