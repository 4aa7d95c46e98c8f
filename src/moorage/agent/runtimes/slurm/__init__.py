"""Slurm runtime: kernels as batch jobs, submitted with Slurm's own commands on a login node."""
