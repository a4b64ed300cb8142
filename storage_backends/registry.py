"""From a URL or a plain path to a backend.

Owns: the table of schemes and the errors for wrong URLs.  Must not know what a backend does; a
backend's module is imported only when its scheme is asked for.
"""

from collections.abc import Callable
from importlib import import_module
from os import PathLike, fspath

from sparklog.config import nearest
from sparklog.errors import StorageError
from sparklog.storage_backends.base import FileHalf, StorageBackend, file_half

#: Scheme -> ``module:function``; the function takes the whole URL.
SCHEMES: dict[str, str] = {
    "file": "sparklog.storage_backends.local:open_url",
    "memory": "sparklog.storage_backends.memory:open_url",
}


def register_scheme(scheme: str, target: str) -> None:
    """Add a scheme; ``target`` is ``module:function`` and imported on first use."""
    if not scheme.isidentifier() or target.count(":") != 1:
        raise StorageError(f"{scheme!r} -> {target!r}: expected a scheme and 'module:function'")
    SCHEMES[scheme] = target


def open_backend(location: str | PathLike[str]) -> StorageBackend:
    """The backend for ``file:///data``, ``memory://name``, ``/data`` or ``data``.

    Nothing is created or contacted.  Raises StorageError for an unknown scheme, naming the known.
    """
    text = fspath(location)
    if not text.strip():
        raise StorageError("an empty storage location; give a folder or a URL such as file:///data")
    scheme, separator, rest = text.partition("://")
    if not separator:
        return _factory("file", text)(_plain_path(text))
    url = f"{scheme.lower()}://{rest}"
    return _factory(scheme.lower(), url)(url)


def open_file_half(location: str | PathLike[str]) -> FileHalf:
    """As ``open_backend``, refusing stores that have no files."""
    return file_half(open_backend(location))


def _plain_path(text: str) -> str:
    if text.startswith("file:"):
        raise StorageError(f"{text!r} is not a file URL; write file:///absolute/path")
    return text


def _factory(scheme: str, location: str) -> Callable[[str], StorageBackend]:
    target = SCHEMES.get(scheme)
    if target is None:
        near = nearest(scheme, SCHEMES)
        hint = f"; did you mean {near}://?" if near else ""
        known = ", ".join(f"{name}://" for name in sorted(SCHEMES))
        raise StorageError(f"{location}: no storage for {scheme}://; known are {known}{hint}")
    module_name, _, function_name = target.partition(":")
    try:
        module = import_module(module_name)
    except ImportError as error:
        raise StorageError(
            f"{location}: storage for {scheme}:// needs a package that is missing: {error}"
        ) from error
    factory: Callable[[str], StorageBackend] = getattr(module, function_name)
    return factory
