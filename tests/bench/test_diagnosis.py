"""Each cause of "no speed-up" is found by its figure."""

from __future__ import annotations

import pytest

from outpace.bench.diagnosis import Finding, findings
from outpace.bench.tune import Setting
from outpace.bench.tuning import Tuning

FLAT = {1: 1.0, 2: 1.0, 5: 1.1, 8: 1.3}
STEEP = {1: 1.0, 2: 1.5, 5: 2.5, 8: 4.0}


def found(seconds: dict[int, float], acceptance: float | None, cost: float, predicted: float) -> dict[str, Finding]:
    settings = tuple(Setting("model", n, 1.5, acceptance, cost, predicted) for n in (1, 4))
    chosen = settings[0] if predicted > 1.05 else None
    tuning = Tuning("t", "d", 2, seconds, settings, {}, None, chosen, 4 if chosen else None, 2)
    return {finding.about: finding for finding in findings(tuning, bit_exact=True)}


def test_a_good_pair_has_nothing_in_its_way() -> None:
    assert all(finding.good for finding in found(FLAT, 0.8, 0.2, 1.4).values())


@pytest.mark.parametrize(
    ("about", "said", "case"),
    [
        ("acceptance", "0.10 of first guesses is right, 0.20 is needed", (FLAT, 0.1, 0.2, 0.9)),
        ("acceptance", "nothing was drafted", (FLAT, None, 0.0, 1.0)),
        ("draft cost", "c = 0.60 plain passes, no less than alpha = 0.50", (FLAT, 0.5, 0.6, 0.9)),
        ("scoring", "five rows cost 2.50 of one: scoring is not flat", (STEEP, 0.7, 0.4, 0.8)),
        ("speed-up", "0.80 times plain predicted", (STEEP, 0.7, 0.4, 0.8)),
        ("load", "not pay for one request", (STEEP, 0.7, 0.4, 0.8)),
    ],
)
def test_a_cause_is_named_with_its_figure(about: str, said: str, case: tuple) -> None:
    finding = found(*case)[about]
    assert not finding.good
    assert said in finding.figure
