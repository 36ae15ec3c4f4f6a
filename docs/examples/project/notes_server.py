"""A server for the Model Context Protocol with one tool and one resource (pip install mcp, 2.3 or newer)."""

from mcp.server.mcpserver import MCPServer

server = MCPServer("notes")
notes: list[str] = []


@server.tool()
def add_note(text: str) -> str:
    """Adds a note and returns how many there are."""
    notes.append(text)
    return f"{len(notes)} notes"


@server.resource("notes://all")
def all_notes() -> str:
    """All notes, one per line."""
    return "\n".join(notes)


server.run()
