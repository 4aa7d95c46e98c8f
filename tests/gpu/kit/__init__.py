"""Trials of Moorage on a real NVIDIA GPU, part by part: the kit's ``tests/gpu/run.sh`` runs
them."""
