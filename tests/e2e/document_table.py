"""Requirements of the documents' shell blocks that the test's platform does not meet.

A line that is in no table is run. ``tests/tidy/test_documents.py`` parses all of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Page:
    """``before``: commands that set up what the page assumes. ``files``: what its reader has: a page
    without them is typed in an empty directory. ``absent``: how a line begins that cannot run here,
    and why it cannot, or which test runs it. ``block:`` before a block's first line means the whole
    block.
    """

    before: str = ""
    files: tuple[str, ...] = ()
    absent: dict[str, str] = field(default_factory=dict)


INSTALLED = "it installs Moorage or starts it: tests/install/test_documents.py types it"
HUB = "a model hub: tests/e2e/test_hub_models.py has one on loopback, with a GGUF file"
VLLM = "a model hub and vLLM: tests/vllm serves a directory with it"
MACHINES = "several machines: tests/cluster"
KUBERNETES = "Kubernetes: tests/deploy checks the manifests"
SSH = "OpenSSH: tests/ssh"
SLURM = "a Slurm site: tests/slurm"
PACKAGES = "packages of other projects, which no test installs"
GENERATORS = "packages of other projects: tests/generated types the lines that generate"
RECEIVERS = "a mail server and receivers of webhooks: tests/store/test_notifications.py"
AGENTS = "Claude Code and Codex of npm: tests/coding"

RUN_ELSEWHERE = {
    "docs/cluster.md": "tests/cluster/test_guide.py",
    "docs/compose.md": "tests/containers/test_compose_cluster.py",
    "docs/hpc.md": "tests/hpc/test_guide.py",
}

VISION = "moorage projects create vision || true"  # another page may have created it
PAGES = {
    "README.md": Page(
        files=("Qwen3-0.6B-Q8_0.gguf", "train.py"),
        absent={
            "make demo": INSTALLED,
            "make test": "the target that runs this test",
            "block:.venv/bin/moorage up": INSTALLED,
            "moorage serve Qwen/Qwen3-0.6B": VLLM,
            "block:moorage start --name notebook": "JupyterLab: tests/browser/test_notebook.py",
            "block:moorage manager --listen": MACHINES,
            "block:moorage join-tokens create": MACHINES,
            "block:moorage agent join": MACHINES,
            "block:moorage proxy join": MACHINES,
        },
    ),
    "CONTRIBUTING.md": Page(absent={"block:make install": "the targets that run this test"}),
    "docs/tutorial.md": Page(absent={"block:make install": INSTALLED}),
    "docs/usage.md": Page(
        before="moorage keys create ann --project vision --create-missing; moorage keys create ci"
    ),
    "docs/models.md": Page(
        files=("token.txt",),
        absent={
            "moorage serve Qwen/Qwen3-8B": VLLM,
            "moorage serve meta-llama": VLLM,
            "moorage serve Qwen/Qwen3-0.6B-GGUF": HUB,
            "moorage agent install-engine": "an index: tests/unit/agent/test_engine_environments.py has one",
        },
    ),
    "docs/ssh.md": Page(
        before=VISION,
        absent={
            "block:pip install": SSH,
            "block:sftp dev": SSH,
            "ssh -p": SSH,
            "scp -P": SSH,
            "rsync -e": SSH,
            "moorage start --type system": "Docker: tests/ssh and examples/system_session.sh",
        },
    ),
    "docs/clients.md": Page(
        files=("model.gguf",),
        absent={
            "block:pip install langchain-openai": PACKAGES,
            "block:pip install llama-index": PACKAGES,
            "block:pip install 'litellm[proxy]'": PACKAGES,
            "block:pip install open-webui": PACKAGES,
            "block:docker run -d --name open-webui": "Docker and the image of Open WebUI",
        },
    ),
    "docs/editors.md": Page(
        absent={
            "block:ssh dev true": SSH,
            "block:moorage keys add-ssh": "docs/ssh.md registers the same key",
        },
    ),
    "docs/coding-agents.md": Page(
        absent={"block:npm install": AGENTS, "block:pip install": AGENTS}
    ),
    "docs/telemetry.md": Page(
        absent={
            "block:pip install": f"{INSTALLED}, and tests/e2e/test_session_traces.py has a collector"
        }
    ),
    "docs/kubernetes.md": Page(
        absent={
            "block:cd deploy/kubernetes/trial": KUBERNETES,
            "block:kubectl -n moorage port-forward": KUBERNETES,
            "block:moorage agents drain NODE": KUBERNETES,
        },
    ),
    "docs/slurm.md": Page(absent={"block:moorage run --group site": SLURM}),
    "docs/from-kubernetes.md": Page(),
    "docs/from-backend-ai.md": Page(),
    "docs/resource-groups.md": Page(),
    "docs/cron-jobs.md": Page(),
    "docs/pipelines.md": Page(),
    "docs/from-slurm.md": Page(absent={"moorage run --notify": RECEIVERS}),
    "docs/notifications.md": Page(
        absent={
            "block:moorage run --notify": RECEIVERS,
            "block:moorage notifications create": RECEIVERS,
        }
    ),
    "docs/sdk.md": Page(
        absent={
            "block:npm install openapi-fetch": GENERATORS,
            "block:pip install openapi-python-client": GENERATORS,
        },
    ),
    "docs/scheduling.md": Page(
        files=("docs/images",),
        before=f"moorage run --gpus 1 -- true; {VISION}",
        absent={"moorage scheduler replay --from 09:00": "decisions of working hours"},
    ),
    "docs/install.md": Page(
        absent={
            "block:WHEEL=": INSTALLED,
            "block:python3 -m venv /opt/moorage": MACHINES,
            "block:ssh MANAGER": MACHINES,
            "block:systemctl stop moorage-agent": MACHINES,
        },
    ),
    "docs/configuration.md": Page(absent={"block:moorage config set --etcd": "etcd: tests/etcd"}),
    "docs/sessions.md": Page(
        before=(
            "moorage run --name train-1 --label old=1 -- true; "
            "moorage run -d --name train --starts-at 1h --timeout 1h -- true; "
            "moorage run -d --name work -- sleep 300; "
            "moorage start --name desk --cpus 0.1 --memory 64MiB"
        ),
        absent={"moorage run --label team=vision": "a program of the reader"},
    ),
    "docs/serving.md": Page(
        files=("tiny.gguf", "small.gguf", "token.txt"),
        before="""
moorage serve ./tiny.gguf --name tiny
moorage serve ./tiny.gguf --name qwen
moorage groups create h100
moorage groups create a100
""",
        absent={
            "moorage serve Qwen/Qwen3-8B": VLLM,
            "moorage endpoints set qwen adapters": "vLLM: tests/vllm/test_adapters.py",
        },
    ),
    "docs/inference.md": Page(
        absent={"moorage endpoints set painter": "a program of the reader"},
    ),
    "docs/high-availability.md": Page(
        absent={
            "moorage agents forget node-7": MACHINES,
            "moorage doctor --cluster": "an installation without findings: tests/cluster",
        },
    ),
    "docs/backup.md": Page(
        absent={"moorage db restore": "a manager that is stopped: tests/e2e/test_restore.py"},
    ),
    "docs/upgrades.md": Page(),
}
