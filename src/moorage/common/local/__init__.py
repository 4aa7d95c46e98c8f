"""Unix sockets of a manager in its state directory, which prove it to clients on its host."""
