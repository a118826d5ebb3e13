"""The store for several nodes that share a mount: one small file for each fact."""

from sexton.store.directory.store import DirectoryStore

__all__ = ["DirectoryStore"]
