"""Sends one prompt to adjutant over ACP and prints the answer.

    pip install agent-client-protocol
    python client.py "list src"

Every question is rejected: a script that may change files answers "allow_once" instead.
"""

import asyncio
import os
import sys

import acp
from acp import schema


class Client(acp.Client):
    def __init__(self):
        self.titles = {}
        self.gap = ""
        self.has_text = False

    async def request_permission(self, options, session_id, tool_call, **_):
        print(f"\nrejected: {tool_call.title}", file=sys.stderr)
        option = next(option for option in options if option.kind == "reject_once")
        return schema.RequestPermissionResponse(
            outcome=schema.AllowedOutcome(outcome="selected", option_id=option.option_id)
        )

    async def session_update(self, session_id, update, **_):
        if update.session_update == "agent_message_chunk" and update.content.type == "text":
            print(self.gap + update.content.text, end="", flush=True)
            self.gap = ""
            self.has_text = True
        if update.session_update in ("tool_call", "tool_call_update"):
            # The title becomes more precise while the call is prepared.
            if update.title:
                self.titles[update.tool_call_id] = update.title
            if update.status in ("completed", "failed"):
                print(f"[{self.titles[update.tool_call_id]}: {update.status}]", file=sys.stderr)
            # Text after a call is another paragraph.
            self.gap = "\n\n" if self.has_text else ""


async def main(prompt):
    adjutant = os.environ.get("ADJUTANT", "adjutant")
    process = await asyncio.create_subprocess_exec(
        adjutant, "acp", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    agent = acp.connect_to_agent(Client(), process.stdin, process.stdout)
    await agent.initialize(protocol_version=acp.PROTOCOL_VERSION)
    session = await agent.new_session(cwd=os.getcwd(), mcp_servers=[])
    answer = await agent.prompt(session_id=session.session_id, prompt=[acp.text_block(prompt)])
    print()
    process.stdin.close()
    await process.wait()
    return 0 if answer.stop_reason == "end_turn" else 1


sys.exit(asyncio.run(main(sys.argv[1])))
