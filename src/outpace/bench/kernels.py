"""How long one forward of the native engine takes, by rows, beside the least that the machine allows.

A forward must read every weight and the cache once, and do its multiply-adds; with the ceilings measured in the same
run, the floor of a forward is max(bytes / bandwidth, multiply-adds / rate). An instruction set may have two rates:
AVX2 without its dot instruction needs twice the products for codes of all 8 bits, which would saturate.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, TypeVar

from outpace.bench.peers import Peer
from outpace.errors import UsageError
from outpace.native.weights import WeightFile
from outpace.types import Draft, Prompt, Target, TargetSession

ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32)
CONTEXTS = (128, 1024)
PREFILL_TOKENS = 128
PEER_ROWS = (1, 8)
PEER_CONTEXT = 128
SETTLE_SECONDS = 0.3
BANDWIDTH_EVERY = 4
"""Forwards that are measured beside one measurement of the memory's bandwidth: a host that moves the cores changes it
within a second, and a floor is that of the time when the forward ran."""

FORWARDS = tuple((rows, context) for context in CONTEXTS for rows in ROWS)

WIDE_FORMATS = frozenset(("Q8_0", "IQ4_NL", "IQ4_XS"))  # codes of all 8 bits, if only those of a table


Case = TypeVar("Case")
KernelCase: TypeAlias = tuple[str, int, int]
"""What is measured; of how many rows or tokens, or which of a turn's bandwidths; after how long a context."""


class Ceilings(Protocol):
    """Measures what the machine allows: bytes/s read from memory, and integer multiply-adds/s."""

    def bandwidth(self) -> float: ...

    def integer_rate(self, *, wide: bool = False) -> float: ...


@dataclass(frozen=True, slots=True)
class Work:
    """What a forward cannot avoid: bytes of weights, bytes of cache a position, multiply-adds.

    weight_bytes: without an embedding that is only looked up. cache_bytes: of one position. row_macs: of one row with
    the weights, wide_macs of them with codes of all 8 bits. attention_macs: of one row with one position of the
    cache; no integer products, but counted at the higher rate, so that the floor stays a floor.
    """

    weight_bytes: int
    cache_bytes: int
    row_macs: int
    attention_macs: int
    wide_macs: int = 0

    @staticmethod
    def of(file: WeightFile) -> Work:
        """Returns the work of a Llama-family model, its weights at the file's own bits and a cache of f16."""
        config = file.config
        read = [info for name, info in file.tensors.items() if config.tied or name != "token_embd.weight"]
        matrices = [info for info in read if info.rows > 1]
        query, key = config.heads * config.head_dim, config.kv_heads * config.head_dim
        return Work(
            weight_bytes=sum(info.nbytes for info in read),
            cache_bytes=config.layers * 2 * key * 2,
            row_macs=sum(info.rows * info.cols for info in matrices),
            attention_macs=config.layers * 2 * query,
            wide_macs=sum(info.rows * info.cols for info in matrices if info.format in WIDE_FORMATS),
        )

    def floor_seconds(
        self, rows: int, context: int, bandwidth: float, integer_rate: float, wide_rate: float
    ) -> float:
        """Returns the least time of `rows` rows after `context` positions, at bytes/s and multiply-adds/s.

        wide_rate: of codes of all 8 bits.
        """
        read = self.weight_bytes + self.cache_bytes * context
        # Row i also sees the rows up to itself.
        seen = rows * context + rows * (rows + 1) // 2
        narrow = rows * (self.row_macs - self.wide_macs) + seen * self.attention_macs
        return max(read / bandwidth, narrow / integer_rate + rows * self.wide_macs / wide_rate)


@dataclass(frozen=True, slots=True)
class Forward:
    """One line of the table.

    seconds: median of the repeats. floor_seconds: that over the median ratio of the repeats to their own floors, by
    the bandwidth measured beside each.
    """

    rows: int
    context: int
    seconds: float
    floor_seconds: float

    @property
    def over_floor(self) -> float:
        return self.seconds / self.floor_seconds


@dataclass(frozen=True, slots=True)
class Against:
    """One case beside a peer's figure. factor: how many times as fast ours is."""

    case: str
    ours: float
    theirs: float
    unit: str
    factor: float


@dataclass(frozen=True, slots=True)
class PeerFigures:
    """The same measurements on another engine: {rows: seconds} after PEER_CONTEXT tokens, and tokens/s of prefill."""

    name: str
    version: str
    seconds_by_rows: Mapping[int, float]
    prefill_tokens_per_s: float


@dataclass(frozen=True, slots=True)
class KernelReport:
    """What `measure` found. repeats: the fewest that stand behind a median."""

    model: str
    kernel: str
    threads: int
    forward: tuple[Forward, ...]
    work: Work
    bandwidth_gb_per_s: float
    integer_gmac_per_s: float
    wide_gmac_per_s: float
    prefill_tokens_per_s: float
    repeats: int
    peer: PeerFigures | None = None

    def at(self, rows: int, context: int) -> Forward | None:
        """Returns the line of that many rows at that context; None where it was not measured."""
        return next((f for f in self.forward if (f.rows, f.context) == (rows, context)), None)

    @property
    def weights_gb_per_s(self) -> float:
        """The rate at which one row at the shortest context reads the weights."""
        one = min((f for f in self.forward if f.rows == 1), key=lambda f: f.context)
        return self.work.weight_bytes / one.seconds / 1e9

    def over_one_row(self, line: Forward) -> float:
        """Returns how many times as long a line takes as one row at its context."""
        one = self.at(1, line.context)
        assert one is not None, "every context is measured with one row"
        return line.seconds / one.seconds

    def gb_per_s(self, line: Forward) -> float:
        """Returns the rate at which a forward reads weights and cache."""
        return (self.work.weight_bytes + self.work.cache_bytes * line.context) / line.seconds / 1e9

    def against_peer(self) -> list[Against]:
        """Returns each figure of the peer beside ours; empty without a peer."""
        if self.peer is None:
            return []
        lines = []
        for rows, theirs in self.peer.seconds_by_rows.items():
            ours = self.at(rows, PEER_CONTEXT)
            if ours is not None:
                case = f"{rows} {'row' if rows == 1 else 'rows'} at context {PEER_CONTEXT}"
                lines.append(Against(case, 1e3 * ours.seconds, 1e3 * theirs, "ms", theirs / ours.seconds))
        ours_rate, their_rate = self.prefill_tokens_per_s, self.peer.prefill_tokens_per_s
        case = f"prefill of {PREFILL_TOKENS} tokens"
        return [*lines, Against(case, ours_rate, their_rate, "tokens/s", ours_rate / their_rate)]

    def record(self) -> dict[str, object]:
        """Returns the report as JSON has it."""
        record: dict[str, object] = {
            "model": self.model,
            "kernel": self.kernel,
            "threads": self.threads,
            "forward": [
                {"rows": f.rows, "context": f.context, "seconds": f.seconds, "floor_seconds": f.floor_seconds}
                for f in self.forward
            ],
            "weights_gb_per_s": self.weights_gb_per_s,
            "bandwidth_gb_per_s": self.bandwidth_gb_per_s,
            "integer_gmac_per_s": self.integer_gmac_per_s,
            "wide_gmac_per_s": self.wide_gmac_per_s,
            "prefill_tokens_per_s": self.prefill_tokens_per_s,
            "repeats": self.repeats,
        }
        if self.peer is not None:
            record["peer"] = {
                "name": self.peer.name,
                "version": self.peer.version,
                "context": PEER_CONTEXT,
                "forward": [{"rows": n, "seconds": s} for n, s in self.peer.seconds_by_rows.items()],
                "prefill_tokens_per_s": self.peer.prefill_tokens_per_s,
            }
        return record


def measure(
    target: Target,
    work: Work,
    ceilings: Ceilings,
    *,
    kernel: str,
    threads: int,
    seconds: float = 20.0,
    peer: Peer | None = None,
    progress: Callable[[float], None] = lambda fraction: None,
) -> KernelReport:
    """Returns the medians of interleaved repeats that take about `seconds` in all.

    Every measurement follows an untimed run of the same case, so that neither the wake-up of a thread pool nor
    what another engine left in the caches counts. Raises UsageError when the target's context is too short.
    """
    longest = max(CONTEXTS) + max(ROWS) + 1
    if target.max_length < longest:
        raise UsageError(f"bench kernels needs a context of at least {longest} tokens, got {target.max_length}")
    sessions = {context: _open(target, context) for context in CONTEXTS}
    try:
        samples = interleave(_cases(target, sessions, ceilings, peer), seconds, progress=progress)
    finally:
        for session in sessions.values():
            session.close()
    median = {case: statistics.median(values) for case, values in samples.items()}
    bandwidths = [values for (kind, _, _), values in samples.items() if kind == "bandwidth"]
    return KernelReport(
        model=target.name,
        kernel=kernel,
        threads=threads,
        forward=_forwards(work, samples, median["integer", 0, 0], median["wide", 0, 0]),
        work=work,
        bandwidth_gb_per_s=statistics.median(each for beside in bandwidths for each in beside) / 1e9,
        integer_gmac_per_s=median["integer", 0, 0] / 1e9,
        wide_gmac_per_s=median["wide", 0, 0] / 1e9,
        prefill_tokens_per_s=PREFILL_TOKENS / median["prefill", PREFILL_TOKENS, 0],
        repeats=min(len(values) for values in samples.values()),
        peer=None
        if peer is None
        else PeerFigures(
            peer.name,
            peer.version,
            {n: median["peer", n, PEER_CONTEXT] for n in PEER_ROWS},
            PREFILL_TOKENS / median["peer prefill", PREFILL_TOKENS, 0],
        ),
    )


def _cases(
    target: Target, sessions: Mapping[int, TargetSession], ceilings: Ceilings, peer: Peer | None
) -> dict[KernelCase, Callable[[], float]]:
    cases: dict[KernelCase, Callable[[], float]] = {}
    for number, (rows, context) in enumerate(FORWARDS):
        if number % BANDWIDTH_EVERY == 0:
            cases["bandwidth", number // BANDWIDTH_EVERY, 0] = ceilings.bandwidth
        cases["forward", rows, context] = _forward(target, sessions[context], rows, context)
    cases["prefill", PREFILL_TOKENS, 0] = _Prefill(target)
    cases["integer", 0, 0] = ceilings.integer_rate
    cases["wide", 0, 0] = lambda: ceilings.integer_rate(wide=True)
    if peer is not None:
        cases |= {("peer", n, PEER_CONTEXT): _peer_forward(peer, n) for n in PEER_ROWS}
        cases["peer prefill", PREFILL_TOKENS, 0] = _peer_prefill(peer)
    return cases


def _forwards(
    work: Work, samples: Mapping[KernelCase, Sequence[float]], rate: float, wide: float
) -> tuple[Forward, ...]:
    """Returns the table's lines: medians, and those of the ratios to each turn's own floor.

    Each ceiling is the best of several tries in every turn, and of the rates the median over turns counts: a machine
    shared with others may read at twice the rate for a moment, which the forwards of other turns never saw.
    """
    found = []
    for number, (rows, context) in enumerate(FORWARDS):
        times, beside = samples["forward", rows, context], samples["bandwidth", number // BANDWIDTH_EVERY, 0]
        floors = [work.floor_seconds(rows, context, bandwidth, rate, wide) for bandwidth in beside]
        ratio = statistics.median(spent / floor for spent, floor in zip(times, floors, strict=True))
        median = statistics.median(times)
        found.append(Forward(rows, context, median, median / ratio))
    return tuple(found)


def interleave(
    cases: Mapping[Case, Callable[[], float]],
    seconds: float,
    *,
    least: int = 5,
    clock: Callable[[], float] = time.perf_counter,
    progress: Callable[[float], None] = lambda fraction: None,
) -> dict[Case, list[float]]:
    """Returns what each case returned, over whole turns through all of them, until `seconds` have gone.

    In turns, so that a machine that slows down does so for all cases alike; at least `least` turns.
    """
    samples: dict[Case, list[float]] = {case: [] for case in cases}
    start, turns = clock(), 0
    while turns < least or clock() - start < seconds:
        for done, (case, run) in enumerate(cases.items()):
            samples[case].append(run())
            by_turns = (turns + done / len(cases)) / least
            by_time = (clock() - start) / seconds if seconds > 0 else 1.0
            progress(min(1.0, by_turns, by_time))
        turns += 1
    return samples


def _timed(run: Callable[[], object], after: Callable[[], object] = lambda: None) -> Callable[[], float]:
    def measured() -> float:
        run()
        after()
        start = time.perf_counter()
        run()
        seconds = time.perf_counter() - start
        after()
        return seconds

    return measured


def _ids(count: int, vocab_size: int, seed: int) -> tuple[int, ...]:
    pick = random.Random(seed)
    return tuple(pick.randrange(vocab_size) for _ in range(count))


def _open(target: Target, context: int) -> TargetSession:
    session, _ = target.open(Prompt(_ids(context + 1, target.vocab_size, seed=context)))
    return session


def _forward(target: Target, session: TargetSession, rows: int, context: int) -> Callable[[], float]:
    draft = Draft.chain(_ids(rows - 1, target.vocab_size, seed=rows))
    last = _ids(context + 1, target.vocab_size, seed=context)[-1]
    return _timed(lambda: target.score_many([(session, draft)]), after=lambda: session.rewind(context, last))


class _Prefill:
    """Times the prefill of a prompt never seen before, so that no cached prefix helps."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._seed = 1_000_000

    def __call__(self) -> float:
        self._once()
        return self._once()

    def _once(self) -> float:
        self._seed += 1
        prompt = Prompt(_ids(PREFILL_TOKENS + 1, self._target.vocab_size, self._seed))
        start = time.perf_counter()
        session, _ = self._target.open(prompt)
        seconds = time.perf_counter() - start
        session.close()
        return seconds


def _peer_forward(peer: Peer, rows: int) -> Callable[[], float]:
    return _settled(_timed(lambda: peer.score(rows)))


def _peer_prefill(peer: Peer) -> Callable[[], float]:
    return _settled(_timed(lambda: peer.prefill(PREFILL_TOKENS)))


def _settled(run: Callable[[], float]) -> Callable[[], float]:
    """Waits after each run until the peer's threads, which spin on for a while, have gone to sleep."""

    def measured() -> float:
        seconds = run()
        time.sleep(SETTLE_SECONDS)
        return seconds

    return measured
