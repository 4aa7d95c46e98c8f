"""Limits on the data that statements read: the maximum age of reports, and the number of starts."""

from __future__ import annotations

# Seconds after which a silent proxy is no longer counted. Proxies report at least every 5 s.
FRESH_S = 15.0
# The number of a group's latest job starts from which the next ones are planned.
STARTS = 50
