"""Examples of request bodies by model, for the OpenAPI description. A test validates them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

EXAMPLES: Mapping[str, Any] = {
    "AccessTokenSpec": {"lifetime_s": 3600},
    "Assignment": {"resource_group": "training"},
    "BudgetSpec": {"soft": 1_440_000_000, "hard": 1_800_000_000},
    "CorrectionSpec": {
        "unit": "gpu",
        "amount": -3_600_000,
        "at": "2026-05-04T13:00:00Z",
        "reason": "the node was faulty",
        "project": "vision",
    },
    "Cordon": {"drain": True, "stop_after_s": 600},
    "EndpointPatch": {"resources": {"mem": "8GiB"}, "user_labels": {"stage": "prod"}},
    "Extension": {"seconds": 3600},
    "GroupOptions": {"hol": "backfill", "strategy": "drf"},
    "JoinRequest": {
        "kind": "agent",
        "name": "node-1",
        "csr": "-----BEGIN CERTIFICATE REQUEST-----\n...",
        "verifier": "0" * 64,
        "signature": "0" * 128,
    },
    "JoinTokenSpec": {"kind": "agent", "resource_group": "training"},
    "KeyLimits": {"max_priority": 50, "requests_per_minute": 600},
    "SshKeySpec": {
        "public_key": (
            "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHl5GJ2Rr4zTdsxvFN0Fh3tkRk5g1zF6vWj3WmMbjJxT pc"
        ),
        "challenge": "moorage ssh-key user=ann installation=… time=2026-01-01T00:00:00+00:00",
        "signature": "-----BEGIN SSH SIGNATURE-----\n...",
    },
    "KeySpec": {"name": "ci", "user": "ann", "project": "vision", "role": "member"},
    "Membership": {"role": "member"},
    "NewEndpoint": {
        "name": "tiny",
        "engine": "llamacpp",
        "model": "/models/tiny.gguf",
        "replicas": 2,
    },
    "GroupRename": {"name": "research"},
    "NewGroup": {"name": "training", "options": {"hol": "backfill"}},
    "NewPassword": {"password": "correct horse battery staple"},
    "PasswordChange": {"current": "correct horse", "password": "correct horse battery staple"},
    "PriceSpec": {"unit": "gpu", "device": "H100", "price": 2_500_000},
    "ProjectPatch": {"max_priority": 50},
    "ProjectSpec": {"name": "vision", "resource_groups": ["training"]},
    "QuotaLimits": {"slots": {"cuda.device": 4}, "sessions": 10},
    "RolloutUndo": {"revision": 3},
    "RotateCa": {},
    "Rotation": {"grace_s": 3600},
    "Scale": {"replicas": 3},
    "SecretSpec": {"value": "hf_..."},
    "SessionPatch": {"user_labels": {"team": "vision", "stage": None}},
    "SessionSpec": {
        "name": "train-1",
        "command": ["python", "train.py"],
        "resources": {"cpu": 4, "mem": "16GiB", "cuda.device": 1},
        "user_labels": {"team": "vision"},
    },
    "SignIn": {"user": "ann", "password": "correct horse battery staple"},
    "SwitchProject": {"project": "vision"},
    "PipelineSpec": {
        "name": "train",
        "steps": [
            {"name": "load", "spec": {"command": ["python", "load.py"]}},
            {
                "name": "part",
                "after": ["load"],
                "array": "0-99%10",
                "spec": {"command": ["python", "part.py"]},
            },
            {
                "name": "alarm",
                "after": [{"step": "part", "on": "failure"}],
                "spec": {"command": ["alarm"]},
            },
        ],
    },
    "TemplateRun": {"parameters": {"epochs": 3}},
    "TemplateSpec": {
        "parameters": {"epochs": {"type": "integer", "default": 5}},
        "spec": {"command": ["python", "train.py", "--epochs", "{{ epochs }}"]},
    },
    "UserPatch": {"email": "ann@example.com"},
    "UserSpec": {"name": "ann", "email": "ann@example.com"},
    "UserSubject": {"subject": "00u1a2b3c4"},
    "ExecutionSpec": {"code": "x = 6 * 7\nx", "language": "python", "timeout_s": 60},
    "ExecutionInput": {"text": "Ada", "after": 3},
    "CompletionSpec": {"code": "import ma", "language": "python"},
}
