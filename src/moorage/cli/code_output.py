"""Output of code on the terminal, and its images in files."""

from __future__ import annotations

import base64
import binascii
import mimetypes
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from moorage.cli.context import Cli
from moorage.cli.output import has_colours, printable, uncoloured
from moorage.common.model.errors import InvalidInput

_TEXTS = ("text/plain", "text/markdown", "text/html")


class CodeOutput:
    """Prints the items of one run of code. ``images``: the directory in which its images are saved,
    or None. ``quiet``: print nothing, for JSON; images are saved all the same.

    Raises ``InvalidInput`` if the directory cannot be created.
    """

    def __init__(self, cli: Cli, *, images: Path | None = None, quiet: bool = False) -> None:
        self._cli = cli
        self._images = images
        self._quiet = quiet
        if images is not None:
            try:
                images.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise _unwritable(images, error) from error

    def show(self, item: Mapping[str, Any]) -> None:
        kind = item["type"]
        if kind in ("result", "display"):
            self._show_data(item["data"])
        elif self._quiet:
            return
        elif kind == "stream":
            stream = sys.stderr if item["name"] == "stderr" else sys.stdout
            print(item["text"], end="", file=stream, flush=True)
        elif kind == "error":
            text = "\n".join(item["traceback"]) or f"{item['name']}: {item['message']}"
            # ipykernel colours tracebacks, whoever reads them.
            print(text if has_colours(self._cli.err) else uncoloured(text), file=sys.stderr)
        elif kind in ("truncated", "gap"):
            print("moorage: some output was dropped", file=sys.stderr)

    def _show_data(self, data: Mapping[str, Any]) -> None:
        """Print the part of a MIME bundle that a terminal can show, and save its image or say that
        there is one."""
        text = next((str(data[kind]) for kind in _TEXTS if kind in data), None)
        if text is not None and not self._quiet:
            # Libraries such as rich colour what they display, whoever reads it.
            print(text if has_colours(self._cli.out) else uncoloured(text), flush=True)

        kind = next((kind for kind in data if kind.startswith("image/")), None)
        if kind is not None:
            self._show_image(kind, data[kind])
        elif text is None and not self._quiet:
            kind, value = next(iter(data.items()), ("nothing", ""))
            shown = printable(kind, one_line=True)
            print(f"[{shown}, {len(str(value))} bytes: -o json prints it]", flush=True)

    def _show_image(self, kind: str, value: Any) -> None:
        content = _content(kind, str(value))
        shown = printable(kind, one_line=True)
        if self._images is not None:
            path = _save(self._images, kind, content)
            self._cli.note(f"moorage: saved {path} ({shown}, {len(content):,} bytes)")
        elif not self._quiet:
            self._cli.note(
                f"moorage: an image ({shown}, {len(content):,} bytes) is not shown; "
                "--save-images DIR saves it"
            )


def _content(kind: str, value: str) -> bytes:
    """The bytes of an image. Jupyter sends SVG as text and other images in base64."""
    if kind.startswith("image/svg"):
        return value.encode()
    try:
        return base64.b64decode(value)
    except binascii.Error:
        return value.encode()


def _save(directory: Path, kind: str, content: bytes) -> Path:
    """Write the image to the first free name, such as ``image-3.png``, and return its path."""
    suffix = mimetypes.guess_extension(kind) or ".img"
    number = 1
    while True:
        path = directory / f"image-{number}{suffix}"
        try:
            with path.open("xb") as file:
                file.write(content)
        except FileExistsError:
            number += 1
        except OSError as error:
            raise _unwritable(path, error) from error
        else:
            return path


def _unwritable(path: Path, error: OSError) -> InvalidInput:
    return InvalidInput(
        f"--save-images: {path} cannot be written ({error.strerror})",
        next_step="name a directory that you can write to",
    )
