"""The store of a daemon without a `state` section: history lives as long as the process."""

from sexton.store.memory.store import MemoryStore

__all__ = ["MemoryStore"]
