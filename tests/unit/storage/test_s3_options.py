"""Storage options of S3: wrong ones are named before anything is asked of a bucket."""

import inspect
from typing import Any

import pytest
from s3fs import S3FileSystem

from sparklog.errors import StorageError
from sparklog.storage_backends.registry import open_backend
from sparklog.storage_backends.s3 import S3Store
from sparklog.storage_backends.s3_options import NOT_OPTIONS, OPTIONS, option_value

SECRET = "hunter2"
TEXT_FOR_MAPPING = 'a mapping, which a command line writes as JSON: {"NAME": VALUE}, not a text'


def refusal(options: dict[str, Any]) -> str:
    with pytest.raises(StorageError) as refused:
        open_backend("s3://bucket/log", options)
    message = str(refused.value)
    assert message.startswith("s3://bucket/log: ")
    return message.removeprefix("s3://bucket/log: ")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"anon": "false"}, "anon: expected true or false, not a text"),
        ({"use_ssl": 0}, "use_ssl: expected true or false, not a number"),
        ({"max_concurrency": "4"}, "max_concurrency: expected a whole number, not a text"),
        ({"max_concurrency": True}, "max_concurrency: expected a whole number, not a boolean"),
        ({"config_kwargs": "x"}, f"config_kwargs: expected {TEXT_FOR_MAPPING}"),
        ({"client_kwargs": '{"a": 1}'}, f"client_kwargs: expected {TEXT_FOR_MAPPING}"),
        ({"secret": 5}, "secret: expected a text, not a number"),
        ({"key": ["k"]}, "key: expected a text, not a value of type list"),
        ({"client_kwargs": {"use_ssl": "no"}}, "client_kwargs: use_ssl: expected true or false"),
        ({"client_kwargs": {"regoin_name": 1}}, "there is no regoin_name in it; did you mean reg"),
        ({"client_kwargs": {"a": 1}}, "there is no a in it; known are api_version, aws_access"),
        ({"config_kwargs": {"read_timeout": "5"}}, "config_kwargs: read_timeout: expected a num"),
        ({"config_kwargs": {"retries": {"max_attempts": "x"}}}, "retries: max_attempts: expected"),
        ({"config_kwargs": {"a": 1}}, "config_kwargs: Got unexpected keyword argument 'a'"),
        ({"config_kwargs": {"s3": {"addressing_style": "x"}}}, "S3 addressing style x is invalid"),
        ({"endpoint_url": "localhost:9000"}, "endpoint_url: expected a URL such as http://HOST"),
        ({"endpoint_url": "http://:x"}, "endpoint_url: expected a URL such as http://HOST:PORT"),
        ({"endpoint_url": 9000}, "endpoint_url: expected a URL such as .*, not a number"),
    ],
)
def test_an_option_of_the_wrong_type_is_named(options: dict[str, Any], message: str) -> None:
    text = refusal(options)
    assert text.startswith("storage option ")
    before, wildcard, behind = message.partition(".*")
    assert before in text
    assert not wildcard or text.endswith(behind)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("endpoint", "endpoint_url"),
        ("endpont_url", "endpoint_url"),
        ("Anon", "anon"),
        ("aws_access_key_id", "key"),
        ("secret_key", "secret"),
        ("session_token", "token"),
        ("region", 'client_kwargs={"region_name": ...}'),
    ],
)
def test_a_misspelt_option_is_refused_with_the_name_that_was_meant(name: str, meant: str) -> None:
    assert refusal({name: SECRET}) == f"there is no storage option {name}; did you mean {meant}?"


@pytest.mark.parametrize("name", ["zzz", "session", "loop", "self", 5])
def test_an_unknown_option_is_refused_with_the_known_ones(name: Any) -> None:
    text = refusal({name: SECRET})
    assert text.startswith(f"there is no storage option {name}; known are anon, cache_regions, ")


@pytest.mark.parametrize("name", [*OPTIONS, "zzz"])
def test_no_error_shows_a_value(name: str) -> None:
    assert SECRET not in refusal({name: [SECRET]})
    assert SECRET not in refusal({name: SECRET, "max_concurrency": SECRET})


def test_a_refusal_of_the_file_system_is_passed_on() -> None:
    assert "max_concurrency must be >= 1" in refusal({"max_concurrency": 0})
    assert "either key or username, not both" in refusal({"key": "a", "username": "b"})


def test_right_options_open_a_bucket() -> None:
    options = {
        "anon": False,
        "key": None,
        "use_ssl": None,
        "client_kwargs": {"region_name": "eu-west-1", "verify": False},
        "config_kwargs": {"read_timeout": 1.5, "retries": {"mode": "standard"}, "proxies": None},
        "max_concurrency": 4,
        "skip_instance_cache": False,
    }
    store = open_backend("s3://bucket/log", options)
    assert isinstance(store, S3Store)
    made = store._file_system
    assert (made.use_ssl, made.max_concurrency, made.anon) == (True, 4, False)
    assert made.config_kwargs["read_timeout"] == 1.5
    assert made.config_kwargs["connect_timeout"] == 5


def test_every_option_of_the_library_is_known() -> None:
    names = inspect.signature(S3FileSystem.__init__).parameters.keys()
    assert names - OPTIONS.keys() == NOT_OPTIONS


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("anon", "false", False),
        ("anon", "True", True),
        ("anon", "no", "no"),
        ("max_concurrency", "4", 4),
        ("config_kwargs", '{"read_timeout": 5}', {"read_timeout": 5}),
        ("config_kwargs", "{'a': 1}", "{'a': 1}"),
        ("client_kwargs", "null", None),
        ("key", "0123456789", "0123456789"),
        ("secret", "true", "true"),
        ("token", "null", "null"),
        ("profile", "7", "7"),
        ("endpoint_url", "1", "1"),
        ("account_key", "123", "123"),
        ("timeout", "1.5", 1.5),
        ("name_of_another_store", "x", "x"),
        ("list", "[1]", "[1]"),
        ("quoted", '"x"', '"x"'),
        ("constant", "NaN", "NaN"),
        ("deep", '{"a":' * 100_000, '{"a":' * 100_000),
        ("long", "9" * 10_000, "9" * 10_000),
    ],
)
def test_a_text_stands_for_what_its_option_takes(name: str, text: str, value: object) -> None:
    found = option_value(name, text)
    assert (type(found), found) == (type(value), value)


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("fsspec+dir://x/y", {"fs": 5}),
        ("fsspec+zip://x/y", {"fo": "/no/such/file"}),
        ("fsspec+s3://bucket/y", {"key": "a", "username": "b"}),
    ],
)
def test_other_file_systems_that_refuse_their_options_are_named(
    url: str, options: dict[str, Any]
) -> None:
    with pytest.raises(StorageError) as refused:
        open_backend(url, options)
    assert str(refused.value).startswith(f"{url} cannot be opened by fsspec: ")
