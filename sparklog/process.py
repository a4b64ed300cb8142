"""Child processes that report when they are ready and never outlive their parent.

Owns: spawning, the JSON lines on stdin and stdout, the parent-death signal, log files.  Must not
know what a child does.

A child reads its task as one JSON line from stdin; a child that serves reads further lines, until
the end of its input.  It answers with one JSON line on stdout, either
``{"ready": true, ...}`` or ``{"ready": false, "error": "...", "kind": "..."}``.  It logs to stderr.
The kernel's parent-death signal fires when the *thread* that spawned a child ends.  Therefore every
spawn runs on one thread, which lives as long as its process.
"""

import atexit
import ctypes
import json
import os
import queue
import resource
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote, urlsplit

from sparklog.errors import SparklogError

PARENT_PID_VARIABLE = "SPARKLOG_PARENT_PID"
PR_SET_PDEATHSIG = 1
LOG_BYTES_MAX = 16 * 1024 * 1024
LINE_BYTES_MAX = 1024 * 1024
LOG_TAIL_LINES = 12


class ChildError(SparklogError):
    """A child process did not become ready.

    ``kind`` is the kind of error that the child has reported (``locked``, ``storage``, ...), or
    ``died`` or ``timeout``.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind

    def __reduce__(self) -> tuple[type["ChildError"], tuple[str, str]]:
        return (ChildError, (self.kind, str(self)))


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent ends; exit if the parent has ended.

    The kernel's part works on Linux only.
    """
    expected = os.environ.pop(PARENT_PID_VARIABLE, None)
    set_parent_death_signal(signal.SIGKILL)
    if expected is not None and os.getppid() != int(expected):
        os._exit(1)  # the parent died before the signal was armed


def set_parent_death_signal(signal_number: int) -> None:
    """Arm (or with 0 disarm) the parent-death signal of this process."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, int(signal_number), 0, 0, 0)


def raise_descriptor_limit() -> None:
    """Raise this process's limit of open files and sockets to the hard limit, as a JVM does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(ValueError, OSError):  # the real limit of macOS is lower than its hard limit
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def descriptors_max() -> int:
    """The number of files and sockets that this process may have open."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


def python_command(module: str) -> list[str]:
    """The command that runs a module with this Python, without the working folder on sys.path."""
    return [sys.executable, "-P", "-m", module]


def child_environment() -> dict[str, str]:
    """The environment variables of a child, with this process's module path and process id.

    Threads of a child take memory from one arena, unless this environment says otherwise.  In
    arenas of their own, glibc keeps what they have freed: a broker that has taken 1 GB keeps 20 MB.
    They rarely run at the same time, so one arena costs no time.
    """
    folders = [str(Path(entry or ".").resolve()) for entry in sys.path]
    return {
        "MALLOC_ARENA_MAX": "1",
        **os.environ,
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(folders)),
        "PYTHONUNBUFFERED": "1",
        PARENT_PID_VARIABLE: str(os.getpid()),
    }


def local_folder(location: str) -> Path | None:
    """The local folder of a plain path (``~`` included) or a ``file://`` URL.

    The result is None for other URLs.
    """
    scheme, separator, _ = location.partition("://")
    if not separator:
        return Path(os.path.expanduser(location)).absolute()
    if scheme.lower() != "file":
        return None
    return Path(unquote(urlsplit(location).path))


class Child:
    """A running child process.  Every method may be called from any thread."""

    def __init__(self, process: "subprocess.Popen[bytes]", log_path: Path | None) -> None:
        self._process = process
        self._received = b""
        self.log_path = log_path
        self.ready: dict[str, Any] = {}

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def descriptors(self) -> tuple[int, int]:
        """The descriptors of a serving child's input, to write to, and of its output, to read."""
        assert self._process.stdin is not None, "the child was started without serves=True"
        return self._process.stdin.fileno(), _output(self._process).fileno()

    def poll(self) -> int | None:
        """The exit code (negative: the signal that ended the process); None while it runs."""
        return self._process.poll()

    def wait(self, timeout: float | None = None) -> int | None:
        """Wait for the end of the process.

        Returns:
            The exit code; None when ``timeout`` seconds have passed first.
        """
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            return None

    def terminate(self) -> None:
        """Ask the process for a clean end."""
        self._process.terminate()

    def kill(self) -> None:
        """Kill the process and reap it."""
        self._process.kill()
        self._process.wait()

    def close(self, timeout: float | None = None) -> bool:
        """Kill the process if it still runs, and close the pipes.

        Returns:
            Whether the process has ended; without ``timeout`` (seconds) this waits for its end.
        """
        if self.poll() is None:
            self._process.kill()
        ended = self.wait(timeout) is not None
        _output(self._process).close()
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()
        return ended

    def read_line(self, timeout: float | None) -> str | None:
        """The next line of the output; None at the end of output or after ``timeout`` seconds."""
        end = None if timeout is None else time.monotonic() + timeout
        descriptor = _output(self._process).fileno()
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        while b"\n" not in self._received:
            left_ms = None if end is None else max(0.0, end - time.monotonic()) * 1000
            if not poller.poll(left_ms):
                return None
            data = os.read(descriptor, 65536)
            if not data or len(self._received) > LINE_BYTES_MAX:
                return None
            self._received += data
        line, _, self._received = self._received.partition(b"\n")
        return line.decode(errors="replace")

    def log_tail(self) -> str:
        """The last lines of the log, for error messages."""
        if self.log_path is None:
            return ""
        try:
            with self.log_path.open("rb") as file:
                file.seek(max(0, self.log_path.stat().st_size - 8192))
                lines = file.read().decode(errors="replace").splitlines()
        except OSError:
            return ""
        return "\n".join(lines[-LOG_TAIL_LINES:])


def start_child(
    argv: Sequence[str],
    stdin_line: str,
    log_path: Path | None = None,
    env: Mapping[str, str] | None = None,
    new_session: bool = True,
    serves: bool = False,
) -> Child:
    """Start a process and send it its line, without waiting for an answer.

    Args:
        log_path: the file to which stderr is appended; None for this process's stderr.
        env: the environment variables; None for ``child_environment()``.
        new_session: whether the child starts a session, so that Ctrl-C does not reach it.
        serves: whether the child's input stays open for further lines (``Child.descriptors``).

    Raises:
        ChildError: the process cannot be started.
    """
    environment = dict(child_environment() if env is None else env)
    environment[PARENT_PID_VARIABLE] = str(os.getpid())

    def spawn() -> "subprocess.Popen[bytes]":
        log = _open_log(log_path) if log_path else None
        try:
            return subprocess.Popen(
                list(argv),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                start_new_session=new_session,
            )
        finally:
            if log is not None:
                log.close()

    try:
        process = _SPAWNER.run(spawn)
    except OSError as error:
        raise ChildError("storage", f"cannot start {_name(argv)}: {error}") from error
    _send_line(process, stdin_line, keep_open=serves)
    return Child(process, log_path)


def spawn_child(
    argv: Sequence[str],
    stdin_line: str,
    log_path: Path | None = None,
    env: Mapping[str, str] | None = None,
    new_session: bool = True,
    ready_timeout: float = 60.0,
    serves: bool = False,
) -> Child:
    """Start a process and wait until it reports that it is ready.

    The arguments are those of ``start_child``.  ``Child.ready`` has the report.

    Raises:
        ChildError: the child reports an error, ends, or reports nothing for ``ready_timeout``
            seconds.  No process is left running then.
    """
    child = start_child(argv, stdin_line, log_path, env, new_session, serves)
    try:
        child.ready = _await_ready(child, argv, ready_timeout)
    except BaseException:
        child.close()
        raise
    return child


def _await_ready(child: Child, argv: Sequence[str], timeout: float) -> dict[str, Any]:
    line = child.read_line(timeout)
    if line is None:
        # There is no line: either the process has ended, or it has not answered in time.
        code = child.wait(1.0)
        what = f"did not become ready in {timeout:g} s" if code is None else _describe_exit(code)
        raise ChildError("timeout" if code is None else "died", _story(child, argv, what))
    try:
        answer = json.loads(line)
    except ValueError:
        answer = None
    if not isinstance(answer, dict) or "ready" not in answer:
        raise ChildError("died", _story(child, argv, f"said {line[:200]!r} instead of being ready"))
    if not answer["ready"]:
        child.wait(5.0)
        raise ChildError(str(answer.get("kind", "other")), str(answer.get("error", "no reason")))
    return answer


def describe_end(child: Child, code: int) -> str:
    """The end of a child in words, with the last lines of its log."""
    return _with_tail(child, _describe_exit(code))


def _story(child: Child, argv: Sequence[str], what: str) -> str:
    return _with_tail(child, f"{_name(argv)} {what}")


def _with_tail(child: Child, text: str) -> str:
    tail = child.log_tail()
    return f"{text}; {child.log_path} ends with:\n{tail}" if tail else text


def _describe_exit(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"was ended by {name}"


def _name(argv: Sequence[str]) -> str:
    return argv[argv.index("-m") + 1] if "-m" in argv[:-1] else " ".join(argv[:2])


def _output(process: "subprocess.Popen[bytes]") -> IO[bytes]:
    assert process.stdout is not None
    return process.stdout


def _send_line(process: "subprocess.Popen[bytes]", line: str, *, keep_open: bool) -> None:
    assert process.stdin is not None
    try:
        process.stdin.write(line.encode() + b"\n")
        if keep_open:
            process.stdin.flush()
        else:
            process.stdin.close()
    except BrokenPipeError:
        process.stdin = None  # the child died at once; reading its answer will show that


def _open_log(path: Path) -> IO[bytes]:
    """Open a log for appending; a log that has grown too large is moved aside first.

    The log is readable for this user only, as the data beside it is.  It is never written through a
    symbolic link.
    """
    for folder in (*reversed(path.parent.parents), path.parent):
        folder.mkdir(mode=0o700, exist_ok=True)
    if path.exists() and path.stat().st_size > LOG_BYTES_MAX:
        path.replace(path.with_name(path.name + ".1"))
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.fdopen(os.open(path, flags, 0o600), "ab")


class _Spawner:
    """The one thread of this process that starts children."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget the thread, which does not exist in a forked process."""
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._tasks: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = queue.SimpleQueue()

    def run(self, task: Callable[[], Any]) -> Any:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="spawner", daemon=True)
                self._thread.start()
        future: Future[Any] = Future()
        self._tasks.put((task, future))
        return future.result()

    def _work(self) -> None:
        while True:
            task, future = self._tasks.get()
            try:
                future.set_result(task())
            except BaseException as error:
                future.set_exception(error)


_SPAWNER = _Spawner()
os.register_at_fork(after_in_child=_SPAWNER.reset)


def at_exit(action: Callable[[], None]) -> Callable[[], None]:
    """Run ``action`` when this process ends, but not in forks of it.

    The action runs before thread pools are shut down, because resolving a host name needs one.

    Returns:
        A function that cancels the action.
    """
    import concurrent.futures.thread  # noqa: F401  registers its own shutdown, to be run after ours

    actions = [action]
    owner = os.getpid()

    def run() -> None:
        if os.getpid() == owner and actions:
            actions.pop()()

    getattr(threading, "_register_atexit", atexit.register)(run)
    return actions.clear
