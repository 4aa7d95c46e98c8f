"""Examples of ``moorage COMMAND --help`` that need more than a platform with one node.

A line that is in no table runs as the help shows it, after the ``BEFORE`` of its command.
"""

from __future__ import annotations

GPUS = "a GPU: tests/e2e/test_documents.py has a node with them"
DOCKER = "Docker: tests/containers"
HUB = "a model hub: tests/e2e/test_hub_models.py"
PROGRAM = "a program of the reader"
AGENTS = "Claude Code or Codex: tests/coding"
OFFLINE = "a manager that is stopped: tests/e2e/test_restore.py"
ETCD = "etcd: tests/etcd"
DAEMON = "it starts daemons: tests/e2e/test_up.py and tests/e2e/test_daemons.py"
NODES = "another node: tests/e2e/test_daemons.py"
SSH = "OpenSSH: tests/ssh"
STREAM = "it runs until Ctrl-C: tests/unit/cli"
TERMINAL = "a terminal: tests/e2e/test_interactive.py"
RECEIVERS = "a mail server and receivers of webhooks: tests/store/test_notifications.py"
CODE = "code kernels: tests/e2e/test_examples.py"
MINUTES = "a simulation of 10 s: tests/unit/cli/test_cli_scheduler.py"

# Commands that create what others use are first, and those that remove it last.
FIRST = (
    "projects",
    "users",
    "groups",
    "keys",
    "secrets",
    "templates",
    "start",
    "run",
    "pipelines",
    "serve",
)
LAST = ("rollout", "rename", "stop", "agents", "budgets")

# What the reader would write here: this node has no GPU, and its models are small.
REPLACED = {
    "--gpus 1 ": "",
    "--gpus 4": "",
    "--name dev --gpus 1": "--name dev2",
    "--set epochs=3 --gpus 2": "--set epochs=2",
    "--max-concurrency 32 --for 1m": "--max-concurrency 1 --for 1s",
    "--group gpu --from 13:00 --to 13:05": "--group default",
    "--like gpu-03": "--like node-1",
    "--status disabled": "--status active",
    " coder": " tiny",
    "batch-1a2b3c4d": "train-7",
    "node-7": "node-1",
    "/backups/moorage-$(date +%F).dump": "{folder}/moorage-2030-01-31.dump",
    "/backups/": "{folder}/",
    "/models/tiny-v2.gguf": "{folder}/tiny-v2.gguf",
    "~/.lab-key": "{folder}/token.txt",
    "~/.ssh/": "{folder}/",
}

# Standard input of a line whose input comes from a terminal or another program.
INPUT = {
    "moorage contexts add site --url https://moorage.example.org": "sk-1234567890",
}

_SMALL = "--resources cpu=0.1 --resources mem=16MiB"
_LOOP = "sh -c 'trap : HUP; while :; do sleep 0.1; done'"
BEFORE: dict[str, tuple[str, ...]] = {
    "moorage projects create students --group small --max-priority 5": (
        "moorage groups create small",
    ),
    "moorage projects archive summer-school": ("moorage projects create summer-school",),
    "moorage projects delete visoin": ("moorage projects create visoin",),
    "moorage users archive guest": ("moorage users create guest",),
    "moorage users delete anm": ("moorage users create anm",),
    "moorage projects members set vision ann member": (
        "moorage users create ann --email ann@example.org",
        "moorage users create lead",
    ),
    "moorage groups create lab projects=vision,speech session_types=interactive": (
        "moorage projects create speech",
    ),
    "moorage groups set hpc hpc.partition=gpu hpc.options.constraint=a100": (
        "moorage apply -f default.yaml",
        "moorage groups create hpc hpc.runtime=slurm hpc.walltime_s=60",
    ),
    "moorage start": (
        "moorage groups set default idle.traffic.default_s=3600",
        f"moorage start --name dev {_SMALL}",
        "moorage exec dev -- sh -c 'mkdir results; echo 1 >results/model.bin; echo {} >results.json'",
        f"moorage start --name lab --port jupyter {_SMALL} -- "
        "python3 -m http.server --bind 127.0.0.1 {port:jupyter}",
        f"moorage start --name gateway --reload HUP {_SMALL} -- {_LOOP}",
        f"moorage start --name api --reload HUP {_SMALL} -- {_LOOP}",
        f"moorage run --name train-7 {_SMALL} -- true",
        f"moorage run --name sweep-3 --no-wait {_SMALL} -- sleep 300",
        f"moorage run --name wait --no-wait {_SMALL} -- sleep 300",
        f"moorage run --name train --after wait --no-wait {_SMALL} -- true",
    ),
    "moorage describe 'sweep[3]'": (
        f"moorage run --array 0-5%1 --name sweep --no-wait {_SMALL} -- sleep 300",
    ),
    "moorage tasks list scan": (f"moorage run --name scan --tasks token.txt {_SMALL} -- true",),
    "moorage serve ./tiny.gguf --min 0 --max 4 --scale-on waiting=2 --idle-timeout 5m": (
        "moorage stop tiny",
    ),
    "moorage load qwen": ("moorage serve qwen --engine custom --replicas 0 -- true",),
    "moorage limits set model qwen concurrent=64 tokens=none": (
        "moorage serve qwen --engine custom --replicas 0 -- true",
    ),
    "moorage endpoints set tiny model=/models/tiny-v2.gguf rollout.canary=10": (
        "moorage stop dev2",
        "moorage endpoints set tiny model={folder}/tiny.gguf",
        "moorage rollout status tiny --wait",
    ),
    "moorage rollout canary tiny 50": (
        "moorage endpoints set tiny model={folder}/tiny.gguf rollout.canary=10",
    ),
    "moorage stop tiny": ("moorage rename baseline train-7",),
    "moorage agents set node-7 --group training": ("moorage groups create training",),
}
ABSENT: dict[str, str] = {
    "moorage up": DAEMON,
    "moorage manager": DAEMON,
    "moorage agent": DAEMON,
    "moorage proxy": DAEMON,
    "moorage demo": DAEMON,
    "moorage simulate": DAEMON,
    "moorage bench tiny": "10 s of requests: tests/unit/cli/test_cli_bench.py",
    "moorage users set ann --subject 248289761001": "an OpenID provider: tests/store",
    "moorage users passwd": "a password of the key's user: tests/unit/cli/test_cli_lists.py",
    "ssh-add -L | head -1 | moorage keys add-ssh - --name laptop": SSH,
    "moorage exec dev -- nvidia-smi": GPUS,
    "moorage serve mine --engine custom --probe /health -- python server.py --port {port}": PROGRAM,
    "moorage bench tiny --request-rate 5 --input-len 1000 --output-len 200 --ignore-eos": (
        "a model with a longer context"
    ),
    "moorage open lab jupyter --browser": "a browser: tests/browser",
    "moorage doctor --cluster -o json": "an installation without findings: tests/cluster",
    "moorage join-tokens create": NODES,
    "moorage join-tokens create --group gold --uses 8 --expires 2h": NODES,
    "moorage join-tokens create --proxy": NODES,
    "moorage peers rotate-ca --status": NODES,
    "moorage workspaces delete train-7": "a workspace that is kept: tests/e2e/test_interactive.py",
    "moorage scheduler replay --from 13:00 --to 15:00 --policy drf --policy 'hol=skip'": (
        "decisions of working hours"
    ),
    "moorage scheduler replay --last 1d --add-gpus 16 --like gpu-03": GPUS,
    "moorage scheduler simulate": MINUTES,
    "moorage scheduler simulate --trace mixed --policy strict,skip,backfill --plot waits.png": (
        MINUTES
    ),
    "moorage db verify /backups/moorage-2030-01-31.dump": "tests/e2e/test_documents.py",
    "moorage cron create": "a name as its argument, or --file",
    "moorage stop": "a session or an endpoint as its argument",
    "moorage mcp": "a client: tests/e2e/test_mcp.py",
    "claude mcp add moorage -- moorage mcp --gpu-hours 20": AGENTS,
    "codex mcp add moorage -- moorage mcp --read-only": AGENTS,
    "moorage claude coder": AGENTS,
    "moorage claude coder -- -p 'explain this repository'": AGENTS,
    "moorage codex coder": AGENTS,
    "moorage codex coder -- exec 'explain this repository'": AGENTS,
    "moorage chat": TERMINAL,
    "moorage events": STREAM,
    "moorage events --kinds budget": STREAM,
    "moorage events --kinds session -o json | jq -r '[.name, .status] | @tsv'": STREAM,
    "moorage top": STREAM,
    "moorage top --sort gpu_memory": STREAM,
    "moorage top --agents": STREAM,
    "moorage ps --watch": STREAM,
    "moorage port-forward lab db 5432": STREAM,
    "moorage port-forward lab ssh": SSH,
    "moorage logs -f train-7": STREAM,
    "moorage logs -f train-7 --timestamps --since 10m": STREAM,
    "moorage logs train-7 --kernel sub1": "a cluster: tests/e2e/test_clusters.py",
    "moorage exec -it dev -- bash": TERMINAL,
    "moorage exec dev --code 'x = 6 * 7; x'": CODE,
    "moorage exec dev --code - --save-images plots <plot.py": CODE,
    "moorage exec dev --repl --language bash": CODE,
    "moorage ssh dev": SSH,
    "moorage ssh dev -- 'nvidia-smi | head'": SSH,
    "sftp -o 'ProxyCommand moorage ssh --stdio %n' dev": SSH,
    "moorage run -- python train.py --epochs 3": PROGRAM,
    "moorage run": PROGRAM,
    "moorage run --gpus 1 --cpus 4 --memory 16GiB -e SEED=1 --timeout 1h -- ./job.sh": PROGRAM,
    "moorage run -f session.yaml --gpus 2": GPUS,
    "moorage run --image python:3.12 -- python -c \"print('hello')\"": DOCKER,
    "moorage run --cluster 4 --cluster-mode multi-node --gpus 8 -- ./torchrun.sh": GPUS,
    "moorage run --name eval --after train --no-wait -- python eval.py": PROGRAM,
    "moorage tasks retry scan": "tasks that failed: tests/e2e/test_tasks.py",
    "moorage tasks retry scan --name scan-2": "tasks that failed: tests/e2e/test_tasks.py",
    "moorage run --tasks list.txt --cpus 8 -- ./convert.sh {}": PROGRAM,
    "moorage run --secret HF_TOKEN=hf-token -- python train.py": PROGRAM,
    "moorage start --image python:3.12 --lifetime 8h --idle-timeout 30m": DOCKER,
    "moorage serve Qwen/Qwen3-0.6B --gpus 1 --arg=--max-model-len --arg=4096": HUB,
    "moorage serve Qwen/Qwen3-0.6B-GGUF:Q8_0": HUB,
    "moorage models show Qwen/Qwen3-8B": HUB,
    "moorage models show meta-llama/Llama-3.3-70B-Instruct --context 32768 --kv-dtype fp8": HUB,
    "moorage agents forget node-7 --destroyed": NODES,
    "moorage peers revoke agent node-7": NODES,
    "moorage peers rotate-ca": NODES,
    "moorage peers rotate-ca --force": NODES,
    "moorage agent join http://manager.example.com:8700": NODES,
    "moorage agent join https://moorage.example.com --id node-7 --token-file /run/join-token": NODES,
    "ssh manager moorage join-tokens create | moorage agent join http://manager:8700": NODES,
    "moorage proxy join http://manager.example.com:8700 --token-file /run/join-token": NODES,
    "moorage agent install-engine": HUB,
    "moorage agent install-engine vllm": HUB,
    "moorage agent install-engine vllm --build cpu": HUB,
    "moorage db restore /backups/moorage-2030-01-31.dump": OFFLINE,
    "moorage db restore --overwrite --dsn postgresql://moorage@db/moorage moorage.dump": OFFLINE,
    "moorage db recover": OFFLINE,
    "moorage db downgrade": OFFLINE,
    "moorage db rotate-secrets-key": OFFLINE,
    "moorage db rotate-secrets-key --discard-unreadable": OFFLINE,
    "moorage config history": ETCD,
    "moorage notifications create mail --mail --event end,fail": RECEIVERS,
    "moorage notifications create lab --webhook https://example.com/hook --event fail --everyone": (
        RECEIVERS
    ),
    "moorage notifications create chat --webhook https://hooks.slack.com/x --format slack": (
        RECEIVERS
    ),
    "moorage notifications update lab --event fail --session-name 'train-*'": RECEIVERS,
    "moorage notifications update lab --enable": RECEIVERS,
    "moorage notifications test mail": RECEIVERS,
    "moorage notifications log lab --state failed": RECEIVERS,
}
