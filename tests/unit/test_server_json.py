"""`server.json`, by which the MCP registry lists this server, says what is true of it."""

import json
import re
import tomllib
from typing import Any

import pytest

from mcp_perception_buffer.settings import FIELDS, SECRETS, Settings
from support import REPOSITORY

SERVER: dict[str, Any] = json.loads((REPOSITORY / "server.json").read_text(encoding="utf-8"))
PROJECT: dict[str, Any] = tomllib.loads(
    (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")
)["project"]
SCHEMA = r"https://static\.modelcontextprotocol\.io/schemas/\d{4}-\d\d-\d\d/server\.schema\.json"
PACKAGES = {package["transport"]["type"]: package for package in SERVER["packages"]}


def variables(package: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {variable["name"]: variable for variable in package["environmentVariables"]}


def test_it_names_schema_server_and_version() -> None:
    assert re.fullmatch(SCHEMA, SERVER["$schema"])
    namespace, _, name = SERVER["name"].partition("/")
    assert re.fullmatch(r"io\.github\.[a-zA-Z0-9-]+", namespace)
    assert name == PROJECT["name"]
    assert 1 <= len(SERVER["description"]) <= 100
    assert SERVER["version"] == PROJECT["version"]


def test_both_transports_are_there_once() -> None:
    assert len(SERVER["packages"]) == 2
    assert set(PACKAGES) == {"stdio", "streamable-http"}


@pytest.mark.parametrize("transport", PACKAGES)
def test_a_package_is_the_one_on_pypi_and_starts_with_its_transport(transport: str) -> None:
    package = PACKAGES[transport]
    assert package["registryType"] == "pypi"
    assert package["identifier"] == PROJECT["name"]
    assert package["version"] == PROJECT["version"]
    assert (
        package["runtimeArguments"][0]["value"] == f"{PROJECT['name']}[ros]=={PROJECT['version']}"
    )
    assert package["packageArguments"] == [{"type": "positional", "value": "serve"}]
    chosen = variables(package)["MCP_TRANSPORT"]["value"]
    assert chosen == transport == Settings(MCP_TRANSPORT=chosen).transport


@pytest.mark.parametrize("transport", PACKAGES)
def test_each_variable_is_one_that_is_read_and_secrets_are_told(transport: str) -> None:
    for name, variable in variables(PACKAGES[transport]).items():
        assert name in FIELDS
        assert variable.get("isSecret", False) == (FIELDS[name] in SECRETS)


def test_the_url_has_the_default_port_and_the_header_its_token() -> None:
    http = PACKAGES["streamable-http"]
    default = variables(http)["MCP_PORT"]["default"]
    assert int(default) == Settings().port
    url = http["transport"]["url"].replace("{MCP_PORT}", default)
    assert url == "http://127.0.0.1:9202/mcp"
    [header] = http["transport"]["headers"]
    assert header["name"] == "Authorization"
    assert header["value"].replace("{token}", "x") == "Bearer x"
    assert header["isSecret"]
    assert header["variables"]["token"]["isSecret"]
