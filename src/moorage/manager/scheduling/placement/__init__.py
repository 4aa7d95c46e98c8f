"""Placement: feasible nodes, node scoring, device selection and gang placement. Pure."""
