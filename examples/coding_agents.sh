#!/bin/sh
# Coding agents with a served model: sh examples/coding_agents.sh MODEL
# Claude Code and Codex are installed: npm install -g @anthropic-ai/claude-code @openai/codex
set -eu
model=$1

# One question each. The agents' keys are valid only for this model, and are revoked when the agents
# exit.
moorage claude "$model" -- -p 'What does this repository do?'
moorage codex "$model" -- exec --skip-git-repo-check 'What does this repository do?'

# For an editor or a script: variables with a key that lives until it expires or is revoked.
moorage claude "$model" --print-env --expires 1h
