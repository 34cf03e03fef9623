"""What to paste into an MCP host so that it asks this service: one table, and how it is filled in.

`hosts NAME` prints it with the values of this machine; no secret is ever printed.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from mcp_perception_buffer.errors import ConfigError
from mcp_perception_buffer.settings import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mcp_perception_buffer.settings import Settings

PROGRAM = "mcp-perception-buffer"
STDIO, HTTP = "stdio", "streamable-http"
# Hosts start a server with next to nothing of the environment. What ROS finds its peers by:
ROS_VARIABLES = ("ROS_", "RMW_", "FASTDDS_", "FASTRTPS_", "CYCLONEDDS_")
# What a sourced installation is found by; the wheels need none of it.
SOURCED = ("AMENT_PREFIX_PATH", "LD_LIBRARY_PATH", "PYTHONPATH")


@dataclass(frozen=True, slots=True)
class Here:
    """How the service is started and reached on this machine.

    `command` speaks stdio with `env`; `url` is None where no port is known beforehand.
    """

    command: tuple[str, ...]
    env: Mapping[str, str]
    url: str | None
    needs_token: bool


class Block(NamedTuple):
    """Text to paste, in `language`, and where to."""

    place: str
    language: str
    text: str


class Host(NamedTuple):
    """Templates of what goes to `place`; see `_fill`.

    `code` is a Python program around the filled-in template. `commands` do the same as the
    template in a shell: for stdio, for HTTP, and what a token adds to the latter.
    """

    title: str
    place: str
    stdio: dict[str, Any]
    http: dict[str, Any]
    code: str = ""
    commands: tuple[str, str, str] | None = None


START: dict[str, Any] = {"command": "$command", "args": "$args", "env": "$env"}


def _ask(bearer: str) -> dict[str, Any]:
    return {"url": "$url", "?headers": {"Authorization": f"Bearer {bearer}"}}


OPENAI = """\
import asyncio
$import_os
from agents import Agent, Runner
from agents.mcp import $server

PERCEPTION = $filled


async def main() -> None:
    # Open for as long as there are questions: what starts anew has seen nothing yet, and starting
    # takes longer than this client waits by itself.
    async with $server(
        name="perception", params=PERCEPTION, client_session_timeout_seconds=60
    ) as perception:
        agent = Agent(name="planner", mcp_servers=[perception])
        print((await Runner.run(agent, "What do you see?")).final_output)


asyncio.run(main())
"""

LANGCHAIN = """\
import asyncio
$import_os
from langchain.agents import create_agent
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.tools import load_mcp_tools

MODEL = "provider:model"  # any that calls tools
SERVERS = $filled


async def main() -> None:
    # Open for as long as there are questions: what starts anew has seen nothing yet.
    async with MultiServerMCPClient(SERVERS).session("perception") as session:
        agent = create_agent(MODEL, await load_mcp_tools(session))
        question = {"role": "user", "content": "What do you see?"}
        answer = await agent.ainvoke({"messages": [question]})
        print(answer["messages"][-1].content)


asyncio.run(main())
"""

HOSTS = {
    "claude-desktop": Host(
        "Claude Desktop",
        "claude_desktop_config.json (Settings, Developer, Edit Config); over HTTP with Node.js",
        {"mcpServers": {"perception": START}},
        # It starts programs only, so that a bridge (needs Node.js) goes between.
        {
            "mcpServers": {
                "perception": {
                    "command": "npx",
                    "args": [
                        *("-y", "mcp-remote", "$url", "$allow_http"),
                        # Without a blank, which it would take apart.
                        *("?--header", "?Authorization:${AUTHORIZATION}"),
                    ],
                    "?env": {"AUTHORIZATION": "Bearer <PERCEPTION_AUTH_TOKEN>"},
                }
            }
        },
    ),
    "claude-code": Host(
        "Claude Code",
        ".mcp.json at the top of the project",
        {"mcpServers": {"perception": {"type": "stdio", **START}}},
        {"mcpServers": {"perception": {"type": "http", **_ask("${PERCEPTION_AUTH_TOKEN}")}}},
        commands=(
            "claude mcp add $options --transport stdio perception -- $start",
            "claude mcp add --transport http perception $url",
            ' --header "Authorization: Bearer $PERCEPTION_AUTH_TOKEN"',
        ),
    ),
    "cursor": Host(
        "Cursor",
        "~/.cursor/mcp.json, or .cursor/mcp.json in a project",
        {"mcpServers": {"perception": {"type": "stdio", **START}}},
        {"mcpServers": {"perception": _ask("${env:PERCEPTION_AUTH_TOKEN}")}},
    ),
    "vscode": Host(
        "VS Code",
        ".vscode/mcp.json in a project",
        {"servers": {"perception": {"type": "stdio", **START}}},
        {
            "?inputs": [
                {
                    "type": "promptString",
                    "id": "perception-token",
                    "description": "PERCEPTION_AUTH_TOKEN of the service",
                    "password": True,
                }
            ],
            "servers": {"perception": {"type": "http", **_ask("${input:perception-token}")}},
        },
    ),
    "openai": Host(
        "OpenAI Agents SDK",
        "Python, with openai-agents installed",
        START,
        _ask("$token"),
        code=OPENAI,
    ),
    "langchain": Host(
        "LangChain",
        "Python, with langchain and langchain-mcp-adapters installed",
        {"perception": {"transport": "stdio", **START}},
        {"perception": {"transport": "streamable_http", **_ask("$token")}},
        code=LANGCHAIN,
    ),
}


def find(name: str) -> Host:
    """Return a host by its name.

    Raises:
        ConfigError: there is none of that name.
    """
    if name not in HOSTS:
        raise ConfigError(f"{name} is no host that is known here; there are {', '.join(HOSTS)}")
    return HOSTS[name]


def here(settings: Settings, words: Sequence[str], environ: Mapping[str, str]) -> Here:
    """Find out how this program is started and reached.

    Args:
        settings: of the service.
        words: what `serve` gets besides, so that it has those settings.
        environ: the variables of this process.
    """
    kept = {name: value for name, value in environ.items() if name.startswith(ROS_VARIABLES)}
    if "AMENT_PREFIX_PATH" in environ:
        kept |= {name: environ[name] for name in SOURCED if name in environ}
    return Here(
        command=(*_program(environ), "serve", *words),
        env={"MCP_TRANSPORT": STDIO, **dict(sorted(kept.items()))},
        url=_url(settings),
        needs_token=settings.auth_token is not None,
    )


def _program(environ: Mapping[str, str]) -> list[str]:
    """Return the words that start this program from any folder."""
    checkout = Path(__file__).resolve().parents[2]
    uv = environ.get("UV") or shutil.which("uv")  # the former is set by uv itself
    if uv and (checkout / "uv.lock").is_file() and Path(sys.prefix) == checkout / ".venv":
        # As the environment is: a host waits for no build, and a robot may have no network.
        return [uv, "run", "--directory", str(checkout), "--no-sync", PROGRAM]
    for path in (Path(sys.argv[0]), Path(sys.executable).with_name(PROGRAM)):
        if path.name == PROGRAM and path.is_file():
            return [str(path.absolute())]
    return [sys.executable, "-m", "mcp_perception_buffer"]


def _url(settings: Settings) -> str | None:
    if settings.port == 0:
        return None
    host = settings.host
    if host not in LOOPBACK:  # an address to listen on; callers use a name
        host = urlsplit(f"//{settings.allowed_hosts[0].removesuffix(':*')}").hostname or host
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.port}/mcp"


def blocks(name: str, here: Here, transport: str) -> list[Block]:
    """Return what to paste into a host, in one way or another of the same effect.

    Args:
        name: a key of `HOSTS`.
        here: this machine's values.
        transport: `STDIO`, where the host starts the service, or `HTTP`, where it runs already.

    Raises:
        ConfigError: there is no such host, or no URL.
    """
    host = find(name)
    if transport == HTTP and here.url is None:
        raise ConfigError("port is 0, so that the URL changes with each start; name a port")
    values = _values(here)
    filled = _fill(host.stdio if transport == STDIO else host.http, values)
    found = []
    if host.commands:
        found.append(Block("a shell", "sh", _line(host.commands, values, transport)))
    if host.code:
        text = _program_text(host.code, filled, transport)
        return [*found, Block(host.place, "python", text)]
    return [*found, Block(host.place, "json", json.dumps(filled, indent=2))]


def _values(here: Here) -> dict[str, Any]:
    local = here.url is None or urlsplit(here.url).hostname in LOOPBACK
    return {
        "$command": here.command[0],
        "$args": list(here.command[1:]),
        "$env": dict(here.env),
        "$url": here.url,
        "$allow_http": [] if local else ["--allow-http"],
        "$start": shlex.join(here.command),
        "$options": shlex.join(
            word for name, value in here.env.items() for word in ("--env", f"{name}={value}")
        ),
        "?": here.needs_token,
    }


def _fill(template: Any, values: Mapping[str, Any]) -> Any:
    """Put values for `$name`; what begins with `?` stays only where a token is needed."""
    if isinstance(template, str):
        return values.get(template, template.removeprefix("?"))
    if isinstance(template, dict):
        return {
            key.removeprefix("?"): _fill(part, values)
            for key, part in template.items()
            if values["?"] or not key.startswith("?")
        }
    if isinstance(template, list):
        wanted = [p for p in template if values["?"] or not str(p).startswith("?")]
        parts = [_fill(part, values) for part in wanted]
        return [item for p in parts for item in (p if isinstance(p, list) else [p])]
    return template


def _line(commands: tuple[str, str, str], values: Mapping[str, Any], transport: str) -> str:
    stdio, http, token = commands
    line = stdio if transport == STDIO else http
    for name in ("$options", "$start", "$url"):
        line = line.replace(name, values[name] or "")
    return line + (token if transport == HTTP and values["?"] else "")


def _program_text(code: str, filled: dict[str, Any], transport: str) -> str:
    literal = re.sub(r"([^\[{,])\n", r"\1,\n", json.dumps(filled, indent=4))  # as Python has it
    secret = literal.replace('"Bearer $token"', "f\"Bearer {os.environ['PERCEPTION_AUTH_TOKEN']}\"")
    texts = {
        "$import_os": "import os\n" if secret != literal else "",
        "$server": "MCPServerStdio" if transport == STDIO else "MCPServerStreamableHttp",
        "$filled": secret,
    }
    for name, text in texts.items():
        code = code.replace(name, text)
    return code.rstrip()
