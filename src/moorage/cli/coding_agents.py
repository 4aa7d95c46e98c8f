"""Command lines and environments that point coding agents at a served model. Pure."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

# The most output tokens that Claude Code requests by default. Its tools alone make each prompt
# about 20,000 tokens long.
_CLAUDE_OUTPUT_TOKENS = 32_000
SMALL_CONTEXT = 32_768
_CODEX_KEY = "MOORAGE_MODEL_KEY"


@dataclass(frozen=True, slots=True)
class CodingModel:
    """A model behind the proxy. ``openai_url`` ends in ``/v1``; ``max_model_len`` is None if
    unknown."""

    openai_url: str
    model: str
    key: str
    max_model_len: int | None = None
    ca_file: str | None = None


@dataclass(frozen=True, slots=True)
class CodingLaunch:
    """How to start an agent. ``environment``: changes to the caller's environment; None removes a
    variable. ``options`` precede the user's arguments."""

    environment: Mapping[str, str | None]
    options: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class CodingAgent:
    """A coding agent. ``package``: its name on npm. ``api``: the proxy path that it uses."""

    program: str
    package: str
    api: str
    launch: Callable[[CodingModel], CodingLaunch]

    def script(self, launch: CodingLaunch) -> str:
        """POSIX shell commands that make the program use the model."""
        lines = [
            f"unset {name}" if value is None else f"export {name}={shlex.quote(value)}"
            for name, value in launch.environment.items()
        ]
        if launch.options:
            lines.append(
                f'{self.program}() {{ command {self.program} {shlex.join(launch.options)} "$@"; }}'
            )

        return "\n".join(lines)


def _claude(target: CodingModel) -> CodingLaunch:
    model = target.model
    room = (target.max_model_len or 0) // 4
    tokens = (
        {"CLAUDE_CODE_MAX_OUTPUT_TOKENS": str(room)} if 0 < room < _CLAUDE_OUTPUT_TOKENS else {}
    )

    return CodingLaunch(
        {
            "ANTHROPIC_BASE_URL": target.openai_url.rstrip("/").removesuffix("/v1"),
            "ANTHROPIC_AUTH_TOKEN": target.key,
            # These would take precedence, or send the requests elsewhere.
            **dict.fromkeys(
                (
                    "ANTHROPIC_API_KEY",
                    "CLAUDE_CODE_OAUTH_TOKEN",
                    "CLAUDE_CODE_USE_BEDROCK",
                    "CLAUDE_CODE_USE_VERTEX",
                    "CLAUDE_CODE_USE_FOUNDRY",
                )
            ),
            "ANTHROPIC_MODEL": model,
            "ANTHROPIC_DEFAULT_OPUS_MODEL": model,
            "ANTHROPIC_DEFAULT_SONNET_MODEL": model,
            "ANTHROPIC_DEFAULT_HAIKU_MODEL": model,
            "CLAUDE_CODE_SUBAGENT_MODEL": model,
            # A prompt header that differs in every request would defeat the prefix cache.
            "CLAUDE_CODE_ATTRIBUTION_HEADER": "0",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_TELEMETRY": "1",
            **tokens,
            **({"NODE_EXTRA_CA_CERTS": target.ca_file} if target.ca_file else {}),
        }
    )


def _codex(target: CodingModel) -> CodingLaunch:
    provider = {
        "name": "Moorage",
        "base_url": target.openai_url.rstrip("/"),
        "env_key": _CODEX_KEY,
        "wire_api": "responses",
    }
    values: dict[str, str | int | bool] = {
        "model": target.model,
        "model_provider": "moorage",
        **{f"model_providers.moorage.{name}": value for name, value in provider.items()},
        **({"model_context_window": target.max_model_len} if target.max_model_len else {}),
        "check_for_update_on_startup": False,
        "analytics.enabled": False,
    }
    pairs = [f"{name}={_toml(value)}" for name, value in values.items()]
    environment: dict[str, str | None] = {_CODEX_KEY: target.key}
    if target.ca_file:
        environment["SSL_CERT_FILE"] = target.ca_file

    return CodingLaunch(environment, [part for pair in pairs for part in ("-c", pair)])


def _toml(value: str | int | bool) -> str:
    """A TOML string. It is written as in JSON, except for DEL and characters beyond the first
    Unicode plane."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


CLAUDE = CodingAgent("claude", "@anthropic-ai/claude-code", "/v1/messages", _claude)
CODEX = CodingAgent("codex", "@openai/codex", "/v1/responses", _codex)
