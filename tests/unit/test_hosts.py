"""What is printed for MCP hosts: valid, agreeing with the document, and without the secret."""

import json
import re
import shlex
from typing import Any

import pytest
from typer.testing import CliRunner

from mcp_perception_buffer.cli import app
from mcp_perception_buffer.errors import ConfigError
from mcp_perception_buffer.hosts import HOSTS, HTTP, STDIO, Block, Here, blocks, here
from mcp_perception_buffer.settings import Settings
from support import REPOSITORY

INSTALLED = Here(
    command=("/home/you/.local/bin/mcp-perception-buffer", "serve"),
    env={"MCP_TRANSPORT": "stdio"},
    url="http://127.0.0.1:9202/mcp",
    needs_token=False,
)
AWAY = Here(
    command=("/opt/with blank/mcp-perception-buffer", "serve", "topic_patterns=[/eyes/]"),
    env={"MCP_TRANSPORT": "stdio", "ROS_DOMAIN_ID": "7"},
    url="http://robot:9202/mcp",
    needs_token=True,
)
DOCUMENT = (REPOSITORY / "docs" / "hosts.md").read_text(encoding="utf-8")
TOKEN = "SEKRET"
NETWORK: dict[str, Any] = {
    "host": "0.0.0.0",
    "allowed_hosts": ["robot:*"],
    "PERCEPTION_AUTH_TOKEN": TOKEN,
}


def every(machine: Here) -> list[Block]:
    return [
        block for name in HOSTS for over in (STDIO, HTTP) for block in blocks(name, machine, over)
    ]


def the_json(name: str, machine: Here, transport: str) -> Any:
    [text] = [b.text for b in blocks(name, machine, transport) if b.language == "json"]
    return json.loads(text)


def test_the_document_shows_what_is_printed_for_a_default_installation() -> None:
    shown = re.findall(r"^```(\w+)\n(.*?)\n```$", DOCUMENT, re.DOTALL | re.MULTILINE)
    assert shown == [(block.language, block.text) for block in every(INSTALLED)]
    for name, host in HOSTS.items():
        assert f"## {host.title}: `hosts {name}`\n\nGoes to: {host.place}.\n" in DOCUMENT


def test_the_document_names_how_each_host_refers_to_the_token() -> None:
    table = DOCUMENT.partition("## With a token")[2]
    for name in HOSTS:
        text = blocks(name, AWAY, HTTP)[-1].text
        [reference] = re.findall(
            r'f?"(?:AUTHORIZATION|Authorization)": (.*?),?$', text, re.MULTILINE
        )
        shown = reference if reference.startswith("f") else json.loads(reference)
        assert f"`{shown}`" in table, name


def test_the_command_prints_the_blocks_alone_to_stdout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PERCEPTION_AUTH_TOKEN", raising=False)
    monkeypatch.setenv("ROS_DOMAIN_ID", "7")
    machine = here(Settings(), [], {"ROS_DOMAIN_ID": "7"})
    for name, host in HOSTS.items():
        printed = CliRunner().invoke(app, ["hosts", name])
        texts = [block.text for over in (STDIO, HTTP) for block in blocks(name, machine, over)]
        assert printed.stdout == "".join(f"{text}\n" for text in texts)
        assert f"# stdio, for {host.place}:" in printed.stderr


def test_without_a_name_it_lists_them() -> None:
    listed = CliRunner().invoke(app, ["hosts"]).stdout.splitlines()
    assert [line.split()[0] for line in listed] == list(HOSTS)


def test_an_unknown_name_is_told_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match=r"emacs is no host .* claude-desktop, claude-code"):
        CliRunner().invoke(app, ["hosts", "emacs"], catch_exceptions=False)


@pytest.mark.parametrize("machine", [INSTALLED, AWAY], ids=["local", "with a token"])
def test_all_of_it_can_be_read_by_what_it_is_for(machine: Here) -> None:
    for block in every(machine):
        if block.language == "json":
            assert json.loads(block.text)
        elif block.language == "python":
            compile(block.text, block.place, "exec")
        else:
            assert shlex.split(block.text)[:3] == ["claude", "mcp", "add"]
        assert "$url" not in block.text
        assert "?" not in block.text.replace("see?", "")


def test_the_secret_itself_is_printed_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERCEPTION_AUTH_TOKEN", TOKEN)
    for name in HOSTS:
        printed = CliRunner().invoke(app, ["hosts", name])
        assert "PERCEPTION_AUTH_TOKEN" in printed.stdout
        assert TOKEN not in printed.output


def test_a_token_comes_in_as_each_host_refers_to_secrets() -> None:
    def entry(name: str, servers: str = "mcpServers") -> Any:
        return the_json(name, AWAY, HTTP)[servers]["perception"]

    bridge = entry("claude-desktop")
    assert bridge["args"][2:] == [
        *("http://robot:9202/mcp", "--allow-http"),
        *("--header", "Authorization:${AUTHORIZATION}"),
    ]
    assert bridge["env"] == {"AUTHORIZATION": "Bearer <PERCEPTION_AUTH_TOKEN>"}
    secret = {"Authorization": "Bearer ${PERCEPTION_AUTH_TOKEN}"}
    assert entry("claude-code") == {"type": "http", "url": AWAY.url, "headers": secret}
    secret = {"Authorization": "Bearer ${env:PERCEPTION_AUTH_TOKEN}"}
    assert entry("cursor") == {"url": AWAY.url, "headers": secret}
    secret = {"Authorization": "Bearer ${input:perception-token}"}
    assert entry("vscode", "servers") == {"type": "http", "url": AWAY.url, "headers": secret}
    assert the_json("vscode", AWAY, HTTP)["inputs"][0]["id"] == "perception-token"
    assert "inputs" not in the_json("vscode", AWAY, STDIO)


def test_the_line_for_a_shell_survives_blanks_and_brackets() -> None:
    line = shlex.split(blocks("claude-code", AWAY, STDIO)[0].text)
    start = line.index("--") + 1
    assert line[start:] == list(AWAY.command)
    options = ["--env", "MCP_TRANSPORT=stdio", "--env", "ROS_DOMAIN_ID=7"]
    assert line[3:start] == [*options, "--transport", "stdio", "perception", "--"]


def test_what_ros_needs_comes_along_and_nothing_else_does() -> None:
    environ = {
        "ROS_DOMAIN_ID": "7",
        "RMW_IMPLEMENTATION": "rmw_fastrtps_cpp",
        "LD_LIBRARY_PATH": "/of/the/wheels",
        "RVC_EVENT_SECRET": TOKEN,
        "HOME": "/root",
    }
    known = {name: environ[name] for name in ("RMW_IMPLEMENTATION", "ROS_DOMAIN_ID")}
    assert here(Settings(), [], environ).env == {"MCP_TRANSPORT": "stdio", **known}
    sourced = {"AMENT_PREFIX_PATH": "/opt/ros/jazzy", "LD_LIBRARY_PATH": "/opt/ros/jazzy/lib"}
    assert here(Settings(), [], sourced).env == {"MCP_TRANSPORT": "stdio", **sourced}


@pytest.mark.parametrize(
    ("settings", "url"),
    [
        ({}, "http://127.0.0.1:9202/mcp"),
        ({"MCP_PORT": 9300}, "http://127.0.0.1:9300/mcp"),
        ({"host": "::1"}, "http://[::1]:9202/mcp"),
        (NETWORK, "http://robot:9202/mcp"),
        ({**NETWORK, "allowed_hosts": ["[fd00::1]:*"]}, "http://[fd00::1]:9202/mcp"),
    ],
)
def test_the_url_is_that_by_which_callers_reach_it(settings: dict[str, Any], url: str) -> None:
    assert here(Settings(**settings), [], {}).url == url


def test_without_a_port_known_beforehand_there_is_stdio_only() -> None:
    machine = here(Settings(MCP_PORT=0), [], {})
    assert blocks("cursor", machine, STDIO)
    with pytest.raises(ConfigError, match="port is 0"):
        blocks("cursor", machine, HTTP)
