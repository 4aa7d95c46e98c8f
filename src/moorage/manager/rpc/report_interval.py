"""How long agents should let news gather between two reports. Pure.

A report that is taken in at once may be followed by another. Where each waits because this manager has its
hands full, more of them make it worse, and fewer with more in each make it better: agents are told to rest
in proportion to how long their reports waited, as the writers of the store rest in proportion to what a
write took (decision 7). No agent can know this by itself: to send a report costs it next to nothing.
"""

from __future__ import annotations

# Rest so many times as long as a report waits to be taken in, within the bound. Below the least it is not
# worth a word: agents rest a little anyhow.
REST, LEAST_S, LONGEST_S = 4.0, 0.03, 0.4
# The weight of the newest report: some twenty of them tell, whoever they came from.
NEWEST = 0.05


class ReportInterval:
    def __init__(self) -> None:
        self._waits_s = 0.0

    def took(self, seconds: float) -> None:
        """A report with news waited so long from its arrival until it was taken in."""
        self._waits_s += NEWEST * (seconds - self._waits_s)

    @property
    def rest_s(self) -> float:
        """Seconds between two reports of an agent; 0: as it likes."""
        rest_s = REST * self._waits_s
        return 0.0 if rest_s < LEAST_S else min(rest_s, LONGEST_S)
