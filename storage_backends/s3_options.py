"""Storage options of S3: their names and types, the texts of a command line, and the errors.

Owns: which options there are, the check of their types, and what each text stands for.  Must not
know s3fs, or what an option does.

Without the check, wrong options fail somewhere in the libraries, or are taken for something else:
the text ``false`` counts as true there.  No error shows a value, because it may be a secret, or
stand where a secret was meant.
"""

import json
from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Any, Final
from urllib.parse import urlsplit

from sparklog.config import nearest
from sparklog.errors import StorageError


class Kind(StrEnum):
    """The type of an option; the value is its name in errors."""

    TEXT = "a text"
    URL = "a URL such as http://HOST:PORT or https://HOST"
    BOOLEAN = "true or false"
    NUMBER = "a number"
    WHOLE_NUMBER = "a whole number"
    MAPPING = 'a mapping, which a command line writes as JSON: {"NAME": VALUE}'


#: The options of ``S3FileSystem`` and of the session that it makes.
OPTIONS: Final[Mapping[str, Kind]] = {
    "anon": Kind.BOOLEAN,
    "cache_regions": Kind.BOOLEAN,
    "client_kwargs": Kind.MAPPING,
    "config_kwargs": Kind.MAPPING,
    "default_block_size": Kind.WHOLE_NUMBER,
    "default_cache_type": Kind.TEXT,
    "default_fill_cache": Kind.BOOLEAN,
    "endpoint_url": Kind.URL,
    "fixed_upload_size": Kind.BOOLEAN,
    "key": Kind.TEXT,
    "listings_expiry_time": Kind.NUMBER,
    "local_expiry_check": Kind.BOOLEAN,
    "max_concurrency": Kind.WHOLE_NUMBER,
    "max_paths": Kind.WHOLE_NUMBER,
    "password": Kind.TEXT,
    "profile": Kind.TEXT,
    "requester_pays": Kind.BOOLEAN,
    "s3_additional_kwargs": Kind.MAPPING,
    "secret": Kind.TEXT,
    "skip_instance_cache": Kind.BOOLEAN,
    "token": Kind.TEXT,
    "use_listings_cache": Kind.BOOLEAN,
    "use_ssl": Kind.BOOLEAN,
    "username": Kind.TEXT,
    "version_aware": Kind.BOOLEAN,
}
#: Arguments of ``S3FileSystem`` that are no options: values of Python, and what its caller decides.
NOT_OPTIONS: Final = frozenset({"asynchronous", "kwargs", "loop", "self", "session"})
#: What may be in ``client_kwargs``.
CLIENT_OPTIONS: Final[Mapping[str, Kind | None]] = {
    "api_version": Kind.TEXT,
    "aws_access_key_id": Kind.TEXT,
    "aws_account_id": Kind.TEXT,
    "aws_secret_access_key": Kind.TEXT,
    "aws_session_token": Kind.TEXT,
    "endpoint_url": Kind.URL,
    "region_name": Kind.TEXT,
    "use_ssl": Kind.BOOLEAN,
    "verify": None,  # a boolean, or the file of the certificates
}
#: Some of what may be in ``config_kwargs``; botocore's ``Config`` checks the names.
CONFIG_OPTIONS: Final[Mapping[str, Kind]] = {
    "connect_timeout": Kind.NUMBER,
    "max_pool_connections": Kind.WHOLE_NUMBER,
    "proxies": Kind.MAPPING,
    "read_timeout": Kind.NUMBER,
    "region_name": Kind.TEXT,
    "retries": Kind.MAPPING,
    "s3": Kind.MAPPING,
}
#: What may be in ``retries`` in ``config_kwargs``; botocore checks the names.
RETRY_OPTIONS: Final[Mapping[str, Kind]] = {
    "max_attempts": Kind.WHOLE_NUMBER,
    "mode": Kind.TEXT,
    "total_max_attempts": Kind.WHOLE_NUMBER,
}
#: How other tools call an option -> how it is given here.
OTHER_NAMES: Final[Mapping[str, str]] = {
    "access_key": "key",
    "aws_access_key_id": "key",
    "aws_secret_access_key": "secret",
    "aws_session_token": "token",
    "endpoint": "endpoint_url",
    "host": "endpoint_url",
    "region": 'client_kwargs={"region_name": ...}',
    "region_name": 'client_kwargs={"region_name": ...}',
    "secret_key": "secret",
    "session_token": "token",
    "ssl": "use_ssl",
    "url": "endpoint_url",
    "verify": 'client_kwargs={"verify": ...}',
}
#: An option of another store is a text if one of these is a word in its name.
_WORDS_OF_TEXTS: Final = frozenset(
    {"id", "key", "name", "passphrase", "password", "profile", "secret", "token", "url", "user"}
)


def option_value(name: str, text: str) -> Any:
    """The value that a command line means by ``name=text``.

    Keys and secrets stay texts, even if they look like numbers.  Other options are what they are as
    JSON (boolean, number, mapping or null), or else the text itself.
    """
    kind = OPTIONS.get(name)
    if kind in (Kind.TEXT, Kind.URL):
        return text
    if kind is None and _WORDS_OF_TEXTS & set(name.lower().split("_")):
        return text
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return text
    return text if isinstance(value, str | list) else value


def checked_options(
    options: Mapping[str, Any], further_names: Collection[str] = ()
) -> dict[str, Any]:
    """A copy of the options, without those that are None and mean the default.

    Args:
        options: the storage options of S3.
        further_names: names of options that this module does not know, and does not check.

    Raises:
        StorageError: an option is unknown, or has the wrong type; the message names it.
    """
    for name, value in options.items():
        if name not in OPTIONS and (name not in further_names or name in NOT_OPTIONS):
            raise StorageError(f"there is no storage option {name}{_hint(name)}")
        _check(name, value, OPTIONS.get(name))
    for name, value in (options.get("client_kwargs") or {}).items():
        if name not in CLIENT_OPTIONS:
            near = nearest(str(name), CLIENT_OPTIONS)
            hint = f"did you mean {near}?" if near else f"known are {', '.join(CLIENT_OPTIONS)}"
            raise StorageError(f"storage option client_kwargs: there is no {name} in it; {hint}")
        _check(f"client_kwargs: {name}", value, CLIENT_OPTIONS[name])
    config = options.get("config_kwargs") or {}
    for name, value in config.items():
        _check(f"config_kwargs: {name}", value, CONFIG_OPTIONS.get(name))
    for name, value in (config.get("retries") or {}).items():
        _check(f"config_kwargs: retries: {name}", value, RETRY_OPTIONS.get(name))
    # None is the default of texts, and takes precedence over what the environment says.
    return {
        name: value or None if OPTIONS.get(name) is Kind.URL else value
        for name, value in options.items()
        if value is not None or OPTIONS.get(name) in (Kind.TEXT, Kind.URL)
    }


def _hint(name: str) -> str:
    meant = OTHER_NAMES.get(str(name).lower()) or nearest(str(name), OPTIONS)
    return f"; did you mean {meant}?" if meant else f"; known are {', '.join(OPTIONS)}"


def _check(name: str, value: Any, kind: Kind | None) -> None:
    if value is None or kind is None or (kind is Kind.URL and value == ""):
        return
    if kind is Kind.URL and isinstance(value, str):
        fits = _is_url(value)
        found = "another text"
    else:
        fits = isinstance(value, _TYPES[kind]) and (
            kind is Kind.BOOLEAN or not isinstance(value, bool)
        )
        found = _described(value)
    if not fits:
        raise StorageError(f"storage option {name}: expected {kind}, not {found}")


_TYPES: Final[Mapping[Kind, type[Any] | tuple[type[Any], ...]]] = {
    Kind.TEXT: str,
    Kind.URL: str,
    Kind.BOOLEAN: bool,
    Kind.NUMBER: (int, float),
    Kind.WHOLE_NUMBER: int,
    Kind.MAPPING: Mapping,
}


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and port != 0


def _described(value: Any) -> str:
    """The type of a value, without the value."""
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, str):
        return "a text"
    if isinstance(value, int | float):
        return "a number"
    return "a mapping" if isinstance(value, Mapping) else f"a value of type {type(value).__name__}"


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")
