"""Kernelspecs of a session: finding them in the session, choosing one for a language, and starting
it.

Pure: the script runs inside the session, and its output is parsed here. It needs a shell with
``cat``, just as copying files does. The session controls the output, so the caller limits its size.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from moorage.common.model.errors import NotFound

_END = "\x1e"
# Searches where Jupyter does: JUPYTER_PATH, the user's directory, the environment of each program
# directory, the system. Prints the directory, the text and a separator for each file. If several
# files have the same name, the first one is used.
FIND = r"""
show() { for f in "$1"/kernels/*/kernel.json; do
  [ -f "$f" ] && { printf '%s\n' "${f%/kernel.json}"; cat "$f"; printf '\036'; }; done; }
IFS=:
for p in $JUPYTER_PATH; do show "$p"; done
show "${JUPYTER_DATA_DIR:-$HOME/.local/share/jupyter}"
for p in $PATH; do show "${p%/bin}/share/jupyter"; done
show /usr/local/share/jupyter; show /usr/share/jupyter
"""
# Arguments: the directory for the sockets, the program directory of the kernelspec's environment,
# then the command. The connection file is read from standard input because it holds the key, and
# others can read arguments.
START = r"""
old=$(umask); umask 077
mkdir -p "$1" || exit 125
printf '%s\n' $$ >"$1/pid" && cat >"$1/connection.json" || exit 125
umask "$old"
echo moorage-code-kernel
[ -d "$2" ] && PATH="$2:$PATH"
shift 2
exec "$@" </dev/null
"""
# Sends SIGINT to the kernel's process group, so that programs started by its code also get it.
INTERRUPT = 'pid=$(cat "$1/pid") && { kill -INT -- "-$pid" 2>/dev/null || kill -INT "$pid"; }'
STARTED = b"moorage-code-kernel\n"


@dataclass(frozen=True, slots=True)
class Kernelspec:
    """A kernelspec. ``folder``: its directory inside the session. ``by_message``: whether its
    kernel is interrupted by a message."""

    name: str
    display_name: str
    language: str
    folder: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    by_message: bool = False

    @property
    def programs(self) -> str:
        """The program directory of its environment."""
        return self.folder.rsplit("/share/jupyter/kernels/", 1)[0] + "/bin"

    def command(self, folder: str) -> tuple[str, ...]:
        """The command that starts it, with its sockets in ``folder``."""
        values = {"{connection_file}": f"{folder}/connection.json", "{resource_dir}": self.folder}
        argv = []
        for word in self.argv:
            for name, value in values.items():
                word = word.replace(name, value)
            argv.append(word)
        return ("sh", "-c", START, "sh", folder, self.programs, *argv)


def parse(output: bytes) -> list[Kernelspec]:
    """The kernelspecs in the output of ``FIND``. Only the first of each name is included, and
    damaged ones are skipped."""
    found: dict[str, Kernelspec] = {}
    for part in output.decode(errors="replace").split(_END):
        folder, _, text = part.partition("\n")
        name = folder.rpartition("/")[2].lower()
        try:
            spec = json.loads(text)
            argv = tuple(str(word) for word in spec["argv"])
            kernelspec = Kernelspec(
                name,
                str(spec.get("display_name", name)),
                language=str(spec.get("language", "")),
                folder=folder,
                argv=argv,
                env={str(k): str(v) for k, v in (spec.get("env") or {}).items()},
                by_message=spec.get("interrupt_mode") == "message",
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            continue

        if argv:
            found.setdefault(name, kernelspec)

    return list(found.values())


def choose(specs: Iterable[Kernelspec], wanted: str) -> Kernelspec:
    """The kernelspec named ``wanted``. If there is none, the first kernelspec for that language
    whose name starts with the language, like python3; failing that, the first one for the language.
    Raises ``NotFound``."""
    known = {spec.name: spec for spec in specs}
    asked = wanted.lower()
    if asked in known:
        return known[asked]

    fitting = [spec for spec in known.values() if spec.language.lower() == asked]
    if fitting:
        return next((spec for spec in fitting if spec.name.startswith(asked)), fitting[0])

    names = ", ".join(f"{spec.name} ({spec.language})" for spec in known.values())
    raise NotFound(
        f"the session has no kernelspec for {wanted!r}; it has {names or 'none'}",
        next_step="install one in its image or environment: `pip install ipykernel` brings python3",
    )
