"""The registry of storage backends: from a URL or a plain path to a backend.

Owns: the table of schemes and the errors for wrong URLs.  Must not know what a backend does.  A
backend's module is imported only when its scheme is used.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from os import PathLike, fspath
from typing import Any

from sparklog.config import nearest
from sparklog.errors import StorageError
from sparklog.storage_backends.base import FileHalf, StorageBackend, file_half

#: Scheme -> ``module:function``; the function takes the whole URL and the storage options.
SCHEMES: dict[str, str] = {
    "file": "sparklog.storage_backends.local:open_url",
    "memory": "sparklog.storage_backends.memory:open_url",
    "s3": "sparklog.storage_backends.s3:open_url",
    "s3a": "sparklog.storage_backends.s3:open_url",
}
#: ``fsspec+memory://`` is fsspec's memory store, ``memory://`` is ours.  Schemes that only fsspec
#: has need no prefix.
FSSPEC_PREFIX = "fsspec+"
FSSPEC_TARGET = "sparklog.storage_backends.object_store:open_url"

Factory = Callable[[str, Mapping[str, Any]], StorageBackend]


def register_scheme(scheme: str, target: str) -> None:
    """Add a scheme.

    Args:
        target: ``module:function``, imported at first use.

    Raises:
        StorageError: the scheme or the target is malformed.
    """
    if not scheme.isidentifier() or target.count(":") != 1:
        raise StorageError(f"{scheme!r} -> {target!r}: expected a scheme and 'module:function'")
    SCHEMES[scheme] = target


def open_backend(
    location: str | PathLike[str], options: Mapping[str, Any] | None = None
) -> StorageBackend:
    """The backend for ``s3://bucket/folder``, ``file:///data``, ``memory://name`` or ``/data``.

    Nothing is created or contacted.

    Args:
        options: the options of an object store (credentials, endpoint ...), or those of ``local``.

    Raises:
        StorageError: the URL is malformed or has an unknown scheme, or a package is missing.
    """
    text = fspath(location)
    if not text.strip():
        raise StorageError("an empty storage location; give a folder or a URL such as file:///data")
    scheme, separator, rest = text.partition("://")
    if not separator:
        return _factory("file", text)(_plain_path(text), options or {})
    url = f"{scheme.lower()}://{rest}"
    return _factory(scheme.lower(), url)(url, options or {})


def open_file_half(
    location: str | PathLike[str], options: Mapping[str, Any] | None = None
) -> FileHalf:
    """As ``open_backend``, but raises StorageError for stores without a file half."""
    return file_half(open_backend(location, options))


def require_conditional_create(location: str) -> None:
    """Refuse a location whose scheme has no store that creates a file only if it is absent.

    Journals and remote logs need such a store.  fsspec promises nothing of its stores, so a package
    that opens one would be installed in vain.  Nothing is imported or contacted, and a store that
    passes has yet to prove the condition (``proves_put_if_absent``).

    Raises:
        StorageError: names the schemes to choose from.
    """
    scheme, separator, _ = location.partition("://")
    if not separator or scheme.lower() in SCHEMES:
        return
    fit = sorted(SCHEMES.keys() - {"memory"})
    near = nearest(scheme.lower().removeprefix(FSSPEC_PREFIX), fit)
    raise StorageError(
        f"{location}: no store of {scheme}:// is known to create a file only if it is absent, "
        f"which is needed here; choose a folder or {', '.join(f'{name}://' for name in fit)}"
        + (f"; did you mean {near}://?" if near else "")
    )


def _plain_path(text: str) -> str:
    if text.startswith("file:"):
        raise StorageError(f"{text!r} is not a file URL; write file:///absolute/path")
    return text


def _factory(scheme: str, location: str) -> Factory:
    target = SCHEMES.get(scheme) or (FSSPEC_TARGET if _is_known_to_fsspec(scheme) else None)
    if target is None:
        near = nearest(scheme, SCHEMES)
        hint = f"; did you mean {near}://?" if near else ""
        known = ", ".join(f"{name}://" for name in sorted(SCHEMES))
        raise StorageError(
            f"{location}: no storage for {scheme}://; known are {known} and those of fsspec{hint}"
        )
    module_name, _, function_name = target.partition(":")
    try:
        module = import_module(module_name)
    except ImportError as error:
        raise StorageError(
            f"{location}: storage for {scheme}:// needs a package that is missing: {error}"
        ) from error
    factory: Factory = getattr(module, function_name)
    return factory


def _is_known_to_fsspec(scheme: str) -> bool:
    """Whether fsspec has a file system for this scheme, if need be with a further package."""
    from fsspec import available_protocols

    return scheme.removeprefix(FSSPEC_PREFIX) in available_protocols()
