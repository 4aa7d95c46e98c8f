"""Environment variables with which a kernel's program reports its progress."""

from __future__ import annotations

# Path of the file to which the program appends lines of JSON.
PROGRESS_VAR = "MOORAGE_PROGRESS"
# Set by the user to "log": progress is then read from the log, including tqdm bars.
PROGRESS_FROM = "MOORAGE_PROGRESS_FROM"
