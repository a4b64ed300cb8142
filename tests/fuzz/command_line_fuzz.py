"""``python -m tests.fuzz.command_line_fuzz --seconds N``: argument lists that nobody meant.

Runs the command line in this process, against a cluster of one broker that runs on another thread,
with argument lists made from the commands' own parameters and files of any bytes.  Whatever comes
in, a command ends with a documented exit code, an error says something, and nothing is a traceback.
The same seed gives the same lists.
"""

import argparse
import io
import json
import os
import random
import shutil
import signal
import struct
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparklog.cli import topics as topics_module
from sparklog.cli.app import run
from sparklog.cli.output import BOOTSTRAP_VARIABLE, EXIT_CODES
from sparklog.client.event_loop_thread import EventLoopThread
from sparklog.driver.control_plane.journal import commit_name
from tests.support.command_table import Parameter, all_commands
from tests.unit.executors.broker.broker_rig import Rig

ROOT = Path(__file__).resolve().parents[2]

#: One command that takes longer hangs.
COMMAND_SECONDS_MAX = 20
#: How long admin commands look for a cluster that is not there.
ADMIN_SECONDS = 2.0
#: Starts Spark, whatever its arguments are.
LEFT_OUT = frozenset({("demo",)})

NUMBERS = (
    *("3", "-1", "-2", "2147483647", "2147483648", "9223372036854775807"),
    *("9223372036854775808", "9" * 20, "9" * 5000, "-" + "9" * 30, "1e3", "0x10", "1_0", "٣", "²"),
    *("", " ", "1 ", "NaN", "inf", "1.5", "--", "t", "+1", "007"),
)
TEXTS = (
    *("t", "t", "u", "none", "", " ", ".", "..", "t-0", "a b", "a" * 249, "a" * 300, "a" * 40_000),
    *("ü", "\u202e", "🦀", "\udcff", "\n", "\t", "-", "--", "-x", "*", "__consumer_offsets", "%s"),
    *("[red]", "{}", "'", '"', "\\", "/", "../..", "NAME=VALUE", "=", "=x", "x=", "[/red]"),
)
ADDRESSES = (
    *("[::1", "::1]", "[]:1", "[::1]:", ":9", "9", "a..b:1", "host:port", "127.0.0.1:99999", ","),
    *("127.0.0.1:٣", "127.0.0.1:-1", "", " ", "http://h:1", "h h:1", "a" * 300 + ":9", "ü" * 64),
    *(f"{'ü' * 64}:9", "h:9" * 3, "\udcff:9", "[h]:9:9", ",,:1", "h:²"),
)
PAIRS = ("retention.ms=1", "retention.ms=x", "x=y", "=", "x", "", "a=b=c", "retention.ms=", "ü=ü")


@dataclass(frozen=True, slots=True, kw_only=True)
class Find:
    """What must not happen, and the arguments that did it."""

    arguments: list[str]
    what: str


class Fuzzer:
    """``address`` is the cluster's; ``folder`` takes files."""

    def __init__(self, seed: int, address: str, folder: Path) -> None:
        self.runs = 0
        self.codes: dict[int, int] = {}
        self.commands: dict[str, int] = {}
        self._seed = seed
        self._address = address
        self._folder = folder
        self._all = [each for each in all_commands() if each.path not in LEFT_OUT]

    def run_one(self) -> Find | None:
        """The next argument list of this seed."""
        stream = random.Random(f"{self._seed} {self.runs}")
        self.runs += 1
        _make_files(stream, self._folder)
        arguments = self._arguments(stream)
        stdin = self._folder / stream.choice(("lines", "bytes", "empty", "plan", "plan"))
        code, out, errors = run_command(arguments, stdin)
        if isinstance(code, str):
            return Find(arguments=arguments, what=code)
        self.codes[code] = self.codes.get(code, 0) + 1
        what = _judge(arguments, code, out, errors)
        return Find(arguments=arguments, what=what) if what else None

    def _arguments(self, stream: random.Random) -> list[str]:
        command = stream.choice(self._all)
        name = " ".join(command.path)
        self.commands[name] = self.commands.get(name, 0) + 1
        arguments = list(command.path)
        for parameter in command.parameters:
            for _ in range(_times(stream, parameter)):
                arguments += self._given(stream, parameter, command.path)
        if stream.random() < 0.1:
            at = stream.randint(len(command.path), len(arguments))
            odd = ("--nope", "-h", "--help", "--", "-", "-zzz", "extra", "--json=", "-b")
            arguments.insert(at, stream.choice(odd))
        return [*arguments, *self._bounds(command.path)]

    def _bounds(self, path: tuple[str, ...]) -> list[str]:
        """What keeps a command from running for ever, or from starting a cluster."""
        if path == ("consume",):
            return ["-e"]
        if path == ("serve",):
            return ["--engine", "process"]
        return []

    def _given(
        self, stream: random.Random, parameter: Parameter, path: tuple[str, ...]
    ) -> list[str]:
        if path == ("serve",) and parameter.name in ("data_dir", "engine"):
            # A file: no cluster starts there.
            return ["--data-dir", str(self._folder / "bytes")]
        value = self._value(stream, parameter)
        if not parameter.names:
            return [value]
        if parameter.kind is bool:
            return [stream.choice((*parameter.names, *parameter.off_names))]
        name = stream.choice(parameter.names)
        if name.startswith("--") and stream.random() < 0.3:
            return [f"{name}={value}"]
        return [name, value]

    def _value(self, stream: random.Random, parameter: Parameter) -> str:
        if stream.random() < 0.02:
            return stream.choice((*TEXTS, *NUMBERS))
        is_plain = stream.random() < 0.7  # else most lists would end at their first value
        if parameter.name == "bootstrap":
            return self._address if is_plain else stream.choice(ADDRESSES)
        if parameter.name == "plan":
            return "-" if is_plain else str(self._folder / "plan")
        if parameter.kind is Path or parameter.name in ("journal", "journal_dir"):
            return str(self._folder / stream.choice(sorted(os.listdir(self._folder))))
        if parameter.choices:
            return stream.choice(parameter.choices if is_plain else ("nope", ""))
        if parameter.kind is int:
            return stream.choice(("0", "1", "2") if is_plain else NUMBERS)
        if parameter.name in ("config", "settings", "storage_options"):
            return stream.choice(PAIRS)
        if parameter.name == "brokers":
            return stream.choice((*NUMBERS, "1,1", "1,9", ",", "1,", "1,²"))
        return "t" if is_plain else stream.choice(TEXTS)


def _times(stream: random.Random, parameter: Parameter) -> int:
    """How often a parameter is given."""
    if parameter.names:
        return 0 if stream.random() < 0.6 else stream.choice((1, 1, 1, 2))
    several = stream.choice((1, 1, 1, 2, 3)) if parameter.repeats else 1
    return 0 if stream.random() < 0.1 else several


def run_command(arguments: list[str], stdin: Path) -> tuple[int | str, str, str]:
    """Exit code (or a traceback, as text), output and errors."""
    out, errors = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    before = sys.stdin
    code: int | str
    signal.signal(signal.SIGALRM, _on_alarm)
    signal.alarm(COMMAND_SECONDS_MAX)
    try:
        with stdin.open() as sys.stdin, redirect_stdout(out), redirect_stderr(errors):
            code = run(arguments)
    except BaseException:
        code = traceback.format_exc()
    finally:
        signal.alarm(0)
        sys.stdin = before
    told = [each.buffer.getvalue().decode(errors="replace") for each in (out, errors)]  # type: ignore[attr-defined]
    return code, told[0], told[1]


def _on_alarm(_number: int, _frame: object) -> None:
    raise TimeoutError(f"a command runs for more than {COMMAND_SECONDS_MAX} s")


def _judge(arguments: list[str], code: int, out: str, errors: str) -> str:
    """What is wrong with an outcome; empty for nothing."""
    if code not in EXIT_CODES:
        return f"exit code {code} is not documented"
    if "Traceback" in out or "Traceback" in errors:
        return f"a traceback was printed: {errors}"
    if code and not (errors.strip() or out.strip()):
        return f"exit code {code} without a word"
    machine = "--json" in arguments and "--" not in arguments and arguments[0] != "dump"
    if not code and machine and not {"-h", "--help"} & set(arguments):
        try:
            json.loads(out)
        except ValueError:
            return f"--json printed {out[:200]!r}"
    return ""


# -- files


def _make_files(stream: random.Random, folder: Path) -> None:
    """The same names every time, with other contents."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "empty").write_bytes(b"")
    (folder / "bytes").write_bytes(stream.randbytes(stream.choice((1, 7, 300))))
    lines = (b"a", b"", b"k:v", b"\xff\0", b"x" * 3_000)
    (folder / "lines").write_bytes(b"\n".join(stream.choices(lines, k=stream.randint(0, 6))))
    (folder / "plan").write_bytes(_plan(stream))
    base = f"{stream.choice((0, 7, 10**19)):020d}"
    for suffix in (".log", ".index", ".timeindex", ".txnindex", ".stats", ".snapshot"):
        (folder / f"{base}{suffix}").write_bytes(_any_bytes(stream))
    for name in ("leader-epoch-checkpoint", "partition.metadata", "notes.txt"):
        (folder / name).write_bytes(_any_bytes(stream))
    for name in ("journal", "data"):
        _make_journal(stream, folder / name / ("journal" if name == "data" else ""))


def _any_bytes(stream: random.Random) -> bytes:
    return stream.choice(
        (
            b"",
            stream.randbytes(stream.randint(1, 200)),
            bytes(stream.randint(1, 200)),
            struct.pack(">qiib", 0, stream.choice((49, 2**31 - 1, -1)), 0, 2) + bytes(60),
            b"0\n1\n0 0\n",
            b"version: 0\ntopic_id: x\n",
        )
    )


def _plan(stream: random.Random) -> bytes:
    number = stream.choice(("0", "1", "-1", "9" * 20, "9" * 5000, "1e400", "true", "null", '"0"'))
    topic = stream.choice(('"t"', '"none"', '""', '"\\ud800"', f'"{"a" * 40_000}"', "7"))
    replicas = stream.choice(("[1]", "[]", f"[{number}]", "[1,1]", "[9]", "{}", "[1,2]"))
    row = f'{{"topic":{topic},"partition":{number},"replicas":{replicas}}}'
    return stream.choice(
        (
            f'{{"version":1,"partitions":[{row}]}}'.encode(),
            f'{{"partitions":[{row},{row}]}}'.encode(),
            f'{{"version":{number},"partitions":[]}}'.encode(),
            b'{"partitions":' + b"[" * 100_000,
            b"[" * 100_000,
            b"{" * 10,
            b"\xff\xfe\x00",
            b"\xef\xbb\xbf{}",
            b'{"partitions":[' + b"[" * 500 + b"]" * 500 + b"]}",
            stream.randbytes(30),
            b"",
        )
    )


def _make_journal(stream: random.Random, folder: Path) -> None:
    """Commits of a cluster, one of them perhaps damaged or gone."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(1, 6):
        records: list[dict[str, Any]] = [{"type": "BrokerIdAssigned", "broker_id": number}]
        if number == 1:
            records = [{"type": "ClusterCreated", "cluster_id": "c", "created_ms": 1}]
        document = {"format": 1, "version": number, "controller_epoch": 1, "nonce": "n"}
        data = json.dumps(document | {"time_ms": number, "records": records}).encode()
        (folder / commit_name(number)).write_bytes(data)
    for _ in range(stream.choice((0, 1, 2))):
        name = commit_name(stream.choice((1, 2, 3, 4, 5, 6, 10**20 - 1)))
        if stream.random() < 0.5:
            (folder / name).unlink(missing_ok=True)
        else:
            (folder / name).write_bytes(_any_bytes(stream))


# -- running


@contextmanager
def fuzzer(seed: int) -> Iterator[Fuzzer]:
    """A fuzzer with a cluster of its own."""
    loop = EventLoopThread("rig")
    opened = Rig.open({"auto.create.topics.enable": "false"})
    seconds, topics_module.TIMEOUT_SECONDS = topics_module.TIMEOUT_SECONDS, ADMIN_SECONDS
    rig = loop.run(opened.__aenter__())
    folder = Path(tempfile.mkdtemp(prefix="sparklog-fuzz-"))
    variable = os.environ.get(BOOTSTRAP_VARIABLE)
    handler = signal.getsignal(signal.SIGALRM)
    try:
        loop.run(rig.start_broker())
        address = f"127.0.0.1:{rig.control.port}"
        os.environ[BOOTSTRAP_VARIABLE] = address
        assert run(["topics", "create", "t", "-p", "2", "--json"]) == 0
        yield Fuzzer(seed, address, folder / "files")
    finally:
        signal.signal(signal.SIGALRM, handler)
        os.environ.pop(BOOTSTRAP_VARIABLE, None)
        if variable is not None:
            os.environ[BOOTSTRAP_VARIABLE] = variable
        topics_module.TIMEOUT_SECONDS = seconds
        shutil.rmtree(folder, ignore_errors=True)
        loop.run(opened.__aexit__(None, None, None))
        loop.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    end, finds = time.monotonic() + options.seconds, 0
    with fuzzer(options.seed) as fuzz:
        while time.monotonic() < end:
            find = fuzz.run_one()
            if find is not None:
                finds += 1
                print(f"seed {options.seed}, list {fuzz.runs - 1}: {str(find.arguments)[:2000]}")
                print(find.what)
    codes = ", ".join(f"{count} with {code}" for code, count in sorted(fuzz.codes.items()))
    print(f"{fuzz.runs} commands ended, {codes}; {finds} finds")
    return 1 if finds else 0


if __name__ == "__main__":
    sys.exit(main())
