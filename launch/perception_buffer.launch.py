"""`ros2 launch mcp_perception_buffer perception_buffer.launch.py port:=9202`."""

from launch import LaunchDescription
from launch.actions import DeclareLaunchArgument
from launch.substitutions import EnvironmentVariable, LaunchConfiguration
from launch_ros.actions import Node


def generate_launch_description() -> LaunchDescription:
    """Run the service; what is not an argument here comes from its YAML and the environment."""
    return LaunchDescription(
        [
            DeclareLaunchArgument(
                "transport",
                default_value=EnvironmentVariable("MCP_TRANSPORT", default_value=""),
                description="streamable-http or sse; empty: as the YAML says",
            ),
            DeclareLaunchArgument(
                "port",
                default_value=EnvironmentVariable("MCP_PORT", default_value=""),
                description="port on 127.0.0.1; empty: as the YAML says",
            ),
            Node(
                package="mcp_perception_buffer",
                executable="mcp-perception-buffer",
                arguments=["serve"],
                additional_env={
                    "MCP_TRANSPORT": LaunchConfiguration("transport"),
                    "MCP_PORT": LaunchConfiguration("port"),
                },
                output="screen",
                # The brain reconnects by itself, so a restart is all that a crash needs.
                respawn=True,
                respawn_delay=2.0,
            ),
        ]
    )
