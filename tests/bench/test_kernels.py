"""The kernels bench on a table target: what is measured, in which order, and beside which floor."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from fakes import TableTarget
from outpace.bench import kernels
from outpace.bench.kernels import (
    BANDWIDTH_EVERY,
    CONTEXTS,
    PEER_ROWS,
    PREFILL_TOKENS,
    ROWS,
    Work,
    interleave,
    measure,
)
from outpace.errors import UsageError
from outpace.native.gguf import open_gguf


class Ceilings:
    def bandwidth(self) -> float:
        return 50e9

    def integer_rate(self, *, wide: bool = False) -> float:
        return 200e9 if wide else 400e9


class FakePeer:
    name, version = "other", "1.0"

    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []

    def score(self, rows: int) -> None:
        self.calls.append(("score", rows))

    def prefill(self, tokens: int) -> None:
        self.calls.append(("prefill", tokens))


def test_the_work_of_a_forward_follows_from_the_file(tiny_llama: Path, tiny_qwen2: Path) -> None:
    for path in (tiny_llama, tiny_qwen2):
        with closing(open_gguf(path)) as file:
            work, config = Work.of(file), file.config
            matrices = [info for info in file.tensors.values() if info.rows > 1]
            looked_up = 0 if config.tied else file.tensors["token_embd.weight"].nbytes
        layer = config.hidden_size * (2 * config.heads + 2 * config.kv_heads) * config.head_dim
        layer += 3 * config.hidden_size * config.ffn_size
        assert work.row_macs == config.layers * layer + config.hidden_size * config.vocab_size
        assert work.weight_bytes > sum(info.nbytes for info in matrices) - looked_up
        assert work.wide_macs == sum(info.rows * info.cols for info in matrices if info.format == "Q8_0")
        assert work.cache_bytes == config.layers * 2 * config.kv_heads * config.head_dim * 2
        assert work.attention_macs == config.layers * 2 * config.heads * config.head_dim


def test_the_floor_is_the_larger_of_reading_and_multiplying() -> None:
    work = Work(weight_bytes=1000, cache_bytes=10, row_macs=100, attention_macs=1)
    assert work.floor_seconds(1, 20, bandwidth=100, integer_rate=1e9, wide_rate=1e9) == 12
    assert work.floor_seconds(2, 20, bandwidth=1e9, integer_rate=1, wide_rate=0.5) == 2 * 100 + 2 * 20 + 3


def test_codes_of_8_bits_are_counted_at_their_own_rate() -> None:
    work = Work(weight_bytes=1, cache_bytes=0, row_macs=100, attention_macs=0, wide_macs=30)
    assert work.floor_seconds(2, 0, bandwidth=1e9, integer_rate=1, wide_rate=0.5) == 2 * 70 + 2 * 30 * 2


def test_cases_take_turns_until_time_is_up() -> None:
    order: list[str] = []
    now = iter(range(1000))

    def case(name: str) -> Callable[[], float]:
        def run() -> float:
            order.append(name)
            return float(len(order))

        return run

    samples = interleave({"a": case("a"), "b": case("b")}, 10, least=2, clock=lambda: float(next(now)))
    assert order[:4] == ["a", "b", "a", "b"]
    assert len(samples["a"]) == len(samples["b"]) > 2


def test_even_without_time_every_case_is_measured_often_enough_for_a_median() -> None:
    assert interleave({"a": lambda: 1.0}, 0) == {"a": [1.0] * 5}


def test_the_report_has_every_row_and_context_beside_its_floor() -> None:
    target = TableTarget(50)
    work = Work(weight_bytes=5_000_000, cache_bytes=100, row_macs=1000, attention_macs=10)
    report = measure(target, work, Ceilings(), kernel="portable", threads=2, seconds=0)
    assert [(line.context, line.rows) for line in report.forward] == [(c, n) for c in CONTEXTS for n in ROWS]
    assert all(line.seconds > 0 for line in report.forward)
    first = report.forward[0]
    assert first.floor_seconds == pytest.approx((5_000_000 + 128 * 100) / 50e9)
    assert report.weights_gb_per_s == pytest.approx(5_000_000 / first.seconds / 1e9)
    assert report.record().keys() == {
        "model", "kernel", "threads", "forward", "weights_gb_per_s", "bandwidth_gb_per_s", "integer_gmac_per_s",
        "wide_gmac_per_s", "prefill_tokens_per_s", "repeats",
    }  # fmt: skip
    assert target.open_sessions == 0


def test_a_floor_is_that_of_the_time_when_its_forwards_ran() -> None:
    class Moved(Ceilings):
        """The host moves the cores in the middle of every turn."""

        def __init__(self) -> None:
            self.asked = 0

        def bandwidth(self) -> float:
            self.asked += 1
            slots = len(CONTEXTS) * len(ROWS) // BANDWIDTH_EVERY
            return 50e9 if (self.asked - 1) % slots < slots / 2 else 75e9

    work = Work(weight_bytes=5_000_000, cache_bytes=100, row_macs=1, attention_macs=0)
    report = measure(TableTarget(50), work, Moved(), kernel="portable", threads=2, seconds=0)
    for line in report.forward:
        bandwidth = 50e9 if line.context == CONTEXTS[0] else 75e9
        assert line.floor_seconds == pytest.approx((5_000_000 + 100 * line.context) / bandwidth)


def test_a_host_that_moves_between_memory_and_passes_spoils_that_turn_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is fast in the first three of five turns, passes in the first two: both medians are of another state."""

    class Moved(Ceilings):
        def __init__(self) -> None:
            self.asked = 0

        def bandwidth(self) -> float:
            slots = len(CONTEXTS) * len(ROWS) // BANDWIDTH_EVERY
            self.asked += 1
            return 75e9 if self.asked <= 3 * slots else 50e9

    def forward(target: object, session: object, rows: int, context: int) -> Callable[[], float]:
        turns = iter((2e-3, 2e-3, 3e-3, 3e-3, 3e-3))
        return lambda: next(turns)

    monkeypatch.setattr(kernels, "_forward", forward)
    work = Work(weight_bytes=100_000_000, cache_bytes=0, row_macs=1, attention_macs=0)
    report = measure(TableTarget(50), work, Moved(), kernel="portable", threads=2, seconds=0)
    assert all(line.over_floor == pytest.approx(1.5) for line in report.forward)


def test_a_peer_runs_in_the_same_turns() -> None:
    peer = FakePeer()
    work = Work(1, 1, 1, 1)
    report = measure(TableTarget(50), work, Ceilings(), kernel="portable", threads=1, seconds=0, peer=peer)
    assert report.peer is not None
    assert tuple(report.peer.seconds_by_rows) == PEER_ROWS
    assert report.record()["peer"].keys() == {  # type: ignore[attr-defined]
        "name", "version", "context", "forward", "prefill_tokens_per_s",
    }  # fmt: skip
    # Each measurement has an untimed one before it.
    assert peer.calls[:6] == [("score", 1)] * 2 + [("score", 8)] * 2 + [("prefill", PREFILL_TOKENS)] * 2


def test_no_prompt_is_prefilled_twice() -> None:
    seen: list[tuple[int, ...]] = []

    class Watching(TableTarget):
        def open(self, prompt, taps=()):  # type: ignore[no-untyped-def]
            seen.append(prompt.ids)
            return super().open(prompt, taps)

    measure(Watching(1000), Work(1, 1, 1, 1), Ceilings(), kernel="portable", threads=1, seconds=0)
    assert len(set(seen)) == len(seen)


def test_a_short_context_is_refused() -> None:
    with pytest.raises(UsageError, match="bench kernels needs a context of at least 1057 tokens, got 512"):
        measure(TableTarget(50, max_length=512), Work(1, 1, 1, 1), Ceilings(), kernel="portable", threads=1)


def test_the_rows_and_contexts_are_those_that_speculation_uses() -> None:
    assert kernels.ROWS[:8] == (1, 2, 3, 4, 5, 6, 7, 8)
    assert kernels.CONTEXTS == (128, 1024)
