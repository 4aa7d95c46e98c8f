"""Agent side of the gRPC link to the manager."""
