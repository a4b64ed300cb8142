"""Errors of object stores and their libraries, translated to those of the storage contract.

Owns: the distinction between a missing name, a taken name, refused credentials and a silent store,
and the remedies.  Must not know any library: errors of botocore are recognized by their attributes.
"""

import errno
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sparklog.errors import StorageError
from sparklog.storage_backends.base import storage_error


@dataclass(frozen=True, slots=True)
class StoreResponse:
    """The error response of a store: HTTP status, error code and message; empty without any."""

    status: int = 0
    code: str = ""
    message: str = ""


def store_response(error: BaseException) -> StoreResponse:
    """The store's response behind an error, wherever in the chain a library has put it."""
    for link in _chain(error):
        response: Any = getattr(link, "response", None)
        if isinstance(response, dict) and isinstance(response.get("Error"), dict):
            details = response["Error"]
            status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            code, message = details.get("Code", ""), details.get("Message", "")
            return StoreResponse(int(status), str(code), str(message))
    return StoreResponse()


def is_missing(error: BaseException) -> bool:
    """Whether a name is missing.  A missing bucket is another error."""
    return isinstance(error, FileNotFoundError) and store_response(error).code != "NoSuchBucket"


def is_taken(error: BaseException) -> bool:
    """Whether a conditional create failed because the object exists, as stores report it."""
    return isinstance(error, FileExistsError) or store_response(error).status == 412


def is_conflict(error: BaseException) -> bool:
    """Whether another write to the same name was in progress, and this write was not done."""
    response = store_response(error)
    return response.status == 409 and response.code not in _NAMES_IN_THE_WAY


def object_error(action: str, where: str, error: Exception) -> StorageError:
    """The StorageError for an error of a library: action, object, reason and remedy."""
    response = store_response(error)
    reason = _reason(response, error)
    if reason is not None:
        return StorageError(f"cannot {action} {where}: {reason}")
    if response.code in _NAMES_IN_THE_WAY:
        return storage_error(
            action, where, OSError(_NAMES_IN_THE_WAY[response.code], response.message)
        )
    if is_missing(error):
        return storage_error(action, where, FileNotFoundError(errno.ENOENT, ""))
    if isinstance(error, OSError) and not response.code and error.errno is not None:
        return storage_error(action, where, error)
    if response.code:
        return StorageError(
            f"cannot {action} {where}: the store says {response.code}: {response.message}"
        )
    return StorageError(f"cannot {action} {where}: {type(error).__name__}: {error}")


def _reason(response: StoreResponse, error: Exception) -> str | None:
    if response.code == "NoSuchBucket":
        return "the bucket does not exist; create it, or correct the URL"
    if response.code == "NoSuchUpload":
        return "something else has aborted the upload; write the file again"
    if response.code in _EXPIRED_CREDENTIALS:
        return (
            f"the store refuses the credentials ({response.code}): they were temporary and have "
            "expired; start again with new ones, or use a role or profile, whose credentials are "
            "renewed"
        )
    if response.code in _WRONG_CLOCKS:
        return (
            f"the store refuses the time of the request ({response.code}): the clock of this host "
            "and that of the store differ by more than the store allows (S3: 15 minutes); set the "
            "clock, and keep it right (NTP)"
        )
    if response.code in _UNKNOWN_CREDENTIALS or isinstance(error, PermissionError):
        said = response.code if response.code and not response.code.isdigit() else "access denied"
        return (
            f"the store refuses the credentials ({said}); check key and secret "
            "(AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY) and what they may do in this bucket"
        )
    kinds = {kind.__name__ for link in _chain(error) for kind in type(link).__mro__}
    if kinds & _NO_CREDENTIALS:
        return (
            "no credentials were found; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give "
            "storage options"
        )
    if kinds & _SILENT:
        return (
            f"the store does not answer ({_words(error)}); check the endpoint "
            "(AWS_ENDPOINT_URL, or the storage option endpoint_url) and the network"
        )
    return None


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    for _ in range(_CHAIN_MAX):
        if error is None:
            return
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


_CHAIN_MAX = 10
#: Permanent conflicts (409): stores that keep objects as files cannot have both ``a`` and ``a/b``.
_NAMES_IN_THE_WAY = {
    "ObjectParentIsFile": errno.ENOTDIR,
    "ExistingObjectIsDirectory": errno.EISDIR,
}
_UNKNOWN_CREDENTIALS = frozenset(
    {"InvalidAccessKeyId", "SignatureDoesNotMatch", "XAdminUserNotFound"}
)
#: Of keys with a session token.  Nothing renews a token that was given as text.
_EXPIRED_CREDENTIALS = frozenset({"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired"})
_WRONG_CLOCKS = frozenset({"RequestTimeTooSkewed"})
_NO_CREDENTIALS = frozenset({"NoCredentialsError", "PartialCredentialsError"})
_SILENT = frozenset({"HTTPClientError", "ConnectionError", "TimeoutError", "ClientConnectorError"})
