"""A vision node with exactly known content, live or in bags, for tests and benchmarks."""
