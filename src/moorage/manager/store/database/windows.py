"""Windows of what statements read: how old a report may be, and how many starts are looked at."""

from __future__ import annotations

# A proxy that has reported nothing for so long does not count. It reports every 5 s at least.
FRESH_S = 15.0
# Starts of jobs of a site from which the next ones are planned: the latest ones of a group.
STARTS = 50
