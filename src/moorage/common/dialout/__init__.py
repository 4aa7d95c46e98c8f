"""Dial-out connections: an agent opens them to a proxy that cannot reach it; each carries many
streams."""
