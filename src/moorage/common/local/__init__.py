"""A manager's Unix sockets in its state directory, which prove its identity to clients on its
host."""
