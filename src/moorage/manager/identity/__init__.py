"""Identities of API callers: keys, owners and their rights."""
