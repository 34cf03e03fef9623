"""The demo's other process: a small vision node that publishes what it sees in real pixels."""
