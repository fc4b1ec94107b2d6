"""Does a target with its draft fit, and how many requests run at once in what is left.

    room = devices x memory - weights - draft weights - activations - reserve
    requests = floor(room / (cache of one request + draft cache of one request))

Gigabytes are 1e9 bytes, as makers of devices and publishers of models count them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import ceil

from outpace.errors import UsageError
from outpace.theory import checks
from outpace.theory.roofline import Device, Precision
from outpace.theory.shape import ModelShape

PAGE_TOKENS = 16
"""Positions in a page of the KV cache, vLLM's default; a request holds whole pages."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What is to run: a target, perhaps a draft, and requests of `context` tokens each.

    context: prompt and answer together. source_tokens: an encoder-decoder's source. forward_tokens: rows in the
    largest pass (a slice of a prefill). draft_precision: the target's where None. devices: tensor parallelism of
    both. reserve_bytes: what driver, kernels and allocator keep on each device.
    """

    target: ModelShape
    precision: Precision
    context: int
    draft: ModelShape | None = None
    draft_precision: Precision | None = None
    devices: int = 1
    source_tokens: int = 0
    forward_tokens: int = 2048
    reserve_bytes: float = 1e9

    def __post_init__(self) -> None:
        checks.count("context", self.context, 1, "tokens")
        checks.count("devices", self.devices, 1, "devices")
        checks.count("source_tokens", self.source_tokens, 0, "tokens")
        checks.count("forward_tokens", self.forward_tokens, 1, "tokens")
        checks.not_negative("reserve_bytes", self.reserve_bytes, "bytes")

    @property
    def without_draft(self) -> Demand:
        """The same requests on the target alone."""
        return replace(self, draft=None, draft_precision=None)


@dataclass(frozen=True, slots=True)
class Fit:
    """Where the memory of the devices goes, in bytes over all of them, and what remains for requests."""

    memory_bytes: float
    weight_bytes: float
    draft_weight_bytes: float
    activation_bytes: float
    reserve_bytes: float
    cache_bytes_per_request: float
    draft_cache_bytes_per_request: float

    @property
    def after_weights_bytes(self) -> float:
        """Memory less the weights of target and draft; below 0 where they do not fit."""
        return self.memory_bytes - self.weight_bytes - self.draft_weight_bytes

    @property
    def room_bytes(self) -> float:
        """Memory left for KV caches; below 0 where not even an idle engine fits."""
        return self.after_weights_bytes - self.activation_bytes - self.reserve_bytes

    @property
    def requests(self) -> int:
        """Requests of the full context that run at once; 0 where none fits."""
        per_request = self.cache_bytes_per_request + self.draft_cache_bytes_per_request
        return max(0, int(self.room_bytes // per_request))

    def fits(self, requests: int = 1) -> bool:
        """Returns True when `requests` of the full context run at once."""
        return self.requests >= checks.count("requests", requests, 1, "requests")

    def missing_bytes(self, requests: int = 1) -> float:
        """Returns the bytes that `requests` at once need beyond what there is; 0 where they fit."""
        checks.count("requests", requests, 1, "requests")
        needed = requests * (self.cache_bytes_per_request + self.draft_cache_bytes_per_request)
        return max(0.0, needed - self.room_bytes)


def weight_bytes(parameters: float, bytes_per_parameter: float) -> float:
    """Returns parameters x bytes a parameter."""
    checks.positive("parameters", parameters, "parameters")
    return parameters * checks.positive("bytes_per_parameter", bytes_per_parameter, "bytes")


def cache_bytes(shape: ModelShape, bytes_per_value: float, context: int, source_tokens: int = 0) -> float:
    """Returns the bytes of one request's KV cache, in whole pages.

    2 x layers x key-value heads x head size x positions x bytes (grouped-query attention, Ainslie et al., arXiv
    2305.13245); sliding layers keep their window at most.
    """
    checks.count("context", context, 0, "tokens")
    checks.positive("bytes_per_value", bytes_per_value, "bytes")
    return shape.cached_values(ceil(context / PAGE_TOKENS) * PAGE_TOKENS, source_tokens) * bytes_per_value


def activation_bytes(shape: ModelShape, tokens: int, logit_rows: int | None = None) -> float:
    """Returns the bytes of the intermediate results that are alive at once in a pass over `tokens` rows.

    An estimate: the residual and its normalised copy, queries, keys, values, or the two halves of the gated
    feed-forward part, whichever is larger, in 16 bits; and `logit_rows` (by default min(tokens, 256)) of logits
    in 32 bits.
    """
    checks.count("tokens", tokens, 1, "tokens")
    attention = shape.head_size * (2 * shape.heads + 2 * shape.kv_heads)
    wide = max(shape.feed_forward_size, shape.experts_per_token * shape.expert_size + shape.shared_expert_size)
    rows = min(tokens, 256) if logit_rows is None else checks.count("logit_rows", logit_rows, 0, "rows")
    return 2.0 * tokens * (2 * shape.hidden_size + max(attention, 2 * wide)) + 4.0 * rows * shape.vocab_size


def fit(demand: Demand, device: Device) -> Fit:
    """Returns where the memory of `demand.devices` devices goes; `Fit.fits` says whether it is enough.

    Key-value heads are split over the devices; devices beyond their number hold copies of the cache.
    """
    target, draft, source = demand.target, demand.draft, demand.source_tokens
    draft_precision = demand.draft_precision or demand.precision

    def cached(shape: ModelShape, held: Precision) -> float:
        copies = max(1.0, demand.devices / shape.kv_heads)
        return copies * cache_bytes(shape, held.cache_bytes, demand.context, source)

    return Fit(
        memory_bytes=demand.devices * device.memory_bytes,
        weight_bytes=weight_bytes(target.parameters, demand.precision.weight_bytes),
        draft_weight_bytes=weight_bytes(draft.parameters, draft_precision.weight_bytes) if draft else 0.0,
        # The draft runs after the target, in the same buffers.
        activation_bytes=max(activation_bytes(shape, demand.forward_tokens) for shape in (target, draft) if shape),
        reserve_bytes=demand.devices * demand.reserve_bytes,
        cache_bytes_per_request=cached(target, demand.precision),
        draft_cache_bytes_per_request=cached(draft, draft_precision) if draft else 0.0,
    )


def requests_lost(demand: Demand, device: Device) -> int:
    """Returns how many requests fewer run at once because of the draft's weights and cache."""
    if demand.draft is None:
        raise UsageError("a demand without a draft loses no requests to it: give a draft")
    return fit(demand.without_draft, device).requests - fit(demand, device).requests


def largest_draft(
    demand: Demand, device: Device, drafts: Iterable[ModelShape], requests: int = 1
) -> ModelShape | None:
    """Returns the draft with the most parameters that leaves room for `requests`; None where none of them does."""
    fitting = [draft for draft in drafts if fit(replace(demand, draft=draft), device).fits(requests)]
    return max(fitting, key=lambda draft: draft.parameters, default=None)


def next_device(demand: Demand, devices: Mapping[str, Device], requests: int = 1) -> Device | None:
    """Returns the device with the least memory on which `requests` run at once; None where none is large enough."""
    fitting = [device for device in devices.values() if fit(demand, device).fits(requests)]
    return min(fitting, key=lambda device: device.memory_bytes, default=None)
