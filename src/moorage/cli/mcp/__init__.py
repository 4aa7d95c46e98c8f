"""MCP server: operations of the REST API as tools for coding agents."""
