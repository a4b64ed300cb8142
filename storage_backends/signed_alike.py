"""URLs of many objects of a bucket, signed after the pattern of one that a library has signed.

Owns: the signature of AWS, version 4, of a GET whose parameters are in the query.  Must not know
where credentials come from.

A plan of a DataFrame needs two URLs for each of its segments, and botocore takes 0.3 ms to find the
endpoint and the parameters of each one again.  Here the library finds them once.  It also proves
the rest: unless the first URL comes out as the library has signed it, nothing is signed here.

Source: "Authenticating Requests: Using Query Parameters (AWS Signature Version 4)", Amazon S3 API.
"""

import hashlib
import hmac
import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import unquote, urlsplit

_ALGORITHM: Final = "AWS4-HMAC-SHA256"
_SIGNATURE: Final = "X-Amz-Signature"
#: Paths that are the same in a URL.
_PLAIN: Final = re.compile(r"[A-Za-z0-9._~/-]+")


def sign_alike(url: str, path: str, others: Iterable[str], secret_key: str) -> list[str] | None:
    """The URLs of other files of the folder in which ``path`` has the signed ``url``.

    They are good for as long as that one.  None: a library has to sign them, because it signs
    otherwise, or with another key.
    """
    signer = _Signer.of(url, path, secret_key)
    names = list(others)
    if signer is None or signer.sign(path) != url or not all(map(_PLAIN.fullmatch, names)):
        return None
    return [signer.sign(name) for name in names]


class _Signer:
    def __init__(self, base: str, host: str, folder: str, query: str, key: bytes) -> None:
        parameters = dict(each.partition("=")[::2] for each in query.split("&"))
        parameters.pop(_SIGNATURE, None)
        self._base = f"{base}{folder}"
        self._folder = folder
        self._query = "&".join(f"{name}={value}" for name, value in parameters.items())
        canonical = "&".join(f"{name}={value}" for name, value in sorted(parameters.items()))
        self._behind_the_path = f"\n{canonical}\nhost:{host}\n\nhost\nUNSIGNED-PAYLOAD"
        scope = unquote(parameters["X-Amz-Credential"]).split("/", 1)[1]
        self._before_the_hash = f"{_ALGORITHM}\n{parameters['X-Amz-Date']}\n{scope}\n"
        for part in scope.split("/"):
            key = hmac.digest(key, part.encode(), "sha256")
        self._key = key

    @classmethod
    def of(cls, url: str, path: str, secret_key: str) -> "_Signer | None":
        parts = urlsplit(url)
        if not _PLAIN.fullmatch(path) or not parts.path.endswith(f"/{path}"):
            return None
        folder = parts.path.removesuffix(path)
        base, key = f"{parts.scheme}://{parts.netloc}", f"AWS4{secret_key}".encode()
        try:
            return cls(base, parts.netloc, folder, parts.query, key)
        except LookupError:  # signed in another way
            return None

    def sign(self, path: str) -> str:
        request = f"GET\n{self._folder}{path}{self._behind_the_path}"
        digest = hashlib.sha256(request.encode()).hexdigest()
        signed = f"{self._before_the_hash}{digest}".encode()
        signature = hmac.digest(self._key, signed, "sha256").hex()
        return f"{self._base}{path}?{self._query}&{_SIGNATURE}={signature}"
