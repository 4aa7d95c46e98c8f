"""One module per command or noun. Importing a module registers its commands on
``moorage.cli.app``."""

# The line in `moorage --help` and the module of each command. A test compares the lines with the
# commands' help.
COMMANDS = {
    "agents": (
        "Agents, the resources of their nodes, and whether they take new work.",
        "moorage.cli.commands.agents",
    ),
    "apply": (
        "Create and change resource groups, quotas, projects and templates from a file; submit "
        "pipelines.",
        "moorage.cli.commands.apply",
    ),
    "audit": (
        "List administrative writes, newest first.",
        "moorage.cli.commands.audit",
    ),
    "bench": (
        "Benchmark a served model: time to first token, token rate, throughput, errors.",
        "moorage.cli.commands.bench",
    ),
    "budgets": (
        "Budgets of projects, users and keys: how much each may use per period.",
        "moorage.cli.commands.budgets",
    ),
    "chat": ("Chat with a served model.", "moorage.cli.commands.chat"),
    "claude": ("Start Claude Code with a served model.", "moorage.cli.commands.coding_agents"),
    "codex": ("Start Codex with a served model.", "moorage.cli.commands.coding_agents"),
    "contexts": (
        "Installations with their addresses and keys, and the one in use.",
        "moorage.cli.commands.contexts",
    ),
    "cp": (
        "Copy a file or directory into or out of a running session, completely or not at all.",
        "moorage.cli.commands.cp",
    ),
    "cron": (
        "Cron jobs: sessions and pipelines that start at the times of a cron expression.",
        "moorage.cli.commands.cron",
    ),
    "describe": (
        "Show an endpoint or session in full: state, history, why it waits or failed, last log "
        "lines.",
        "moorage.cli.commands.describe",
    ),
    "endpoints": ("Endpoints.", "moorage.cli.commands.endpoints"),
    "events": ("Stream events of the cluster until Ctrl-C.", "moorage.cli.commands.events"),
    "exec": (
        "Run a command in a running session, and exit with its exit code.",
        "moorage.cli.commands.exec",
    ),
    "extend": (
        "Keep a session that would end because it is idle.",
        "moorage.cli.commands.extend",
    ),
    "groups": ("Resource groups and their scheduling options.", "moorage.cli.commands.groups"),
    "join-tokens": (
        "Tokens that agents and proxies join with.",
        "moorage.cli.commands.join_tokens",
    ),
    "keys": ("API keys with their users and projects.", "moorage.cli.commands.ssh_keys"),
    "label": ("Change the labels of a session or an endpoint.", "moorage.cli.commands.label"),
    "limits": (
        "Request limits per key, project and model.",
        "moorage.cli.commands.limits",
    ),
    "load": (
        "Show the load of an endpoint over time: requests, errors, tokens, first token, queue, "
        "replicas.",
        "moorage.cli.commands.load",
    ),
    "logs": (
        "Print the log of a session, or of the newest replica of an endpoint.",
        "moorage.cli.commands.logs",
    ),
    "managers": ("Managers of this database.", "moorage.cli.commands.managers"),
    "mcp": (
        "Serve the cluster's operations to a coding agent, over MCP on standard input and output.",
        "moorage.cli.commands.mcp",
    ),
    "models": (
        "Models, their memory needs, and the nodes that fit them.",
        "moorage.cli.commands.models",
    ),
    "notifications": (
        "Events such as ended sessions, sent to webhooks and by mail.",
        "moorage.cli.commands.notifications",
    ),
    "open": (
        "Print the address of an app of a session, including a new access token.",
        "moorage.cli.commands.open",
    ),
    "peers": ("Agents and proxies that have joined.", "moorage.cli.commands.peers"),
    "pipelines": (
        "Pipelines: graphs of sessions that are submitted as one request.",
        "moorage.cli.commands.pipelines",
    ),
    "plan": (
        "Show where `moorage run` with these options would start now, or what is missing.",
        "moorage.cli.commands.plan",
    ),
    "port-forward": (
        "Forward a local port to a service port of a session, until Ctrl-C.",
        "moorage.cli.commands.port_forward",
    ),
    "prices": ("Prices per unit, with the date each applies from.", "moorage.cli.commands.budgets"),
    "projects": (
        "Projects, their members and their limits.",
        "moorage.cli.commands.projects",
    ),
    "ps": ("List endpoints, sessions and arrays.", "moorage.cli.commands.ps"),
    "qos": (
        "Qualities of service: priority, limits, preemption and price of sessions.",
        "moorage.cli.commands.qos",
    ),
    "quotas": ("Limits for users, projects and resource groups.", "moorage.cli.commands.quotas"),
    "reload": (
        "Ask the programs of sessions to reload their settings.",
        "moorage.cli.commands.reload",
    ),
    "rename": ("Rename a session.", "moorage.cli.commands.rename"),
    "requeue": (
        "Stop batch sessions, and return them to the queue.",
        "moorage.cli.commands.requeue",
    ),
    "resume": ("Let suspended sessions continue.", "moorage.cli.commands.suspend"),
    "rollout": (
        "Revisions of an endpoint: the state of a rolling update, history, undo.",
        "moorage.cli.commands.rollout",
    ),
    "run": (
        "Run a program as a batch session, print its log, and exit with its exit code.",
        "moorage.cli.commands.run",
    ),
    "scale": ("Set the number of replicas of an endpoint.", "moorage.cli.commands.scale"),
    "secrets": (
        "Write-only values for sessions, such as access tokens.",
        "moorage.cli.commands.secrets",
    ),
    "serve": (
        "Serve a model behind one stable OpenAI-compatible address.",
        "moorage.cli.commands.serve",
    ),
    "sessions": ("Sessions.", "moorage.cli.commands.sessions"),
    "ssh": (
        "Open a shell in a running session with OpenSSH, or run a command in it.",
        "moorage.cli.commands.ssh",
    ),
    "start": (
        "Start an interactive session, which runs until it is stopped.",
        "moorage.cli.commands.start",
    ),
    "stop": (
        "Stop sessions, arrays and pipelines, and delete endpoints with all their replicas.",
        "moorage.cli.commands.stop",
    ),
    "suspend": (
        "Stop the processes of sessions, which keep their resources.",
        "moorage.cli.commands.suspend",
    ),
    "tasks": ("Tasks of sessions that work through a list.", "moorage.cli.commands.tasks"),
    "templates": (
        "Templates of sessions: versioned sets of parameters.",
        "moorage.cli.commands.templates",
    ),
    "top": (
        "Show the current use of processors, memory, GPUs and network by session.",
        "moorage.cli.commands.top",
    ),
    "update": (
        "Change a session that waits or runs.",
        "moorage.cli.commands.update",
    ),
    "usage": (
        "Show the past usage of requests and sessions, in whole hours.",
        "moorage.cli.commands.usage",
    ),
    "users": ("People and robots with their roles on the platform.", "moorage.cli.commands.users"),
    "why": (
        "Explain why a session waits: its conditions, what agents lack, its place in the queue.",
        "moorage.cli.commands.why",
    ),
    "workspaces": (
        "Directories that sessions keep on their nodes.",
        "moorage.cli.commands.workspaces",
    ),
}
