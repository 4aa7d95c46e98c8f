"""Resources of the client: one module for each, with its calls with and without asyncio."""
