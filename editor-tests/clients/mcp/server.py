"""A server written with the Python SDK of MCP: over pipes."""

try:
    from mcp.server.mcpserver import MCPServer
except ImportError:
    from mcp.server.fastmcp import FastMCP as MCPServer

server = MCPServer("python")


@server.tool()
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@server.tool()
def refuse() -> str:
    """Fails."""
    raise ValueError("not today")


server.run(transport="stdio")
