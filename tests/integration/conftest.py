"""A domain of its own for each test, and the service in it."""

from collections.abc import AsyncIterator

import pytest

from processes import Service, fresh_domain, service


@pytest.fixture
def domain(monkeypatch: pytest.MonkeyPatch) -> str:
    domain = fresh_domain()
    monkeypatch.setenv("ROS_DOMAIN_ID", domain)
    return domain


@pytest.fixture
async def running(domain: str) -> AsyncIterator[Service]:
    async with service(freshness_window_s=1.0) as running:
        yield running
