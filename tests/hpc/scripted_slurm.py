"""Slurm's commands as scripts over a directory, for tests that need a site but no cluster. A job is
a process on this machine."""

from __future__ import annotations

from pathlib import Path

_COMMON = """#!/bin/bash
cd "{folder}" || exit 1
[ -e down ] && {{ sleep "$(cat down)"; echo "error: Unable to contact slurm controller" >&2; exit 1; }}
echo "$(basename "$0") ${{SLURM_CONF-}}" >> asked
"""
_SBATCH = """
for word; do case "$word" in
  --job-name=*) name="${word#*=}" ;; --comment=*) comment="${word#*=}" ;; --output=*) output="${word#*=}" ;;
esac; done
exec 9> lock; flock 9
id=$(( $(cat last 2> /dev/null || echo 100) + 1 )); echo $id > last
exec 9>&-
mkdir "jobs/$id"; echo "$name" > "jobs/$id/name"; echo "$comment" > "jobs/$id/comment"
date +%s > "jobs/$id/start"
script="${@: -1}" folder="$PWD/jobs/$id" setsid bash -c '
  for fd in $(ls /proc/$$/fd); do [ $fd -gt 2 ] && eval "exec $fd>&-"; done  # of the caller, who waits
  echo $$ > "$folder/pid"; bash "$script"; code=$?
  echo $(( code << 8 )) > "$folder/code.new"; mv "$folder/code.new" "$folder/code"
' >> "$output" 2>&1 < /dev/null &
until [ -s "jobs/$id/pid" ]; do sleep 0.01; done
echo $id
"""
_SQUEUE = """
for job in jobs/*/; do
  [ -e "$job/pid" ] || continue
  state=RUNNING code=0
  [ -e "$job/code" ] && code=$(cat "$job/code") && state=COMPLETED && [ "$code" != 0 ] && state=FAILED
  [ -e "$job/cancelled" ] && state=CANCELLED
  printf '%s|%s|None|%s|Unknown|%s|%s|%s|\\n' \\
    "$(basename "$job")" $state "$(cat "$job/start")" "$code" "$(cat "$job/comment")" "$(cat "$job/name")"
done
"""
_SCANCEL = """
signal=KILL pending=
for word; do case "$word" in
  --signal=*) signal="${word#*=}" ;; --state=PENDING) pending=1 ;; --*) ;;
  *) [ -n "$pending" ] || [ -e "jobs/$word/code" ] || {
       [ "$signal" = KILL ] && touch "jobs/$word/cancelled"
       pkill -$signal -s "$(cat "jobs/$word/pid")"
     } ;;
esac; done
exit 0
"""
_SINFO = """
[ "$1" = --version ] && echo "slurm 22.05.8" || echo "main*|up|1-00:00:00"
"""


class ScriptedSlurm:
    """``commands``: the directory of the commands. ``down``: how many seconds they hang before they
    fail, or None if they work."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.commands = folder / "bin"
        self.commands.mkdir(parents=True)
        (folder / "jobs").mkdir()

        for name, text in (
            ("sbatch", _SBATCH),
            ("squeue", _SQUEUE),
            ("scancel", _SCANCEL),
            ("sinfo", _SINFO),
        ):
            (self.commands / name).write_text(_COMMON.format(folder=folder) + text)
            (self.commands / name).chmod(0o755)

    def agent(self) -> dict[str, object]:
        """The settings of an agent that uses it."""
        return {"runtimes": ["slurm"], "slurm_commands": str(self.commands), "slurm_poll_s": 1}

    @property
    def names(self) -> list[str]:
        """The names of all jobs ever submitted."""
        return [path.read_text().strip() for path in sorted(self.folder.glob("jobs/*/name"))]

    def set_down(self, hang_s: float | None) -> None:
        mark = self.folder / "down"
        if hang_s is None:
            mark.unlink(missing_ok=True)
        else:
            mark.write_text(f"{hang_s:g}")

    def confs(self) -> set[str]:
        """SLURM_CONF of the calls so far."""
        return {line.partition(" ")[2] for line in (self.folder / "asked").read_text().splitlines()}
