"""The groups of ``moorage --help``, by task."""

from __future__ import annotations

# A test holds each command in one group.
COMMAND_GROUPS: dict[str, tuple[str, ...]] = {
    "Run work": (
        *("run", "start", "stop", "plan", "update", "extend", "reload"),
        *("requeue", "suspend", "resume", "pipelines", "tasks", "cron", "templates"),
    ),
    "Serve models": (
        *("serve", "scale", "rollout", "endpoints", "models"),
        *("chat", "claude", "codex", "bench"),
    ),
    "Inspect": (
        *("ps", "describe", "logs", "why", "top", "load"),
        *("events", "notifications", "usage", "sessions"),
    ),
    "Use sessions and files": (
        *("exec", "ssh", "cp", "open", "port-forward"),
        *("rename", "label", "secrets", "workspaces"),
    ),
    "Administer": (
        *("apply", "users", "projects", "keys", "groups", "agents"),
        *("qos", "quotas", "limits", "budgets", "prices", "audit"),
    ),
    "Operate": (
        *("demo", "up", "manager", "agent", "proxy"),
        *("join-tokens", "peers", "managers", "config", "db", "upgrade", "doctor"),
        *("scheduler", "simulate"),
    ),
    "Command line": ("contexts", "mcp", "version"),
}
