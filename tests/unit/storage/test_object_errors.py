"""The words for errors of an object store, by the code that the store answered."""

import pytest

from sparklog.storage_backends.object_errors import object_error


class AnsweredError(PermissionError):
    """An error as the library raises it for an answer of the store."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.response = {
            "Error": {"Code": code, "Message": "no"},
            "ResponseMetadata": {"HTTPStatusCode": 400},
        }


def words(code: str) -> str:
    return str(object_error("read", "s3://bucket/x", AnsweredError(code)))


@pytest.mark.parametrize("code", ["ExpiredToken", "TokenRefreshRequired"])
def test_credentials_that_have_expired_are_named_with_the_remedy(code: str) -> None:
    assert words(code) == (
        f"cannot read s3://bucket/x: the store refuses the credentials ({code}): they were "
        "temporary and have expired; start again with new ones, or use a role or profile, whose "
        "credentials are renewed"
    )


def test_a_clock_that_is_wrong_is_named() -> None:
    assert words("RequestTimeTooSkewed") == (
        "cannot read s3://bucket/x: the store refuses the time of the request "
        "(RequestTimeTooSkewed): the clock of this host and that of the store differ by more than "
        "the store allows (S3: 15 minutes); set the clock, and keep it right (NTP)"
    )


def test_credentials_that_are_wrong_are_to_be_checked() -> None:
    assert "(InvalidAccessKeyId); check key and secret" in words("InvalidAccessKeyId")
    assert "(AccessDenied); check key and secret" in words("AccessDenied")
