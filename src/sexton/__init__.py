"""Sexton: a job scheduler that starts runs on time and buries its dead."""

__version__ = "0.1.0"
