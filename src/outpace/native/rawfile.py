"""Reading a file whose bytes nobody vouches for: regular files only, no mapping, every change noticed.

A mapped file that shrinks ends the process with SIGBUS; `pread` gives a short count, which is an error like others.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from outpace.errors import BadModelFile, ModelNotFound


class RawFile:
    """An opened regular file of a fixed size."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            # A pipe or a device would block an ordinary open.
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except (FileNotFoundError, NotADirectoryError):
            raise ModelNotFound(f"{path}: no such file") from None
        except (OSError, ValueError) as error:
            raise BadModelFile(f"{path}: cannot be opened: {_reason(error)}") from None
        status = os.fstat(self._fd)
        if not stat.S_ISREG(status.st_mode):
            self.close()
            raise BadModelFile(f"{path}: not a regular file")
        self.size = status.st_size
        self._modified = status.st_mtime_ns

    def read(self, offset: int, count: int) -> NDArray[np.uint8]:
        """Returns `count` bytes from `offset`, read now.

        Raises BadModelFile when the file ends before, or was changed since it was opened.
        """
        if self._fd < 0:
            raise BadModelFile(f"{self.path}: read after it was closed")
        if offset < 0 or count < 0 or offset + count > self.size:
            raise BadModelFile(f"{self.path}: bytes {offset} to {offset + count} are outside its {self.size} bytes")
        out = np.empty(count, np.uint8)
        view = out.data
        done = 0
        try:
            while done < count:
                got = os.preadv(self._fd, [view[done : done + (1 << 30)]], offset + done)
                if got == 0:
                    raise BadModelFile(f"{self.path}: ends at byte {offset + done}; it had {self.size} when opened")
                done += got
            status = os.fstat(self._fd)
        except OSError as error:
            raise BadModelFile(f"{self.path}: cannot be read at byte {offset + done}: {_reason(error)}") from None
        if (status.st_size, status.st_mtime_ns) != (self.size, self._modified):
            raise BadModelFile(f"{self.path}: was changed while in use; load the model again")
        return out

    def close(self) -> None:
        """Closes the file; harmless when repeated."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_fd", -1) >= 0:
            self.close()


def _reason(error: OSError | ValueError) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
