"""Blocks written for a draft are read back as close as their bits allow."""

from __future__ import annotations

import numpy as np
import pytest

from outpace.native.dequantise import FORMATS as READ
from outpace.native.dequantise import dequantise
from outpace.native.quantise import FORMATS, quantise


@pytest.mark.parametrize("format", FORMATS)
def test_blocks_have_the_formats_size_and_values_come_back(format):
    chance = np.random.default_rng(1)
    values = chance.normal(0, 0.1, (64, 256)).astype(np.float32)
    data = quantise(values, format)
    block, nbytes, _ = READ[format]
    assert data.nbytes == values.size // block * nbytes
    error = np.sqrt(((dequantise(data, format, 64, 256) - values) ** 2).mean()) / 0.1
    assert error <= {"F32": 0, "Q8_0": 0.006, "IQ4_NL": 0.075}[format]


@pytest.mark.parametrize("format", ["Q8_0", "IQ4_NL"])
def test_zeros_outliers_and_tiny_weights_survive(format):
    values = np.zeros((3, 64), np.float32)
    values[1, 5], values[2] = -1000, 1e-30
    back = dequantise(quantise(values, format), format, 3, 64)
    assert np.isfinite(back).all()
    assert (back[0] == 0).all()
    assert back[1, 5] == pytest.approx(-1000, rel=0.02)


def test_what_was_quantised_once_does_not_change():
    values = np.random.default_rng(2).normal(0, 1, (8, 64)).astype(np.float32)
    once = dequantise(quantise(values, "Q8_0"), "Q8_0", 8, 64)
    again = dequantise(quantise(once, "Q8_0"), "Q8_0", 8, 64)
    assert np.abs(again - once).max() <= 1e-3 * np.abs(once).max()
