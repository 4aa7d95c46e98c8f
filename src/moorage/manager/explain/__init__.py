"""Explanations of pending sessions: blockers, queue position and expected start. Pure."""
