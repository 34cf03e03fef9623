"""Where watch events wait and where they go: an outbox, a port and its adapter."""
