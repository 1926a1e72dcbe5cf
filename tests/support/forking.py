"""The server's side of ``tests.support.fork_server``: imports the program once, and forks for each order.

``python -m tests.support.forking`` reads an order per line on stdin and writes ``pid`` and ``end`` lines on stdout. A child
becomes what its order says before the program starts in it: nothing of the server is left but the interpreter.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import io
import json
import os
import pkgutil
import selectors
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import ai4s.jobq
from tests.support.crashing import Death, run_dying
from tests.support.streams import opened

LOOK_S = 0.01
FLUSH_FAILED = 120  # the exit code of an interpreter that could not write what was left in its streams
AZURE = "ai4s.jobq.adapters.azure"


def serve() -> None:
    """Fork for each order until stdin ends; then kill who is left, for the one who gave the orders may have been killed."""
    children: set[int] = set()
    try:
        _serve(children)
    finally:
        for pid in children:
            os.kill(pid, signal.SIGKILL)
        while children:
            _reap(children)
            time.sleep(LOOK_S)


def _serve(children: set[int]) -> None:
    _import_all()
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    orders = b""
    with selectors.DefaultSelector() as ready:
        ready.register(0, selectors.EVENT_READ)
        ready.register(reading, selectors.EVENT_READ)
        while True:
            for key, _ in ready.select():
                if key.fd == reading:
                    os.read(reading, 4096)
                    continue
                got = os.read(0, 1 << 16)
                if not got:
                    return
                *lines, orders = (orders + got).split(b"\n")
                for line in lines:
                    children.add(pid := _fork(json.loads(line)))
                    _tell(pid=pid)
            _reap(children)


def _import_all() -> None:
    """Whatever commands import on the way, so that no child has to; the SDKs of Azure when the first child needs them."""
    for module in pkgutil.walk_packages(ai4s.jobq.__path__, "ai4s.jobq."):
        if not module.name.startswith(AZURE):
            importlib.import_module(module.name)
    importlib.import_module("rich.live")
    _keep()


@functools.cache
def _import_azure() -> None:
    for module in pkgutil.walk_packages(importlib.import_module(AZURE).__path__, f"{AZURE}."):
        importlib.import_module(module.name)
    _keep()


def _keep() -> None:
    """Let no child's garbage collector touch, and so copy, what is here now."""
    gc.collect()
    gc.freeze()


def _tell(**what: int) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def _reap(children: set[int]) -> None:
    """Tell of those who have ended. Until then a child's number is no one else's, so that it may be killed by it."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        children.discard(pid)
        _tell(end=pid, code=os.waitstatus_to_exitcode(status))


def _fork(order: dict[str, Any]) -> int:
    if "JOBQ_AZURITE_TABLE_PORT" in order["environment"]:
        _import_azure()
    pid = os.fork()
    if pid:
        return pid
    code = 1  # of an interpreter that an exception ended
    try:
        _become(order)
        _run(order)
    except SystemExit as exc:
        code = _exit_code(exc)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(_after_flush(code))


def _after_flush(code: int) -> int:
    """The exit code as the interpreter's own end would make it."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError as exc:
            code = FLUSH_FAILED
            with contextlib.suppress(OSError):
                os.write(2, f"Exception ignored on flushing {stream.name}: {exc}\n".encode())
    return code


def _run(order: dict[str, Any]) -> None:
    args = [os.fsdecode(_bytes(word)) for word in order["args"]]
    if order["death"] is None and order["record"] is None:
        from ai4s.jobq.cli.main import main

        main(args)
    death = None if order["death"] is None else Death(**order["death"])
    run_dying(args, death, None if order["record"] is None else Path(order["record"]))


def _bytes(text: str) -> bytes:
    """What was said by somebody whose terminal is one of UTF-8, whatever this interpreter thinks of it."""
    return text.encode("utf-8", "surrogateescape")


def _become(order: dict[str, Any]) -> None:
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    os.chdir(order["cwd"])
    os.environb.clear()
    os.environb.update({_bytes(name): _bytes(value) for name, value in order["environment"].items()})
    for descriptor, (path, flags) in enumerate(
        ((order["stdin"], os.O_RDONLY), (order["out"], os.O_WRONLY), (order["err"], os.O_WRONLY))
    ):
        stream = opened(path, flags)
        os.dup2(stream, descriptor)
        os.close(stream)
    os.closerange(3, 64)
    if os.isatty(1) and isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # as Python does when it starts on a terminal


def _exit_code(exc: SystemExit) -> int:
    if exc.code is None:
        return 0
    return exc.code if isinstance(exc.code, int) else 1


if __name__ == "__main__":
    serve()
