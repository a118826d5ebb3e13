"""aiohttp without its client. The package imports both, and the client is a quarter of the time and of the memory that
aiohttp costs each start, for nothing: the daemon asks nobody over HTTP by it."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from types import ModuleType


class _Package(ModuleType):
    """Finds submodules. Whoever wants more of the package gets all of it: it is imported then."""

    def __getattr__(self, name: str) -> object:
        if name.startswith("__") or self.__spec__ is None or self.__spec__.loader is None:
            raise AttributeError(name)
        try:
            return import_module(f"{self.__name__}.{name}")
        except ModuleNotFoundError:
            self.__class__ = ModuleType  # type: ignore[assignment]  # from here on it is as any other
            self.__spec__.loader.exec_module(self)
            return getattr(self, name)


def import_http_server() -> None:
    """Import `aiohttp.web` alone, if nothing of aiohttp is imported yet."""
    spec = None if "aiohttp" in sys.modules else find_spec("aiohttp")
    if spec is not None:
        package = module_from_spec(spec)
        package.__class__ = _Package
        package.__version__ = ""  # type: ignore[attr-defined]  # for the header Server, which no answer of ours has
        sys.modules["aiohttp"] = package
    import_module("aiohttp.web")
