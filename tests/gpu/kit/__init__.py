"""What Moorage does with a real NVIDIA GPU, part by part: ``tests/gpu/run.sh`` of the kit runs it."""
