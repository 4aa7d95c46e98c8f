"""Dial-out connections. An agent opens them to a proxy that cannot reach it; each carries many
streams."""
