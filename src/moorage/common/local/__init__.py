"""Unix sockets of a manager in its state directory, which prove its identity to clients on its
host."""
