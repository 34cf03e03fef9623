r"""The brain's \"what do you see?\" server: ROS 2 vision topics in, MCP answers out."""
