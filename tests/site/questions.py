"""Questions that readers type into the site's search, with the pages that answer each."""

from __future__ import annotations

QUESTIONS: dict[str, tuple[str, ...]] = {
    # What people come for.
    "add a GPU node": ("docs/nodes.html",),
    "limit a user": ("docs/accounts.html",),
    "connect VS Code": ("docs/editors.html",),
    "connect JetBrains": ("docs/editors.html",),
    "LangChain": ("docs/clients.html",),
    "LlamaIndex": ("docs/clients.html",),
    "LiteLLM": ("docs/clients.html",),
    "Open WebUI": ("docs/clients.html",),
    "Continue": ("docs/clients.html",),
    "run on Slurm": ("docs/slurm.html",),
    "upgrade": ("docs/upgrades.html",),
    "back up": ("docs/backup.html",),
    "uninstall": ("docs/install.html",),
    # People who use it.
    "why is my job waiting": ("docs/troubleshooting.html", "docs/scheduling.html"),
    "out of memory": ("docs/troubleshooting.html", "docs/sessions.html"),
    "notebook": ("docs/service-ports.html", "docs/code.html"),
    "time limit": ("docs/sessions.html", "docs/idle.html"),
    "copy files": ("docs/sessions.html", "docs/storage.html"),
    "see the logs of a job": ("docs/sessions.html",),
    "environment variables": ("docs/sessions.html",),
    "my session was stopped because it was idle": ("docs/idle.html",),
    "multi node training": ("docs/cluster-sessions.html",),
    "Claude Code": ("docs/coding-agents.html",),
    "embeddings": ("docs/inference.html",),
    "streaming responses": ("docs/inference.html", "docs/clients.html"),
    "run a Python script": ("docs/sessions.html", "docs/tutorial.html", "docs/code.html"),
    # People who operate it.
    "rotate keys": ("docs/accounts.html", "docs/security.html"),
    "reverse proxy": ("docs/web-servers.html",),
    "nginx": ("docs/web-servers.html",),
    "budget": ("docs/usage.html",),
    "drain a node": ("docs/nodes.html",),
    "Prometheus alerts": ("docs/monitoring.html",),
    "autoscaling": ("docs/serving.html",),
    "restore the database": ("docs/backup.html",),
    "quota": ("docs/accounts.html",),
    "Kubernetes": ("docs/kubernetes.html",),
    "single sign-on": ("docs/security.html", "docs/accounts.html"),
}
