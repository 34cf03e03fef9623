"""Observations come in, snapshots and changes go out: what was seen lately, in bounds.

May import `model`, `errors` and `decoding`.
"""
