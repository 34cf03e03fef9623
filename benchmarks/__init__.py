"""What the service costs, beside what the plain ways of doing the same cost."""
