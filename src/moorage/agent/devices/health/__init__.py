"""Device health: fault detection, fencing, and the release of device memory."""
