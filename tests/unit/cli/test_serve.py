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
    opening = ("--storage-option", "key=k", "--storage-option", "endpoint_url=http://h:1/a=b")
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
            "storage_options": {"key": "k", "endpoint_url": "http://h:1/a=b"},
        }
    ]
    out, errors = capsys.readouterr()
    assert out == ""
    assert "remote_dir=s3://bucket/log cannot be used: the bucket does not exist" in errors
