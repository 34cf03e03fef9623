"""`doctor` against the real service: the table that a person sees."""

import pytest
from rich.console import Console

from mcp_perception_buffer.doctor import doctor
from mcp_perception_buffer.errors import UnavailableError, UnknownSkillError
from processes import fresh_domain, publisher, service
from support import eventually

pytestmark = pytest.mark.ros
pytest.importorskip("rclpy", reason="run with --extra ros")


async def test_it_shows_every_skill_and_says_whether_all_is_well(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    domain = fresh_domain()
    monkeypatch.setenv("ROS_DOMAIN_ID", domain)
    screen = Console(width=120, record=True)
    async with service(freshness_window_s=1.0, camera_topic=None) as running:
        url = f"{running.url}/mcp"
        assert not await doctor(url, None, screen)
        assert "No skill has published anything yet" in screen.export_text()
        async with publisher("--camera-topic", "", domain=domain) as vision:
            await eventually(
                lambda: [v.state for v in running.buffer.snapshot().streams] == ["fresh"] * 5
            )
            assert await eventually(lambda: doctor(url, None, screen))
            shown = " ".join(screen.export_text().split())
            assert "find_object" in shown
            assert "/vision/describe_scene/scene" in shown
            assert "reliable, volatile" in shown
            await vision.end()
        # A vision node that has gone is a problem, with advice.
        await eventually(lambda: _fails(url, screen))
        assert "start the node that publishes it" in " ".join(screen.export_text().split())
        with pytest.raises(UnknownSkillError, match="Known skills: describe_scene, find_object"):
            await doctor(url, "nope", screen)
    with pytest.raises(UnavailableError, match="no service answers"):
        await doctor(url, None, screen)


async def _fails(url: str, screen: Console) -> bool:
    return not await doctor(url, "find_object", screen)
