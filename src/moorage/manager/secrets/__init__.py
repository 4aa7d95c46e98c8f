"""Encryption of stored secrets."""

from moorage.manager.secrets.keyring import Keyring, SealedSecret

__all__ = ["Keyring", "SealedSecret"]
