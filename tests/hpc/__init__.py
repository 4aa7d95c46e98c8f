"""Tests with a real batch system."""
