"""Identities of API callers: API keys, owners and idempotency keys."""
