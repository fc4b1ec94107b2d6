"""What a plan is asked, and the assumptions that it rests on with their sources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from outpace.errors import UsageError
from outpace.theory import checks, memory
from outpace.theory.acceptance import KINDS
from outpace.theory.candidates import Candidate
from outpace.theory.roofline import ASSUMED, Deployment, Device, Efficiency, Precision
from outpace.theory.shape import ModelShape


@dataclass(frozen=True, slots=True)
class Question:
    """A target on a device under a load.

    context: tokens of a request, prompt and answer together. concurrency: requests at once; the first is the one
    planned for. devices: tensor parallelism. draft_precision: the target's where None. latency_target_seconds: a
    token's time that a request may take at most. acceptance: measured rates by kind of drafter ("draft", "eagle",
    "ngram"). cost: c of the draft models, measured. reserve_bytes: what driver and allocator keep on each device.
    """

    target: ModelShape
    device: Device
    precision: Precision
    drafts: tuple[ModelShape, ...] = ()
    draft_precision: Precision | None = None
    devices: int = 1
    context: int = 1024
    concurrency: tuple[int, ...] = (1, 8, 64)
    tasks: tuple[str, ...] = ("all",)
    latency_target_seconds: float | None = None
    acceptance: Mapping[str, float] = field(default_factory=dict)
    cost: float | None = None
    efficiency: Efficiency = ASSUMED
    source_tokens: int = 0
    reserve_bytes: float = 1e9

    def __post_init__(self) -> None:
        checks.count("context", self.context, 1, "tokens")
        checks.count("devices", self.devices, 1, "devices")
        if not self.concurrency:
            raise UsageError("concurrency must be at least one number of requests, got none")
        for requests in self.concurrency:
            checks.count("concurrency", requests, 1, "requests")
        if self.latency_target_seconds is not None:
            checks.positive("latency target", self.latency_target_seconds, "seconds")
        if self.cost is not None:
            checks.not_negative("cost", self.cost, "target passes per drafted token")
        for kind, rate in self.acceptance.items():
            if kind not in KINDS:
                raise UsageError(f"no kind of drafter '{kind}': known are {', '.join(KINDS)}")
            checks.fraction(f"acceptance of {kind}", rate)

    def deployment(self, shape: ModelShape, precision: Precision) -> Deployment:
        """Returns the model on the question's devices."""
        source = self.source_tokens if shape.encoder_layers else 0
        return Deployment(shape, self.device, precision, self.devices, self.efficiency, source)

    def demand(self, draft: ModelShape | None) -> memory.Demand:
        """Returns what the target with this draft needs of the memory."""
        return memory.Demand(
            target=self.target,
            precision=self.precision,
            context=self.context,
            draft=draft,
            draft_precision=self.draft_precision,
            devices=self.devices,
            source_tokens=self.source_tokens,
            reserve_bytes=self.reserve_bytes,
        )


@dataclass(frozen=True, slots=True)
class Assumption:
    """A number that the plan rests on, where it is from, and the option that replaces it."""

    name: str
    value: str
    source: str
    option: str


def assumptions(question: Question, found: Sequence[Candidate]) -> tuple[Assumption, ...]:
    """Returns everything that was assumed about these candidates and the device."""
    device, efficiency, arithmetic = question.device, question.efficiency, question.precision.arithmetic
    given = "yours" if efficiency != ASSUMED else "what good engines reach of a maker's peaks"
    maker, rate = f"{device.source}, {device.date}", device.rate(arithmetic) / 1e12
    rates = [
        Assumption(
            f"acceptance of {one.name}",
            f"{one.acceptance.value:.3f}",
            one.acceptance.source,
            "--acceptance X" if one.kind == "draft" else f"--acceptance {one.kind}=X",
        )
        for one in found
    ]
    cost = [] if question.cost is None else [Assumption("c of the drafts", f"{question.cost:g}", "given", "--cost")]
    return (
        *rates,
        *cost,
        Assumption("every position", "accepted alike", "Leviathan et al., section 3.1", "--acceptance"),
        Assumption("bandwidth", f"{device.bytes_per_s / 1e9:,.0f} GB/s", maker, "--device"),
        Assumption(f"{arithmetic} rate", f"{rate:,.1f} TFLOP/s", maker, "--device"),
        Assumption("of the bandwidth", f"{efficiency.memory:.0%}", given, "--memory-efficiency"),
        Assumption("of the rate", f"{efficiency.arithmetic:.0%}", given, "--compute-efficiency"),
        Assumption("a pass beside it", f"{1e3 * efficiency.pass_seconds:g} ms", "launches, scheduling", "--pass-ms"),
        Assumption("reserve", f"{question.reserve_bytes / 1e9:g} GB", "driver, kernels, allocator", "--reserve"),
    )
