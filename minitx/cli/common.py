"""What the commands share: errors in one line, and output that every console can show."""
from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn


class UserError(Exception):
    """Something the person at the keyboard can put right."""


class Parser(argparse.ArgumentParser):
    """An argument parser whose mistakes are UserErrors: one line, not the usage."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message} (see {self.prog} --help)")


@contextmanager
def setting_up() -> Iterator[None]:
    """Until the run begins, a wrong type can only come from what the user wrote."""
    try:
        yield
    except TypeError as error:
        raise UserError(words(error)) from error


def words(error: BaseException) -> str:
    """An exception in one line."""
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        text = f"{error.filename}: {error.strerror}"
    elif isinstance(error, MemoryError):
        text = f"not enough memory: {error}; a smaller batch_size, or accumulate=2, needs less"
    else:
        text = str(error)
    return " ".join(text.split()) or type(error).__name__


def plain_where_needed() -> None:
    """What a console cannot encode is escaped instead of stopping the program."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
