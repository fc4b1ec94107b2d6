"""Seconds of a forward pass from bytes, operations and what a device can do.

A pass over B requests with n rows each is two kinds of work in turn, each bound by memory or by arithmetic:

    linear     max(weight bytes / bandwidth, 2 x active parameters x B n / peak rate)
    attention  max(cache bytes / bandwidth,  4 x heads x head size x positions x layers x B n / peak rate)

The roofline of Williams, Waterman and Patterson (CACM 52(4), 2009), applied to decoding as in Pope et al.
(arXiv 2211.05102, section 2). Rows of a draft share the weights and the request's cache, so they are free while
memory bounds; a batch shares the weights only, so many requests with short contexts leave no room for drafts.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.resources import files

from outpace.errors import UsageError
from outpace.theory import checks
from outpace.theory.costs import StepCosts, best_draft_length
from outpace.theory.shape import ModelShape
from outpace.theory.speedup import Choice


@dataclass(frozen=True, slots=True)
class Device:
    """What one accelerator or processor can do at most, as its maker states it.

    flop_per_s: dense peak by arithmetic ("bf16", "fp8", "int8", "fp4"), a multiply-add counted as two.
    link_bytes_per_s: to its neighbours, one direction; 0 where there is none. source: where the figures are from;
    date: year and month of that source.
    """

    name: str
    memory_bytes: float
    bytes_per_s: float
    flop_per_s: Mapping[str, float]
    link_bytes_per_s: float
    source: str
    date: str

    def __post_init__(self) -> None:
        checks.positive(f"memory_bytes of {self.name}", self.memory_bytes, "bytes")
        checks.positive(f"bytes_per_s of {self.name}", self.bytes_per_s, "bytes per second")
        checks.not_negative(f"link_bytes_per_s of {self.name}", self.link_bytes_per_s, "bytes per second")
        for arithmetic, rate in self.flop_per_s.items():
            checks.positive(f"{arithmetic} flop_per_s of {self.name}", rate, "operations per second")

    def rate(self, arithmetic: str) -> float:
        """Returns the peak operations per second of `arithmetic`; raises UsageError where the device has none."""
        if arithmetic not in self.flop_per_s:
            raise UsageError(
                f"{self.name} has no {arithmetic} arithmetic, only {', '.join(self.flop_per_s) or 'none'}: "
                "choose a precision that computes in one of these (w8a16 keeps 8-bit weights and computes in bf16)"
            )
        return self.flop_per_s[arithmetic]


@dataclass(frozen=True, slots=True)
class Precision:
    """How numbers are held: bytes a parameter (block scales included), bytes a cached value, and the arithmetic."""

    name: str
    weight_bytes: float
    cache_bytes: float
    arithmetic: str

    def __post_init__(self) -> None:
        checks.positive(f"weight_bytes of precision '{self.name}'", self.weight_bytes, "bytes a parameter")
        checks.positive(f"cache_bytes of precision '{self.name}'", self.cache_bytes, "bytes a value")


PRECISIONS: Mapping[str, Precision] = {
    precision.name: precision
    for precision in (
        Precision("bf16", 2.0, 2.0, "bf16"),
        Precision("fp8", 1.0, 2.0, "fp8"),
        Precision("fp8-cache8", 1.0, 1.0, "fp8"),
        Precision("int8", 1.0, 2.0, "int8"),
        Precision("w8a16", 1.0, 2.0, "bf16"),
        Precision("int4", 4.25 / 8, 2.0, "bf16"),  # groups of 128 with a scale and a zero: AWQ, GPTQ
        Precision("fp4", 4.5 / 8, 2.0, "fp4"),  # groups of 16 with an 8-bit scale: NVFP4
        Precision("q8_0", 8.5 / 8, 2.0, "int8"),
        Precision("q4_k_m", 4.9 / 8, 2.0, "int8"),  # a mixture; this is its mean over an 8B model
        Precision("q4_1", 5.0 / 8, 2.0, "int8"),
    )
}
"""Known precisions by name. Weight-only formats compute in bf16 on accelerators, GGUF's in int8 on CPUs."""


@dataclass(frozen=True, slots=True)
class Efficiency:
    """Which share of a device's peaks a good engine reaches, and what a pass costs beside it. Assumptions, not facts.

    memory, arithmetic: shares in (0, 1]. Measured decode kernels read at 80 to 90 % of the stated bandwidth; large
    matrix products reach 60 to 75 % of the stated rate under power limits. pass_seconds: launches and scheduling
    of one pass. hop_seconds: latency of one all-reduce among devices.
    """

    memory: float = 0.85
    arithmetic: float = 0.65
    pass_seconds: float = 0.0
    hop_seconds: float = 10e-6

    def __post_init__(self) -> None:
        for name in ("memory", "arithmetic"):
            if not 0.0 < getattr(self, name) <= 1.0:
                raise UsageError(f"{name} efficiency must be in (0, 1], got {getattr(self, name)}")
        checks.not_negative("pass_seconds", self.pass_seconds, "seconds")
        checks.not_negative("hop_seconds", self.hop_seconds, "seconds")


ASSUMED = Efficiency()
IDEAL = Efficiency(memory=1.0, arithmetic=1.0, pass_seconds=0.0, hop_seconds=0.0)


@dataclass(frozen=True, slots=True)
class Deployment:
    """A model on one or more devices: what it takes to say how long a pass is.

    devices: tensor parallelism; weights and heads are split evenly. source_tokens: length of an encoder-decoder's
    source.
    """

    shape: ModelShape
    device: Device
    precision: Precision
    devices: int = 1
    efficiency: Efficiency = ASSUMED
    source_tokens: int = 0

    def __post_init__(self) -> None:
        checks.count("devices", self.devices, 1, "devices")
        checks.count("source_tokens", self.source_tokens, 0, "tokens")
        if self.devices > 1 and self.device.link_bytes_per_s <= 0.0:
            raise UsageError(f"{self.device.name} has no link to others, got devices = {self.devices}: use 1")

    @property
    def bytes_per_s(self) -> float:
        """Bytes per second that the devices read together."""
        return self.devices * self.device.bytes_per_s * self.efficiency.memory

    @property
    def flop_per_s(self) -> float:
        """Operations per second that the devices do together, in this precision's arithmetic."""
        return self.devices * self.device.rate(self.precision.arithmetic) * self.efficiency.arithmetic

    @property
    def cache_copies(self) -> float:
        """How often the KV cache is read in all: devices beyond the key-value heads hold copies."""
        return max(1.0, self.devices / self.shape.kv_heads)

    def forward(self, batch: int, rows: int, context: int) -> Forward:
        """Returns the parts of a pass over `batch` requests of `rows` rows each, `context` positions cached before.

        rows = 1 is plain decoding, gamma + 1 scores a draft, and context = 0 is a prefill of `rows` tokens.
        """
        checks.count("batch", batch, 1, "requests")
        checks.count("rows", rows, 1, "rows")
        checks.count("context", context, 0, "tokens")
        tokens, shape = batch * rows, self.shape
        weight_bytes = shape.read_parameters(tokens) * self.precision.weight_bytes
        cached = shape.cached_values(context + rows, self.source_tokens)
        cache_bytes = batch * cached * self.precision.cache_bytes * self.cache_copies
        # Row i looks back on context + i positions: on average half of the rows' own.
        looked_at = shape.attention_operations(context + (rows + 1) / 2, self.source_tokens)
        # Attention multiplies in 16 bits whatever the weights are, where the device has such arithmetic.
        attention_rate = max(self.device.flop_per_s.get("bf16", 0.0), self.device.rate(self.precision.arithmetic) / 2)
        return Forward(
            weight_seconds=weight_bytes / self.bytes_per_s,
            linear_seconds=2.0 * shape.active_parameters * tokens / self.flop_per_s,
            cache_seconds=cache_bytes / self.bytes_per_s,
            attention_seconds=tokens * looked_at / (self.devices * attention_rate * self.efficiency.arithmetic),
            link_seconds=self._link_seconds(tokens),
            pass_seconds=self.efficiency.pass_seconds,
        )

    def seconds(self, batch: int, rows: int, context: int) -> float:
        """Returns the seconds of that pass; see `forward`."""
        return self.forward(batch, rows, context).seconds

    def _link_seconds(self, tokens: int) -> float:
        """Two all-reduces a layer of [tokens, hidden] in 16 bits; a ring sends 2 (d - 1) / d of the data."""
        if self.devices == 1:
            return 0.0
        sent = 2.0 * (self.devices - 1) / self.devices * tokens * self.shape.hidden_size * 2.0
        return 2 * self.shape.layers * (sent / self.device.link_bytes_per_s + self.efficiency.hop_seconds)


@dataclass(frozen=True, slots=True)
class Forward:
    """The seconds of one pass by what takes them; memory and arithmetic of one kind of work overlap."""

    weight_seconds: float
    linear_seconds: float
    cache_seconds: float
    attention_seconds: float
    link_seconds: float
    pass_seconds: float

    @property
    def seconds(self) -> float:
        """Seconds of the whole pass."""
        linear = max(self.weight_seconds, self.linear_seconds)
        return linear + max(self.cache_seconds, self.attention_seconds) + self.link_seconds + self.pass_seconds

    @property
    def bandwidth_bound(self) -> bool:
        """True while the linear layers wait for weights, so that further rows are free there."""
        return self.weight_seconds >= self.linear_seconds


def bandwidth_bound_rows(deployment: Deployment) -> int:
    """Returns the most rows (batch x rows a request) at which the linear layers still wait for their weights.

    For a dense model bytes a parameter x rate / (2 x bandwidth); for a mixture of experts later, as rows add
    experts to read. 0 where a single row is bound by arithmetic.
    """

    def bound(tokens: int) -> bool:
        return deployment.forward(1, tokens, 0).bandwidth_bound

    if not bound(1):
        return 0
    high = 1
    while bound(high):
        high *= 2
        if high > 1 << 24:
            raise UsageError(f"{deployment.device.name} stays bandwidth-bound beyond {high} rows: check its figures")
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if bound(middle) else (low, middle)
    return low


def step_costs(
    target: Deployment, draft: Deployment | None, batch: int, context: int, overhead_seconds: float = 0.0
) -> StepCosts:
    """Returns the costs of a step of `batch` requests with `context` tokens each.

    draft: a pass of it is one row a request and drafts one token each; None for a drafter without passes (n-grams).
    """
    draft_seconds = draft.seconds(batch, 1, context) if draft else 0.0
    return StepCosts(
        score=lambda rows: target.seconds(batch, rows, context),
        draft_seconds_per_token=draft_seconds,
        overhead_seconds=overhead_seconds,
    )


def speedup_by_batch(
    conditional_acceptances: Sequence[float], costs: Callable[[int], StepCosts], batches: Sequence[int]
) -> Mapping[int, Choice]:
    """Returns the best draft length and its speed-up at each batch; length 0 where speculation does not pay.

    costs: the step's costs at a batch, for example from `step_costs`. Speed-up is of each request's tokens per
    second and of the batch's alike.
    """
    return {
        checks.count("batch", batch, 1, "requests"): best_draft_length(conditional_acceptances, costs(batch))
        for batch in batches
    }


def last_paying_batch(
    conditional_acceptances: Sequence[float],
    costs: Callable[[int], StepCosts],
    most: int = 4096,
    least_gain: float = 1.05,
) -> int | None:
    """Returns the greatest batch at which speculation pays; 0 where it never does, None where it does at `most`.

    It pays while the best speed-up is at least `least_gain`; 1.05 keeps the model's own error in hand. Where the
    caches outgrow the weights it pays at every batch (MagicDec, Sadhukhan et al., arXiv 2408.11049). Batches are
    looked at in powers of two, since experts can make middle batches the best, and the last change is halved.
    """
    checks.count("most", most, 1, "requests")

    def pays(batch: int) -> bool:
        return best_draft_length(conditional_acceptances, costs(batch)).speedup >= least_gain

    grid = [batch for power in range(most.bit_length()) if (batch := 1 << power) < most] + [most]
    low = max((batch for batch in grid if pays(batch)), default=0)
    if low == most:
        return None
    if low == 0:
        return 0
    high = grid[grid.index(low) + 1]
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if pays(middle) else (low, middle)
    return low


def cost_by_bytes(draft_bytes: float, target_bytes: float) -> float:
    """Returns c when both models wait for memory: bytes the draft reads a token over those of the target."""
    return checks.not_negative("draft_bytes", draft_bytes, "bytes") / checks.positive(
        "target_bytes", target_bytes, "bytes"
    )


def precision(name: str) -> Precision:
    """Returns a known precision; raises UsageError with the known names."""
    if name.lower() not in PRECISIONS:
        raise UsageError(f"no precision '{name}': known are {', '.join(PRECISIONS)}")
    return PRECISIONS[name.lower()]


def device(name: str) -> Device:
    """Returns a known device; the name is matched without case. Raises UsageError with the closest names."""
    known = devices()
    if name.lower() in known:
        return known[name.lower()]
    close = get_close_matches(name.lower(), known, n=3, cutoff=0.4)
    hint = f"did you mean {', '.join(close)}?" if close else f"known: {', '.join(known)}."
    raise UsageError(f"no device '{name}': {hint} Its memory, bandwidth and peak rate can be given as numbers too")


@cache
def devices() -> Mapping[str, Device]:
    """Returns every known device by name, in the order of devices.toml."""
    found = {}
    for name, entry in tomllib.loads(files("outpace.theory").joinpath("devices.toml").read_text("utf-8")).items():
        found[name] = Device(
            name=name,
            memory_bytes=entry["memory_gb"] * 1e9,
            bytes_per_s=entry["gb_per_s"] * 1e9,
            flop_per_s={kind: rate * 1e12 for kind, rate in entry["tflop_per_s"].items()},
            link_bytes_per_s=entry.get("link_gb_per_s", 0.0) * 1e9,
            source=entry["source"],
            date=entry["date"],
        )
    return found
