"""Kafka's applications, several in one JVM that can be killed with them.

Owns: the JVM, the protocol of ``ApplicationRunner.java``, and what each application has printed.
Must not know what the applications do.
"""

import subprocess
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.support.waiting import wait_for

JAVA_OPTIONS = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
SECONDS_MAX = 90.0


class Application:
    """One main method that runs.  ``lines`` is what it has printed so far, in order."""

    def __init__(self, runner: "ApplicationRunner", name: str) -> None:
        self.lines: list[str] = []
        self.code: int | None = None
        self._runner = runner
        self._name = name

    def wait_for(self, condition: Callable[[], object], what: str) -> None:
        """Block until ``condition()``.  Raises AssertionError, also if the application ended."""

        def look() -> bool:
            if condition():
                return True
            assert self.code is None and self._runner.alive, self._story(what)  # noqa: PT018
            return False

        try:
            wait_for(look, SECONDS_MAX, what)
        except AssertionError:
            raise AssertionError(self._story(what)) from None

    def stop(self) -> None:
        """As SIGTERM does, and wait until it has ended."""
        self._runner.order("stop", self._name)
        wait_for(lambda: self.code is not None, SECONDS_MAX, self._name + " does not end")

    def _story(self, what: str) -> str:
        said = "\n".join(self.lines[-20:])
        return f"{self._name}, exit {self.code}: not so: {what}\n{said}\n{self._runner.errors}"


class ApplicationRunner:
    """A JVM in which applications are started one beside the other."""

    def __init__(self, class_path: str, folder: Path) -> None:
        folder.mkdir()
        self._errors = folder / "errors"
        self._applications: dict[str, Application] = {}
        self._count: dict[str, int] = defaultdict(int)
        # Native libraries that the JVM unpacks go away with the folder.
        options = [*JAVA_OPTIONS, f"-Djava.io.tmpdir={folder}"]
        with self._errors.open("ab") as log:
            self._process = subprocess.Popen(
                ["java", *options, "-cp", class_path, "ApplicationRunner"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def errors(self) -> str:
        """What was printed to stderr, by whomever."""
        return self._errors.read_text(errors="replace")[-4000:]

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def start(self, main: str, *arguments: str) -> Application:
        """``main`` is a class; without a package it is one of ``org.apache.kafka.tools``."""
        short = main.rpartition(".")[2]
        self._count[short] += 1
        name = f"{short} {self._count[short]}"
        application = self._applications[name] = Application(self, name)
        self.order("start", name, main, *arguments)
        return application

    def run(self, main: str, *arguments: str) -> Sequence[str]:
        """What one that ends by itself has printed; it must succeed."""
        application = self.start(main, *arguments)
        wait_for(lambda: application.code is not None, SECONDS_MAX, f"{main} does not end")
        assert application.code == 0, (arguments, application.lines, self.errors)
        return application.lines

    def order(self, *words: str) -> None:
        assert self._process.stdin is not None
        assert not any("\n" in word or "\t" in word for word in words)
        self._process.stdin.write("\t".join(words) + "\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        """With all its applications, which cannot say goodbye."""
        self._process.kill()
        self._process.wait(SECONDS_MAX)
        self._reader.join(SECONDS_MAX)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            name, *words = line.rstrip("\n").split("\t")
            application = self._applications.get(name)
            if application is None:
                continue
            if len(words) == 2 and words[0] == "exit":
                application.code = int(words[1])
            else:
                application.lines.append("\t".join(words))
