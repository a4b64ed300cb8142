"""The checked-in messages are what the generator writes."""

import subprocess
import sys

from sparklog.wire.protocol.generate import APIS, FOLDER, generate
from sparklog.wire.protocol.messages import APIS as INDEX


def test_the_checked_in_messages_are_up_to_date() -> None:
    """Run ``python -m sparklog.wire.protocol.generate`` when this fails."""
    files = generate()
    assert {path.name for path in FOLDER.glob("*.py")} == set(files)
    for name, text in files.items():
        assert (FOLDER / name).read_text() == text, name


def test_every_api_is_in_the_index() -> None:
    assert sorted(entry.module for entry in INDEX.values()) == sorted(APIS)


def test_the_codec_runs_without_kio() -> None:
    """kio's native reader aborts the process on a wrong length, so no server may load it."""
    code = (
        "import sys\n"
        "from sparklog.wire.protocol import codec, messages\n"
        "for key in messages.APIS: codec.request_type(key), codec.response_type(key)\n"
        "import sparklog.wire.protocol.produce, sparklog.wire.protocol.fetch\n"
        "import sparklog.wire.framing.frames\n"
        "print(sorted(name for name in sys.modules if name.split('.')[0] in ('kio', 'hypothesis')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"
