"""Domain model, messages, configuration and asyncio building blocks. Imports no component."""
