"""Device health: faults, fencing, and the release of device memory."""
