"""Which skills are watched: a port and its adapters."""
