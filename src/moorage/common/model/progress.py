"""Variables of a kernel's environment by which its program reports its progress."""

from __future__ import annotations

# Names the file to which the program appends lines of JSON.
PROGRESS_VAR = "MOORAGE_PROGRESS"
# Set by the user to "log": progress is read from the log, bars of tqdm included.
PROGRESS_FROM = "MOORAGE_PROGRESS_FROM"
