"""Resources of the client: one module for each, with its calls for asyncio and without."""
