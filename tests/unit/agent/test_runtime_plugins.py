"""Runtimes from other packages: a problem with a runtime is reported along with its name, its
package and the next step."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from moorage.agent.runtimes import plugins
from moorage.agent.state.logs import LogStore
from moorage.common.aio.clock import SystemClock
from moorage.common.config.settings import AgentSettings
from moorage.common.model.errors import ConfigError
from moorage.common.model.runtimes import RUNTIMES

EXAMPLE = Path(__file__).parents[3] / "examples" / "runtime_plugin"
CODE = """
from pydantic import BaseModel
from moorage.agent.runtimes import FakeRuntime
from moorage.agent.runtimes.plugins import RuntimePlugin

class Settings(BaseModel, extra="forbid"):
    level: int = 1

def create(parts, settings):
    return FakeRuntime(parts.logs)

good = RuntimePlugin(1, create, Settings)
newer = RuntimePlugin(2, create)
text = "good"
"""
Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Makes a package that contains ``CODE`` appear installed, with these lines as the group's
    entry points."""

    def make(*lines: str, package: str = "acme", version: str = "1.0") -> None:
        site = tmp_path / package
        about = site / f"{package}-{version}.dist-info"
        about.mkdir(parents=True)
        (site / "acme_runtimes.py").write_text(CODE)
        (about / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n"
        )
        (about / "entry_points.txt").write_text("\n".join(["[moorage.runtimes]", *lines]))
        monkeypatch.syspath_prepend(str(site))
        monkeypatch.delitem(sys.modules, "acme_runtimes", raising=False)

    return make


def refusal(name: str) -> str:
    with pytest.raises(ConfigError) as error:
        plugins.load(name)
    return f"{error.value.message}; {error.value.next_step}"


def test_runtimes_that_ship_are_entry_points_and_cannot_be_replaced(install: Install) -> None:
    own = {name: plugins.load(name) for name in RUNTIMES}
    install("process = acme_runtimes:good")
    assert {name: plugins.load(name) for name in RUNTIMES} == own
    assert plugins.load("custom:process").settings is not None


def test_missing_plug_in_is_named_with_what_to_install() -> None:
    said = refusal("custom:absent")
    assert "'custom:absent'" in said
    assert "'absent' of the group moorage.runtimes" in said


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("no_such_module:plugin", "ModuleNotFoundError"),
        ("acme_runtimes:absent", "AttributeError"),
        ("acme_runtimes:text", "is a str: acme_runtimes:text"),
        ("acme_runtimes:newer", "version 2 of the interface; this agent has version 1"),
    ],
)
def test_broken_plug_in_is_named_with_its_package(install: Install, value: str, said: str) -> None:
    install(f"broken = {value}")
    message = refusal("custom:broken")
    assert said in message
    assert "'custom:broken' of acme 1.0" in message


def test_two_packages_with_one_runtime_are_both_named(install: Install) -> None:
    install("twice = acme_runtimes:good")
    install("twice = acme_runtimes:good", package="other", version="2.0")
    assert "acme 1.0 and other 2.0" in refusal("custom:twice")


def test_settings_of_a_plug_in(install: Install) -> None:
    install("good = acme_runtimes:good")
    plugin = plugins.load("custom:good")
    assert plugins.settings_of("custom:good", plugin, {"good": {"level": 3}}).model_dump() == {
        "level": 3
    }

    for given, said in (
        ({"level": "much"}, "agent.plugins.good.level = 'much'"),
        ({"lvel": 1}, "lvel"),
    ):
        with pytest.raises(ConfigError, match=said) as error:
            plugins.settings_of("custom:good", plugin, {"good": given})
        assert "level" in error.value.next_step

    with pytest.raises(
        ConfigError, match=r"agent\.plugins\.fake: the runtime fake has no settings"
    ):
        plugins.settings_of("fake", plugins.load("fake"), {"fake": {"level": 1}})

    plugins.check_sections(["good"], ["process", "custom:good"])
    with pytest.raises(ConfigError, match=r"agent\.plugins\.good"):
        plugins.check_sections(["good"], ["process", "custom:other"])


def test_runtime_must_have_the_name_of_its_entry_point(install: Install, tmp_path: Path) -> None:
    install("good = acme_runtimes:good")
    plugin = plugins.load("custom:good")
    parts = plugins.AgentParts(
        AgentSettings(),
        tmp_path,
        home=tmp_path,
        logs=LogStore(tmp_path),
        clock=SystemClock(),
        identity="",
    )
    runtime = plugin.create(parts, None)
    assert runtime is not None
    with pytest.raises(ConfigError, match="'custom:good' calls itself 'fake'"):
        plugins.check_built("custom:good", plugin, runtime)


def test_example_passes_its_own_tests() -> None:
    """As its author would run it: the conformance suite in another package."""
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "pyproject.toml", "-k",
         "priority or exit_code or found"],
        cwd=EXAMPLE, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
