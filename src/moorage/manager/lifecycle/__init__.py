"""Session lifecycle: transition table, deadlines, and reconciliation of sessions with their kernels. Pure."""
