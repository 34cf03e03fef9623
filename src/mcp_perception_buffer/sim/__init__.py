"""A ROS 2 node with exactly known content, for tests and benchmarks."""
