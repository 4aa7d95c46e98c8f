"""Vocabulary and small tools that every component shares; knows no component."""
