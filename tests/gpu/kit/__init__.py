"""Trials of Moorage on a real NVIDIA GPU, part by part: ``tests/gpu/run.sh`` of the kit runs
them."""
