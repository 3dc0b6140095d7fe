"""The command: one module for each of its subcommands.

A user's mistake ends in one sentence on the standard error and exit status 2, never in a traceback; Ctrl-C ends in one
line and status 130 at any moment before the command has ended, so that nothing slow is imported before `main` is ready
for it.
"""

from __future__ import annotations

# What `signal` is made of, without the time that its enumerations take: whatever runs before the handler is set can be
# interrupted with a traceback.
import _signal as signal  # type: ignore[import-not-found]  # of CPython
import gc
import os
import sys

TYPE_CHECKING = False

if TYPE_CHECKING:
    from types import FrameType
    from typing import Any

# What a shell says of a program that was ended by SIGPIPE, and by Ctrl-C.
_NOT_READ, _INTERRUPTED = 141, 130
_STOPPED = "palmatch: stopped.\n"

# Subcommands that run asyncio's tasks.
_WITH_TASKS = ("explore", "live")

# Beginnings of the names of modules that are not interrupted: those of the import, and of the compiler's objects.
_NOT_TO_BE_LEFT = ("importlib._bootstrap", "_frozen_importlib", "llvmlite")

# Seconds until an interrupt is tried again.
_MOMENT = 0.02

# New objects after which Python looks for cycles: usually 700, which is a seventh of the time of compiling kernels.
_OBJECTS = 50_000

# Set while an interrupt waits to be tried again.
_waiting = False


def _stop_at_once(_number: int, _frame: FrameType | None) -> None:
    os.write(2, _STOPPED.encode())
    os._exit(_INTERRUPTED)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Interrupt what runs, but no import and no compiler: libraries written in C may crash when left half done."""
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith(_NOT_TO_BE_LEFT):
            _soon()
            return
        frame = frame.f_back
    global _waiting
    _waiting = False
    signal.default_int_handler(number, frame)


def _interrupt_again(lost: Any) -> None:
    """Interrupt once more where an interrupt was lost: C code that calls Python back has nowhere to raise it."""
    if issubclass(lost.exc_type, KeyboardInterrupt):
        _soon()
    else:
        sys.__unraisablehook__(lost)


def _soon() -> None:
    """Interrupt in a moment, from another thread: at once, it would be raised where it cannot be."""
    global _waiting
    import _thread
    import threading

    _waiting = True
    later = threading.Timer(_MOMENT, _thread.interrupt_main)
    later.daemon = True
    later.start()


def _while_starting() -> Any:
    """Let Ctrl-C end the process at once: an exception may leave a library half imported."""
    usual = signal.getsignal(signal.SIGINT)
    if usual is not signal.default_int_handler:
        # Ignored (nohup), or handled by the program that we are part of.
        return None
    try:
        signal.signal(signal.SIGINT, _stop_at_once)
    except ValueError:  # not in the main thread
        return None
    return usual


# As soon as it can be, where this process is the command; a program that merely imports us keeps its own Ctrl-C.
if os.path.basename(sys.argv[0]) == "palmatch" or sys.orig_argv[1:3] == ["-m", "palmatch"]:  # noqa: PTH119 - pathlib is slow
    _while_starting()


def main() -> None:
    """Run the command."""
    usual, hook = _while_starting(), sys.unraisablehook
    gc.set_threshold(_OBJECTS)
    # Threads that OpenBLAS starts for products of matrices, of which there are few, take a fifth of a second to begin.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        _guarded()
    except BaseException as end:
        if not (_waiting or _from_an_interrupt(end)):
            raise
        _over()
        _end(_STOPPED, _INTERRUPTED)
    finally:
        _over()
        if usual is not None:
            signal.signal(signal.SIGINT, usual)
            sys.unraisablehook = hook


def started(name: str) -> None:
    """From here on Ctrl-C unwinds a subcommand, so that what was begun is cleaned up: most imports are over."""
    if signal.getsignal(signal.SIGINT) is _stop_at_once:
        # asyncio cancels its tasks in place of Python's own handler only.
        signal.signal(signal.SIGINT, signal.default_int_handler if name in _WITH_TASKS else _interrupt)
        sys.unraisablehook = _interrupt_again


def _over() -> None:
    """Ignore Ctrl-C from here on: the status is known, and what is left is the end of the interpreter."""
    if signal.getsignal(signal.SIGINT) is _interrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _from_an_interrupt(end: BaseException | None) -> bool:
    """Whether Ctrl-C is behind an exception: libraries make an exit of it, or a failed import."""
    while end is not None and not isinstance(end, KeyboardInterrupt):
        end = end.__cause__ or (None if end.__suppress_context__ else end.__context__)
    return end is not None


def _guarded() -> None:
    from palmatch.cli import streams
    from palmatch.errors import PalmatchError

    try:
        with streams.prepared():
            _run()
    except PalmatchError as mistake:
        _end(f"palmatch: {mistake}\n", 2)
    except BrokenPipeError:
        # The reader of our output (head, say) has gone.
        _drop_output()
        sys.exit(_NOT_READ)
    except OSError as error:
        _drop_output()
        reason, where = error.strerror or type(error).__name__, error.filename or "the output"
        _end(f"palmatch: {where}: cannot be written ({reason}); check the path and the free space.\n", 2)
    except MemoryError:
        _end("palmatch: this takes more memory than there is; bound the lists with --interest 20, or match less.\n", 2)


def _end(line: str, status: int) -> None:
    sys.stderr.write(line)
    sys.exit(status)


def _drop_output() -> None:
    """Discard what is still in the buffer, or the interpreter would report it when it exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run() -> None:
    """Run the subcommand, and flush the output while a failure can still be reported."""
    from palmatch.cli.app import app

    try:
        app()
    except SystemExit as stop:
        # The libraries for subcommands and tables turn a reader who has gone into a plain exit.
        if isinstance(stop.__context__, BrokenPipeError):
            raise stop.__context__ from None
        raise
    finally:
        sys.stdout.flush()
