"""Device health: detection of faults, fencing, and the release of device memory."""
