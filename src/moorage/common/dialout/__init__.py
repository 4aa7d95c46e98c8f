"""Dial-out connections: those that an agent opens to a proxy that cannot reach it, with many
streams each."""
