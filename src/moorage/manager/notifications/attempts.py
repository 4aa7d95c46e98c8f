"""Schedule of attempts: when a failed delivery is repeated, and when it is given up. Pure."""

from __future__ import annotations

from typing import Literal

MAX_ATTEMPTS = 15
MAX_AGE_S = 3 * 86_400.0
_FIRST_S = 5.0
_FACTOR = 3.0
_LONGEST_S = 6 * 3600.0
_LONGEST_PAUSE_S = 900.0
# A receiver that has failed for this time, without any success, is no longer used.
DISABLE_AFTER_S = 3 * 86_400.0
# Time between two mails of a subscription. Events in between share the next mail.
MAIL_PAUSE_S = 30.0

Verdict = Literal["retry", "give-up"]


def backoff_s(failures: int, jitter: float, longest_s: float = _LONGEST_S) -> float:
    """Seconds until the next attempt after ``failures`` (at least 1) in a row. ``jitter``: a factor
    around 1."""
    exponent = min(max(failures, 1) - 1, 30)
    return float(min(_FIRST_S * _FACTOR**exponent, longest_s) * jitter)


def pause_s(failures: int, jitter: float) -> float:
    """Seconds for which a subscription rests after ``failures`` in a row, so that a dead receiver
    does not get an attempt for each event in its queue."""
    return backoff_s(failures, jitter, _LONGEST_PAUSE_S)


def verdict(attempts: int, age_s: float) -> Verdict:
    """Whether a delivery that has failed ``attempts`` times is attempted again. ``age_s``: since it
    was queued."""
    return "retry" if attempts < MAX_ATTEMPTS and age_s < MAX_AGE_S else "give-up"
