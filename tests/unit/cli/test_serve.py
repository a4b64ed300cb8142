"""``sparklog serve``: what it asks of the cluster."""

from pathlib import Path
from typing import Any

import pytest

from sparklog.cli.app import run
from sparklog.errors import StartError


def test_the_places_of_a_cluster_and_what_opens_them_are_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[dict[str, Any]] = []

    def refuse(**options: Any) -> None:
        asked.append(options)
        raise StartError("remote_dir=s3://bucket/log cannot be used: the bucket does not exist")

    monkeypatch.setattr("sparklog.cluster.start_processes", refuse)
    places = ("--data-dir", str(tmp_path), "--remote-dir", "s3://bucket/log")
    pairs = ("key=12", "endpoint_url=http://h:1/a=b", "anon=false", 'client_kwargs={"verify": 1}')
    opening = [each for pair in pairs for each in ("--storage-option", pair)]
    assert run(["serve", "--engine", "process", *places, *opening]) == 1
    assert asked == [
        {
            "brokers": 3,
            "spares": 0,
            "data_dir": [tmp_path],
            "journal_dir": None,
            "remote_dir": "s3://bucket/log",
            "host": "127.0.0.1",
            "port": 9092,
            "settings": {},
            "storage_options": {
                "key": "12",
                "endpoint_url": "http://h:1/a=b",
                "anon": False,
                "client_kwargs": {"verify": 1},
            },
        }
    ]
    out, errors = capsys.readouterr()
    assert out == ""
    assert "remote_dir=s3://bucket/log cannot be used: the bucket does not exist" in errors


def test_a_storage_option_without_a_name_is_refused_without_showing_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    opening = ("--storage-option", "key=k", "--storage-option", "hunter2")
    assert run(["serve", "--data-dir", str(tmp_path), *opening]) == 2
    errors = capsys.readouterr().err
    assert "number 2 is not NAME=VALUE" in errors
    assert "hunter2" not in errors


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        ("config_kwargs=hunter2", "storage option config_kwargs: expected a mapping"),
        ("endpoint=hunter2", "no storage option endpoint; did you mean endpoint_url?"),
        ("anon=hunter2", "storage option anon: expected true or false, not a text"),
    ],
)
def test_a_wrong_storage_option_is_named_without_its_value(
    pair: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["journal", "check", "s3://bucket/journal", "--storage-option", pair]) == 1
    errors = capsys.readouterr().err
    assert message in errors
    assert "hunter2" not in errors
    assert "Traceback" not in errors
