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
    async def request_permission(self, options, session_id, tool_call, **_):
        print(f"\nrejected: {tool_call.title}", file=sys.stderr)
        option = next(option for option in options if option.kind == "reject_once")
        return schema.RequestPermissionResponse(
            outcome=schema.AllowedOutcome(outcome="selected", option_id=option.option_id)
        )

    async def session_update(self, session_id, update, **_):
        if update.session_update == "agent_message_chunk" and update.content.type == "text":
            print(update.content.text, end="", flush=True)
        if update.session_update == "tool_call":
            print(f"[{update.title}]", file=sys.stderr)


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
