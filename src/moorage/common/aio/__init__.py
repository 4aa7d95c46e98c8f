"""Asyncio building blocks: clock, periodic loop, supervised tasks, bounded pipe."""
