import signal
import threading
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from py4j.java_gateway import GatewayClient

from sparklog.driver.launcher.sigint import SigintGuard


def test_ctrl_c_cancels_queries_on_another_thread_and_interrupts() -> None:
    before = signal.getsignal(signal.SIGINT)
    threads: list[threading.Thread] = []
    guard = SigintGuard(lambda: threads.append(threading.current_thread()))
    guard.install()
    try:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    finally:
        guard.restore()
    assert len(threads) == 1
    assert threads[0] is not threading.main_thread()
    assert signal.getsignal(signal.SIGINT) == before


class _Connection:
    """A py4j connection whose call is interrupted."""

    def __init__(self) -> None:
        self.socket: Any = SimpleNamespace(
            getsockname=lambda: ("127.0.0.1", 1), getpeername=lambda: ("127.0.0.1", 2)
        )
        self.asked_the_jvm = False

    def send_command(self, _command: str) -> NoReturn:
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("it goes on")

    def shutdown_socket(self, *_: int) -> None:
        self.asked_the_jvm = True

    def close(self) -> None:
        self.socket = None


def test_a_ctrl_c_in_a_call_to_the_jvm_closes_that_connection_and_no_other() -> None:
    calling, idle = _Connection(), _Connection()
    client = GatewayClient()
    client.deque.append(idle)
    client._get_connection = lambda: calling
    guard = SigintGuard(lambda: None)
    guard.install()
    try:
        with pytest.raises(KeyboardInterrupt):
            client.send_command("c\no1\nslow\ne\n")
    finally:
        guard.restore()
    assert (calling.socket, calling.asked_the_jvm) == (None, False)
    assert (idle.socket is None, idle.asked_the_jvm, list(client.deque)) == (False, False, [idle])
    client.deque.clear()


def test_a_handler_that_somebody_set_later_stays() -> None:
    before = signal.getsignal(signal.SIGINT)
    guard = SigintGuard(lambda: None)
    guard.install()
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        guard.restore()
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_outside_of_the_main_thread_nothing_is_touched() -> None:
    before = signal.getsignal(signal.SIGINT)
    guard = SigintGuard(lambda: None)
    thread = threading.Thread(target=guard.install)
    thread.start()
    thread.join()
    guard.restore()
    assert signal.getsignal(signal.SIGINT) == before
