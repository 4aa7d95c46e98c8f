"""The node's state: kernel logs, ports and free space."""
