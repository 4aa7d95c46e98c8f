"""Commands that run, register, administer and diagnose components.

Importing a module registers its commands.
"""
