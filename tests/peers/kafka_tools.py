"""Kafka's command line tools, run one after the other in one JVM.

Owns: the JVM and the little protocol of ``ToolRunner.java``.  Must not know what the tools do.
"""

import struct
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

RUNNER = Path(__file__).with_name("ToolRunner.java")
JAVA_OPTIONS = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
STOP_SECONDS_MAX, ALONE_SECONDS_MAX = 20.0, 120.0
_INT32 = struct.Struct(">i")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRun:
    """What one call of a tool came to."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


class KafkaTools:
    """``run`` calls a tool's main method; its exit does not end the JVM."""

    def __init__(
        self, jars: Path, errors: Path, *, java_options: Sequence[str] = JAVA_OPTIONS
    ) -> None:
        self._class_path = str(jars / "*")
        # Native libraries that the JVM unpacks go away with the folder.
        self._java = ["java", *java_options, f"-Djava.io.tmpdir={errors.parent}"]
        command = [*self._java, "-cp", self._class_path, str(RUNNER)]
        with errors.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
            )
        self._errors = errors

    def run(self, tool: str, *arguments: str, stdin: str = "") -> ToolRun:
        """``tool`` is a class; without a package it is one of ``org.apache.kafka.tools``."""
        name = tool if "." in tool else f"org.apache.kafka.tools.{tool}"
        message = _string(name) + _string(stdin) + _INT32.pack(len(arguments))
        stream = self._process.stdin
        assert stream is not None
        stream.write(message + b"".join(map(_string, arguments)))
        stream.flush()
        code = _INT32.unpack(self._exactly(4))[0]
        return ToolRun(code=code, out=self._string(), err=self._string())

    def ok(self, tool: str, *arguments: str, stdin: str = "") -> ToolRun:
        """A run that must succeed, silent on stderr."""
        done = self.run(tool, *arguments, stdin=stdin)
        assert (done.code, done.err) == (0, ""), done
        return done

    def alone(self, tool: str, *arguments: str) -> ToolRun:
        """A run in a JVM of its own, for tools that do their last work when the JVM ends."""
        command = [*self._java, "-cp", self._class_path, f"org.apache.kafka.tools.{tool}"]
        done = subprocess.run(
            [*command, *arguments], capture_output=True, text=True, timeout=ALONE_SECONDS_MAX
        )
        return ToolRun(code=done.returncode, out=done.stdout, err=done.stderr)

    def close(self) -> None:
        """The JVM ends when there is nothing left to read; if it does not, it is killed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(STOP_SECONDS_MAX)
        self._process.stdout.close()

    def _string(self) -> str:
        return self._exactly(_INT32.unpack(self._exactly(4))[0]).decode()

    def _exactly(self, count: int) -> bytes:
        assert self._process.stdout is not None
        found = self._process.stdout.read(count)
        assert len(found) == count, self._errors.read_text(errors="replace")
        return found


def _string(text: str) -> bytes:
    data = text.encode()
    return _INT32.pack(len(data)) + data
