"""A kernel's job at a site, as the site describes it. Times are in Unix seconds, 0 if unknown.
Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from moorage.agent.runtimes import RuntimeObservation
from moorage.common.link.messages import Observation
from moorage.common.model.status import ObservedState

# A job that the site does not report cannot still be running this long after its walltime. The
# margin is needed because sites kill jobs a little late, and clocks differ.
WALLTIME_GRACE_S = 600.0
# A site may report the same time with slight differences from answer to answer.
_SAME_S = 1.0


@dataclass(slots=True)
class SiteJobFacts:
    """Facts about a job. ``finds_address``: only the job itself knows where it listens, which is
    ``address``, with its ``app_ports`` by name. ``unreachable``: why no request reaches its engine;
    the job is not replaced for this reason before ``kept_until``."""

    finds_address: bool = False
    address: tuple[str, int] | None = None
    app_ports: Mapping[str, int] = field(default_factory=dict)
    expected_start: float = 0.0
    ends_at: float = 0.0
    unreachable: str = ""
    kept_until: float = 0.0

    def note(self, observed: RuntimeObservation) -> bool:
        """Apply the runtime's observation. Returns whether there is something new to report."""
        starts = observed.expected_start or 0.0
        ends = observed.ends_at or self.ends_at

        # If the site temporarily does not mention a job, its facts are kept.
        is_seen = observed.state is ObservedState.RUNNING
        reached = is_seen and bool(observed.unreachable) is not bool(self.unreachable)
        if reached:
            self.unreachable = observed.unreachable
            self.kept_until = observed.kept_until

        if self.finds_address and observed.address not in (None, self.address):
            self.address = observed.address
            self.app_ports = observed.app_ports
        elif abs(starts - self.expected_start) < _SAME_S and abs(ends - self.ends_at) < _SAME_S:
            return reached

        self.expected_start = starts
        self.ends_at = ends
        return True

    @property
    def awaits_address(self) -> bool:
        return self.finds_address and self.address is None

    def outlived(self, observed: RuntimeObservation, now: float) -> RuntimeObservation | None:
        """The end of an unknown job once its walltime is over. None means that it may be
        running."""
        if observed.state is not ObservedState.UNKNOWN or not self.ends_at:
            return None
        if now < self.ends_at + WALLTIME_GRACE_S:
            return None
        detail = "there has been no news of its job, and its walltime is over"
        return RuntimeObservation(ObservedState.EXITED, walltime_over=True, detail=detail)

    def reported(self, observation: Observation) -> Observation:
        if self.finds_address:
            found = ((app, self.app_ports.get(app.name, 0)) for app in observation.apps)
            apps = tuple(replace(app, port=port, inner=port) for app, port in found if port)
            observation = replace(observation, apps=apps)

        if self.unreachable and observation.state is ObservedState.RUNNING:
            observation = replace(
                observation, unhealthy=self.unreachable, kept_until=self.kept_until
            )

        if not (self.expected_start or self.ends_at or self.address):
            return observation

        host, port = self.address or (observation.host, observation.port)
        starts = self.expected_start
        ends = self.ends_at
        return replace(observation, host=host, port=port, expected_start=starts, ends_at=ends)
