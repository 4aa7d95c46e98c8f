"""The request bodies with which the tenancy matrix calls each route, by type."""

from __future__ import annotations

import base64
from typing import Any


def ed25519_blob(number: int) -> str:
    """The base64 of an ed25519 public key that is different for each number."""
    kind = b"ssh-ed25519"
    point = number.to_bytes(32)
    return base64.b64encode(
        b"".join(len(part).to_bytes(4) + part for part in (kind, point))
    ).decode()


# Part of every name, command and variable in ann's objects.
CANARY = "quokka"


BODIES: dict[str, Any] = {
    "Extension": {},
    "SubscriptionSpec": {"name": "new", "channel": "webhook", "target": "https://example.com/"},
    "SubscriptionPatch": {"enabled": True},
    "ExecutionSpec": {"code": CANARY},
    "ExecutionInput": {"text": CANARY},
    "CompletionSpec": {"code": CANARY},
    "SessionPatch": {"user_labels": {"team": "vision"}},
    "TemplateSpec": {"spec": {"command": ["x"]}},
    "TaskRetry": {},
    "TemplateRun": {},
    "CronTimesSpec": {"cron": "@daily"},
    "CronJobSpec": {"cron": "@daily", "session": {"command": ["x"]}},
    "NewCronJob": {"name": "new-cron-job", "cron": "@daily", "session": {"command": ["x"]}},
    "PipelineSpec": {"name": "new", "steps": [{"name": "one", "spec": {"command": ["x"]}}]},
    "SessionSpec": {"command": ["x"]},
    "NewEndpoint": {
        "name": "new-model",
        "engine": "custom",
        "command": ["x"],
        "probe": {},
        "replicas": 0,
    },
    "Scale": {"replicas": 0},
    "EndpointPatch": {"priority": 5},
    "RolloutUndo": {"revision": 1},
    "AccessTokenSpec": {},
    "KeySpec": {"name": "new-key"},
    "SshKeySpec": {"public_key": f"ssh-ed25519 {ed25519_blob(1 << 40)} new-ssh-key"},
    "KeyLimits": {"max_priority": 5},
    "Rotation": {},
    "SecretSpec": {"value": CANARY},
    "UserPatch": {"email": "a@b.c"},
    "ProjectPatch": {"max_priority": 100},
    "Membership": {"role": "member"},
    "QosOptions": {"projects": ["vision"]},
    "QuotaLimits": {"sessions": 100},
    "BudgetSpec": {"soft": 1 << 50},
    "PriceSpec": {"unit": "gpu", "price": 1},
    "CorrectionSpec": {
        "unit": "gpu",
        "amount": -1,
        "at": "2026-01-01T00:00:00Z",
        "reason": "a fault",
        "project": "vision",
    },
    "UserSpec": {"name": "new-user"},
    "ProjectSpec": {"name": "new-project"},
    "GroupOptions": {},
    "GroupRename": {"name": "default"},
    "Cordon": {},
    "NewGroup": {"name": "new-group"},
    "Assignment": {"resource_group": "default"},
    "JoinTokenSpec": {"kind": "agent"},
    "RotateCa": {},
    "SwitchProject": {"project": "vision"},
    "PasswordChange": {"current": "wrong", "password": "correct horse"},
    "NewPassword": {"password": "correct horse"},
    "UserSubject": {"subject": "somebody"},
}
