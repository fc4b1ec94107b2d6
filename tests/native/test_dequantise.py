"""The values behind a tensor's bytes: the readable reference, the engine and the format's own package agree."""

from __future__ import annotations

import numpy as np
import pytest

from gguf_writer import FORMATS, SUPPORTED, random_tensor
from outpace.native.dequantise import dequantise

ROWS, COLS = 40, 512


def random_bytes(format: str) -> np.ndarray:
    return np.frombuffer(random_tensor(np.random.default_rng(3), format, ROWS, COLS).data, np.uint8)


@pytest.mark.parametrize("format", SUPPORTED)
def test_packed_rows_are_exactly_the_files_values(format: str) -> None:
    native = pytest.importorskip("outpace._native", reason="the native engine is not built")
    data, matrix = random_bytes(format), native.Matrix(format, ROWS, COLS)
    matrix.pack(0, data)
    assert np.array_equal(np.stack([matrix.row(i) for i in range(ROWS)]), dequantise(data, format, ROWS, COLS))


@pytest.mark.parametrize("format", SUPPORTED)
def test_values_are_those_of_the_formats_own_package(format: str) -> None:
    gguf = pytest.importorskip("gguf", reason="gguf is not installed (extra 'peers')")
    values = gguf.quants.dequantize(random_bytes(format), gguf.GGMLQuantizationType(FORMATS[format][0]))
    assert np.allclose(values.reshape(ROWS, COLS), dequantise(random_bytes(format), format, ROWS, COLS), 1e-6, 1e-7)


@pytest.mark.parametrize("format", SUPPORTED)
def test_panels_take_at_most_8_percent_more_than_the_file(format: str) -> None:
    native = pytest.importorskip("outpace._native", reason="the native engine is not built")
    assert native.packed_bytes(format, 64, COLS) <= 1.08 * random_bytes(format).nbytes * 64 / ROWS
