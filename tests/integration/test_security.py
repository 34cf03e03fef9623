"""Who may call: the real application, no ROS graph needed for the refusals."""

import asyncio
import resource
from typing import Any

import httpx2 as httpx
import pytest
from starlette.responses import JSONResponse

from mcp_perception_buffer.gate import Gate, Streams
from processes import INITIALIZE, fresh_domain, service

pytestmark = pytest.mark.ros
pytest.importorskip("rclpy", reason="run with --extra ros")

TOKEN = {"Authorization": "Bearer SEKRET"}
OPEN: dict[str, Any] = {}
GUARDED: dict[str, Any] = {
    "auth_token": "SEKRET",
    "allowed_hosts": ["robot:*"],
    "allowed_origins": ["https://console.example"],
}
ACCEPT = {"Accept": "application/json, text/event-stream"}


@pytest.fixture(autouse=True)
def _domain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROS_DOMAIN_ID", fresh_domain())


async def test_both_paths_answer_without_a_redirect() -> None:
    async with service(**OPEN) as running, httpx.AsyncClient(base_url=running.url) as http:
        for path in ("/mcp", "/mcp/"):
            answer = await http.post(path, json=INITIALIZE, headers=ACCEPT)
            assert answer.status_code == 200
            assert answer.json()["result"]["serverInfo"]["name"] == "perception"


async def test_a_session_of_before_a_restart_is_no_obstacle() -> None:
    for _ in range(2):
        async with service(**OPEN) as running, httpx.AsyncClient(base_url=running.url) as http:
            old = {**ACCEPT, "Mcp-Session-Id": "of-a-server-that-was-restarted"}
            answer = await http.post("/mcp", json=INITIALIZE, headers=old)
            assert answer.status_code == 200


async def test_without_the_token_there_is_no_answer_but_to_probes() -> None:
    async with service(**GUARDED) as running, httpx.AsyncClient(base_url=running.url) as http:
        for wrong in (b"", b"Bearer SEKRE", b"Basic SEKRET", b"Bearer SEKRET\xe9"):
            headers = [(b"Authorization", wrong)] if wrong else []
            for path in ("/mcp", "/mcp/", "/messages/"):
                answer = await http.post(path, json=INITIALIZE, headers=headers)
                assert answer.status_code == 401
                assert answer.headers["WWW-Authenticate"] == "Bearer"
            assert (await http.get("/sse", headers=headers)).status_code == 401
        for probe in ("/healthz", "/livez", "/readyz"):
            assert (await http.get(probe)).status_code == 200
        answer = await http.post("/mcp", json=INITIALIZE, headers={**ACCEPT, **TOKEN})
        assert answer.status_code == 200


async def test_a_foreign_host_is_misdirected_and_the_log_says_what_to_do(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with service(**GUARDED) as running, httpx.AsyncClient(base_url=running.url) as http:
        for host, status in (("evil.example", 421), ("robot:9202", 200)):
            headers = {**ACCEPT, **TOKEN, "Host": host}
            answer = await http.post("/mcp", json=INITIALIZE, headers=headers)
            assert answer.status_code == status
    said = capsys.readouterr().out
    assert "evil.example" in said
    assert "allowed_hosts" in said
    assert "SEKRET" not in said


@pytest.mark.parametrize(
    ("origin", "allowed"), [("https://console.example", True), ("https://evil.example", False)]
)
async def test_only_configured_origins_get_cors(origin: str, allowed: bool) -> None:
    async with service(**GUARDED) as running, httpx.AsyncClient(base_url=running.url) as http:
        preflight = await http.options(
            "/mcp",
            headers={
                "Origin": origin,
                "Access-Control-Request-Method": "POST",
                "Access-Control-Request-Headers": "authorization,mcp-protocol-version",
            },
        )
        headers = {**ACCEPT, **TOKEN, "Origin": origin}
        post = await http.post("/mcp", json=INITIALIZE, headers=headers)
    assert preflight.status_code == (200 if allowed else 400)
    assert post.status_code == (200 if allowed else 403)
    assert post.headers.get("Access-Control-Allow-Origin") == (origin if allowed else None)
    if allowed:
        assert "mcp-protocol-version" in preflight.headers["Access-Control-Allow-Headers"]
        assert "mcp-session-id" in post.headers["Access-Control-Expose-Headers"]


async def test_a_server_that_listens_wider_than_the_settings_say_still_serves_this_host_alone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    gate = Gate(JSONResponse({}), None, local_only=True, streams=Streams())
    for address, status in (("127.0.0.1", 200), ("::1", 200), ("10.1.2.3", 403)):
        server = httpx.ASGITransport(app=_as_if_on(address, gate))
        async with httpx.AsyncClient(transport=server, base_url="http://localhost") as http:
            assert (await http.get("/mcp")).status_code == status
            assert (await http.get("/healthz")).status_code == 200
    assert "not from this host" in capsys.readouterr().out


def _as_if_on(address: str, app: Any) -> Any:
    async def called(scope: Any, receive: Any, send: Any) -> None:
        await app({**scope, "server": (address, 9202)}, receive, send)

    return called


async def test_a_huge_body_is_refused_and_kept_nowhere() -> None:
    async def endless() -> Any:
        for _ in range(100):
            yield b" " * 1_000_000

    async with service(**OPEN) as running, httpx.AsyncClient(base_url=running.url) as http:
        before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        try:
            answer = await http.post("/mcp", content=endless(), headers=ACCEPT)
        except httpx.TransportError:
            pass  # hung up on, which is an answer too
        else:
            assert answer.status_code == 413
        grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib
        assert grown_kib < 50_000
        assert (await http.get("/healthz")).status_code == 200


async def test_a_flood_leaves_the_probes_answered() -> None:
    limits = httpx.Limits(max_connections=200)
    async with (
        service(**OPEN) as running,
        httpx.AsyncClient(base_url=running.url, limits=limits, timeout=30) as http,
        httpx.AsyncClient(base_url=running.url) as probe,
    ):

        async def call() -> int:
            return (await http.post("/mcp", json=INITIALIZE, headers=ACCEPT)).status_code

        flood = [asyncio.create_task(call()) for _ in range(300)]
        for _ in range(5):
            assert (await probe.get("/healthz")).status_code == 200
        assert set(await asyncio.gather(*flood)) <= {200, 503}
