"""Whether an installed outpace works: run with the Python of an environment that has nothing but the wheel in it.

    python scripts/smoke.py [MODEL]

Without a model it checks that the engine came with the wheel and multiplies the same bits on every instruction set;
with one (a file or a name) it also generates, with drafts and without, and compares the texts.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import outpace


def check_engine() -> str:
    from outpace import _native

    random = np.random.default_rng(0)
    weights = random.integers(0, 256, (96, 2 * 18), np.uint8)
    weights[:, [1, 19]] = 0x2C  # the scales' high bytes: small numbers
    matrix = _native.Matrix("Q4_0", 96, 64)
    matrix.pack(0, weights.ravel())
    x = random.standard_normal((5, 64), np.float32)
    results = {kernel: matrix.multiply(x, kernel=kernel) for kernel in _native.kernels()}
    wrong = [kernel for kernel, y in results.items() if not np.array_equal(y, results["portable"])]
    if wrong:
        raise SystemExit(f"differ from portable: {', '.join(wrong)}")
    return ", ".join(results)


def main() -> None:
    here = Path(outpace.__file__).resolve()
    if Path(__file__).resolve().parents[1] in here.parents and "site-packages" not in here.parts:
        raise SystemExit(f"outpace comes from the sources ({here}), not from a wheel")
    print(f"engine: {check_engine()}")
    if len(sys.argv) > 1:
        model = outpace.load(sys.argv[1])
        options = {"temperature": 1.0, "seed": 1, "max_tokens": 32}
        plain = model.generate("Name three rivers.", drafter="none", **options)
        drafted = model.generate("Name three rivers.", drafter="ngram", **options)
        if plain.tokens != drafted.tokens or not plain.text:
            raise SystemExit("the text with drafts is not the text without")
        print(f"text: {plain.text!r}")


if __name__ == "__main__":
    main()
