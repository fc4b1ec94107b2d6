"""Threads of a server share one heap."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

pytest.importorskip("fastapi", reason="the extra 'serve' is not installed")

HEAPS = """
import ctypes, sys, threading
from outpace.serve.heap import share_one_heap
if sys.argv[1] == "one":
    share_one_heap()
libc, held = ctypes.CDLL(None), threading.Barrier(8)
libc.malloc.restype = ctypes.c_void_p
def allocate():
    libc.malloc(10_000)
    held.wait()
threads = [threading.Thread(target=allocate) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
libc.malloc_info(0, ctypes.c_void_p.in_dll(libc, "stdout"))
libc.fflush(None)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has several heaps")
def test_threads_share_one_heap():
    def heaps(how):
        return subprocess.run([sys.executable, "-c", HEAPS, how], capture_output=True, check=True).stdout.count(
            b"<heap"
        )

    assert heaps("as it is") > 1
    assert heaps("one") == 1
