"""Shell scripts that ``moorage cp`` and the manager run in a session to copy and list its files,
and the meaning of their exit codes and output. They need sh and tar, and stat for sizes and
times."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

# Exit codes: the path does not exist; it cannot be read; sh or tar do not exist.
MISSING = 3
DENIED = 4
NO_PROGRAM = (126, 127)
# How tar programs report a full disk; some report the last, incomplete write instead.
_DISK_FULL = ("No space left on device", "Wrote only", "Disk quota exceeded")
# Receives a copy. $1: target path; $2: name of the source; $3: a unique id. It merges with tar,
# which replaces links instead of writing through them like cp. The EXIT trap removes a partial
# copy, whatever ends the script. The script itself ignores signals: they terminate tar, and `set
# -e` then ends the script. An `exit` in the signal trap could cut the EXIT trap short. Tar may exit
# at the end of its input before the signal arrives, so rm must also survive the signal.
RECEIVE_SCRIPT = """
set -eu
target=$1 name=$2
case $target in -*) target=./$target;; esac
if [ -d "$target" ]; then into=$target; else
  case $target in */) echo "there is no directory $target" >&2; exit 3;; esac
  name=${target##*/}
  case $target in */*) into=${target%/*};; *) into=.;; esac
  [ -n "$into" ] || into=/
  [ -d "$into" ] || { echo "there is no directory $into" >&2; exit 3; }
fi
part=$into/.moorage-cp-$3
trap 'trap "" HUP INT PIPE TERM; rm -rf "$part"' EXIT
trap : HUP INT PIPE TERM
mkdir "$part"
tar -xf - -C "$part"
if [ -L "$into/$name" ]; then rm -f "$into/$name"; fi
if [ -d "$into/$name" ]; then
  [ -d "$part/copy" ] || { echo "$into/$name is a directory" >&2; exit 1; }
  (cd "$part/copy" && tar -cf - .) | tar -xf - -C "$into/$name"
else
  mv -f "$part/copy" "$into/$name"
fi
"""
# Sends a copy. GNU tar exits with 1 if a file changed while it was read, and pads it or leaves out
# the rest: the stream is complete. Other tar programs exit with 1 for any error.
SEND_SCRIPT = """
set -eu
path=$1
case $path in -*) path=./$path;; esac
[ -e "$path" ] || [ -L "$path" ] || { echo "there is no $path" >&2; exit 3; }
[ ! -L "$path" ] || path=$(readlink -f "$path")
case $path in */*) cd "${path%/*}/";; esac
code=0
tar -cf - "./${path##*/}" || code=$?
if [ "$code" = 1 ]; then case $(tar --version 2> /dev/null) in *GNU*) code=0;; esac; fi
exit "$code"
"""
# Lists the directory $1, of which at most $2 names. Writes, each followed by a zero byte: the
# directory's path; for each name its kind, whether it is a link, and the name; and whether names
# are left. The lines of stat follow, for the names that it could examine. The names are in the list
# of `for`, because the positional parameters of a large directory would be copied for each of them.
LIST_SCRIPT = r"""
unset CDPATH
path=$1 limit=$2 left=. count=0
case $path in -*) path=./$path;; esac
[ -e "$path" ] || { echo "there is no $path" >&2; exit 3; }
[ -d "$path" ] || { echo "$path is not a directory" >&2; exit 3; }
cd "$path" 2> /dev/null && [ -r . ] || { echo "$path: permission denied" >&2; exit 4; }
printf '%s\000' "$(pwd -P)"
set --
for name in * .[!.]* ..?*; do
  link=-
  if [ -L "./$name" ]; then link=l; elif [ ! -e "./$name" ]; then continue; fi
  if [ "$count" -ge "$limit" ]; then left=+; break; fi
  count=$((count + 1))
  if [ -d "./$name" ]; then kind=d; elif [ -f "./$name" ]; then kind=f; else kind=o; fi
  printf '%s%s%s\000' "$kind" "$link" "$name"
  set -- "$@" "./$name"
done
printf '%s\000' "$left"
[ "$count" = 0 ] || stat -L -c '%s/%Y/%n' -- "$@" 2> /dev/null
exit 0
"""
_KINDS: dict[bytes, Literal["file", "directory", "other"]] = {
    b"f": "file",
    b"d": "directory",
    b"o": "other",
}
# What precedes the name in a line of stat. No real size or time has more digits.
_LINE = re.compile(rb"([0-9]{1,19})/(-?[0-9]{1,12})/\./")


@dataclass(frozen=True, slots=True)
class ListedFile:
    """``kind``: of the target, if it is a link. ``size`` in bytes and ``changed_at`` in seconds
    since 1970 are None if stat could not examine it."""

    name: bytes
    kind: Literal["file", "directory", "other"]
    link: bool
    size: int | None
    changed_at: int | None


@dataclass(frozen=True, slots=True)
class DirectoryListing:
    """``complete``: no names are left out."""

    path: bytes
    files: list[ListedFile]
    complete: bool


def read_listing(output: bytes) -> DirectoryListing:
    """Read the output of ``LIST_SCRIPT``. Raises ``ValueError`` if it is incomplete.

    Names may contain any byte except zero and "/", including newlines. The lines of stat are
    therefore matched with the names, which are in the same order; a file that was deleted in
    between has no line."""
    path, *names = output.split(b"\0")
    if len(names) < 2 or names[-2] not in (b".", b"+"):
        raise ValueError("the list of files is incomplete")

    lines = names[-1]
    at = 0
    files = []
    for entry in names[:-2]:
        kind = _KINDS.get(entry[:1])
        name = entry[2:]
        if kind is None or not name:
            raise ValueError("the list of files has an invalid entry")

        size = changed_at = None
        line = _LINE.match(lines, at)
        if line and lines.startswith(name + b"\n", line.end()):
            size = int(line[1])
            changed_at = int(line[2])
            at = line.end() + len(name) + 1

        link = entry[1:2] == b"l"
        files.append(ListedFile(name, kind, link, size, changed_at=changed_at))

    return DirectoryListing(path, files, names[-2] == b".")


def is_disk_full(message: str) -> bool:
    """Whether a tar program reports a full disk."""
    return any(known in message for known in _DISK_FULL)
