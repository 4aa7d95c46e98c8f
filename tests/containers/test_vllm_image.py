"""vLLM in a container, with the image that ``deploy/docker/vllm_cpu_image.py`` builds, from
``serve`` to a response of the proxy.

This takes minutes and gigabytes, so it is also marked ``vllm``: ``make test-vllm-image``.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from moorage.demo.model import write_tiny_llama_dir
from tests.e2e.harness import Platform, until
from tests.vllm.test_vllm import ARGS, ENV

from .engine import PrivateEngine
from .node import containers

pytestmark = [pytest.mark.vllm, pytest.mark.xdist_group("platform"), pytest.mark.timeout(900)]
ROOT = Path(__file__).parents[2]
IMAGE = "moorage-test/vllm-cpu:1"


@pytest.fixture(scope="module")
def image(docker_engine: PrivateEngine) -> str:
    python = Path(os.environ.get("MOORAGE_TEST_VLLM") or ROOT / ".venv-vllm/bin/vllm").with_name(
        "python"
    )
    if not python.exists():
        hint = "`tools/environment vllm` installs it, or set MOORAGE_TEST_VLLM"
        pytest.fail(f"no vLLM beside {python}: {hint}")
    argv = [str(python), str(ROOT / "deploy/docker/vllm_cpu_image.py"), IMAGE]
    subprocess.run([*argv, "--host", f"unix://{docker_engine.socket}"], check=True, timeout=600)
    return IMAGE


@pytest.fixture
def platform(home: Path, docker_engine: PrivateEngine) -> Iterator[Platform]:
    platform = Platform(home)
    (home / "models").mkdir()
    platform.env |= {
        "MOORAGE_AGENT__DOCKER": f"unix://{docker_engine.socket}",
        "MOORAGE_AGENT__DOCKER_PULL": "never",
        "MOORAGE_AGENT__DOCKER_MOUNTS": f'["{home / "models"}"]',
        "MOORAGE_AGENT__VLLM_IMAGE": IMAGE,
        "MOORAGE_AGENT__MODEL_CACHE": f"{home / 'cache'}",
        "MOORAGE_AGENT__STOP_KERNELS_ON_EXIT": "true",
    }
    platform.start("up")
    yield platform
    platform.close()


def test_model_in_a_container_answers_through_the_proxy(
    platform: Platform, docker_engine: PrivateEngine, image: str
) -> None:
    """The image is the node's default. Files that it compiles stay in the container, because it may
    not write to the model cache."""
    model = platform.home / "models" / "tiny"
    write_tiny_llama_dir(model)
    asyncio.run(
        until(
            "the platform is up",
            lambda: asyncio.to_thread((platform.home / "connection.json").exists),
        )
    )
    arguments = ["serve", str(model), "--engine", "vllm", "--name", "boxed", "--runtime", "docker"]
    arguments += ["--resources", "mem=4GiB", "--resources", "cpu=1", "--timeout", "500s"]
    arguments += [item for one in ARGS for item in ("--arg", one)]
    arguments += [item for name, value in ENV.items() for item in ("--env", f"{name}={value}")]
    served = platform.run(*arguments, timeout=550)
    assert served.returncode == 0, served.stderr
    assert list(containers(docker_engine).values()) == ["running"]
    client = openai.OpenAI(base_url=platform.openai_url, api_key=platform.key)
    question: list[dict[str, str]] = [{"role": "user", "content": "Tell me about the sea."}]
    response = client.chat.completions.create(model="boxed", messages=question, max_tokens=12)  # type: ignore[arg-type]
    assert response.usage is not None
    assert response.usage.completion_tokens == 12
    stopped = platform.run("stop", "boxed", timeout=120)
    assert stopped.returncode == 0, stopped.stderr
    assert containers(docker_engine) == {}
    assert list((platform.home / "cache").rglob("*")) == []
