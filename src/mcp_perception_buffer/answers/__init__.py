"""Snapshots come in, answers go out: as text for a reader and as data of the same facts, in bounds.

All but `tools` and `resources`, which speak MCP, is pure. May import `model`, `errors`, `decoding`
and `memory`.
"""
