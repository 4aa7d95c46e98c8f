"""Options and arguments that are parsed without typer: converted as typer does, and refused as
typer does."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import pytest
import typer
from typer.core import TyperCommand
from typer.main import get_command

from moorage.cli.help_pages import HelpedCommand


class Fruit(StrEnum):
    APPLE = "apple"
    PEAR = "pear-tree"


def _convert(value: str) -> float:
    return float(value) / 2


def _upper(value: str | None) -> str | None:
    return value.upper() if value else value


def parsed(kind: type[TyperCommand], args: list[str]) -> Any:
    """The values that the function receives, or the refusal."""
    got: dict[str, Any] = {}
    app = typer.Typer()

    def record(
        first: str,
        rest: Annotated[list[str] | None, typer.Argument()] = None,
        text: Annotated[str | None, typer.Option(callback=_upper)] = None,
        word: str = "default",
        *,
        fruit: Annotated[Fruit | None, typer.Option()] = None,
        number: Annotated[int, typer.Option(min=1)] = 3,
        half: Annotated[float | None, typer.Option(parser=_convert)] = None,
        several: Annotated[list[str] | None, typer.Option()] = None,
        flag: bool = False,
        either: Annotated[bool | None, typer.Option("--yes/--no")] = None,
    ) -> None:
        got.update(locals())

    app.command(cls=kind)(record)
    try:
        get_command(app).main(args, standalone_mode=False)
    except typer.TyperException as error:
        return type(error).__name__, error.format_message()

    got.pop("got")
    return got


@pytest.mark.parametrize(
    "args",
    [
        ["a"],
        ["a", "b", "c"],
        [""],
        [],
        ["a", "--text", "x", "--word", ""],
        ["a", "--fruit", "apple"],
        ["a", "--fruit", "pear-tree"],
        ["a", "--fruit", "PEAR"],
        ["a", "--fruit", ""],
        ["a", "--number", "7", "--half", "5"],
        ["a", "--number", "0"],
        ["a", "--half", "x"],
        ["a", "--several", "x", "--several", "y"],
        ["a", "--flag", "--yes"],
        ["a", "--no"],
        ["a", "--unknown"],
    ],
    ids=" ".join,
)
def test_values_and_refusals_are_those_of_typer(args: list[str]) -> None:
    quick = parsed(HelpedCommand, args)
    slow = parsed(TyperCommand, args)
    assert quick == slow
    if isinstance(quick, dict):
        assert {name: type(value) for name, value in quick.items()} == {
            name: type(value) for name, value in slow.items()
        }
