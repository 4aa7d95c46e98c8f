"""Redial policy: which manager an agent or proxy dials next, and after how long. Pure.

The order of the managers is random for each process, so that agents and proxies spread over them.
Delays are random, so that a failed manager's peers do not all reach the next one simultaneously.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

# Delay before dialing a manager that has not been tried since the last success; half of this on
# average. A manager with a large fleet requests less frequent reports, so the report interval
# reveals the size of the fleet, and the delay is then a fraction of that interval. If a manager
# with 3,333 of 10,000 agents fails, its agents reach the others within 5 s.
SPREAD_S = 0.1
SPREAD_PART = 0.2
LONGEST_SPREAD_S = 30.0
FIRST_BACKOFF_S = 0.2
LONGEST_BACKOFF_S = 5.0
_BACKOFF_JITTER = 0.25


class Redial:
    """``addresses``: all known managers, in the order in which to try them. ``jitter``: like
    ``Clock.jitter``.

    After a failure, the next manager is tried almost immediately. Once all have failed, a backoff
    precedes each attempt and doubles with every round.
    """

    def __init__(self, addresses: Sequence[str], jitter: Callable[[float], float]) -> None:
        self._addresses = list(addresses)
        self._configured = frozenset(addresses)
        self._jitter = jitter
        self._failures = 0
        self._spread_s = SPREAD_S

    def set_interval(self, seconds: float) -> None:
        """Set the report interval that the manager requests; 0 means the agent's own setting, which
        indicates a small fleet."""
        self._spread_s = min(max(SPREAD_S, SPREAD_PART * seconds), LONGEST_SPREAD_S)

    @property
    def current(self) -> str:
        return self._addresses[0]

    @property
    def others(self) -> tuple[str, ...]:
        return tuple(self._addresses[1:])

    @property
    def is_failing(self) -> bool:
        """Whether all managers have failed since one of them last answered."""
        return self._failures >= len(self._addresses)

    def succeeded(self) -> None:
        self._failures = 0

    def next_delay_s(self) -> float:
        """Choose the next manager, because the current one has failed or the connection to it has
        ended. Returns the delay before it is dialed."""
        self._addresses.append(self._addresses.pop(0))
        self._failures += 1
        rounds = self._failures // len(self._addresses)
        if not rounds:
            return self._spread_s / 2 * self._jitter(1.0)
        backoff_s = FIRST_BACKOFF_S * float(2 ** min(rounds - 1, 16))
        return min(backoff_s, LONGEST_BACKOFF_S) * self._jitter(_BACKOFF_JITTER)

    def prefer(self, address: str) -> None:
        """Dial this manager next, because it was found to be better than the current one."""
        self._addresses[1:] = [address, *(a for a in self._addresses[1:] if a != address)]

    def learn(self, addresses: Sequence[str]) -> bool:
        """Add unknown managers, and remove those learned earlier that no longer exist. Returns
        whether any were added."""
        new = [address for address in addresses if address not in self._addresses]
        kept = {self.current, *self._configured, *addresses}
        self._addresses = [address for address in self._addresses if address in kept] + new
        return bool(new)
