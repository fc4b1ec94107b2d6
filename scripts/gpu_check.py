#!/usr/bin/env python3
"""Checks exactness and times plain against speculative decoding on a CUDA machine (or a CPU), inside five minutes.

On CUDA both with passes as the engine records them (CUDA graphs over a static cache) and with eager ones.

    python scripts/gpu_check.py                     # an 8B-shaped target, a 1B-shaped draft, bfloat16, on the GPU
    python scripts/gpu_check.py --size tiny --device cpu --dtype float32

Weights are random, since their quality is not the question: the acceptance rate is set by construction. The last norm
of both models is zero, so that their laws are their heads' biases: p is uniform over the vocabulary, q over a share
alpha of it. Then sum min(p, q) = alpha at every position, and the work is that of real models of the size.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from itertools import groupby
from time import perf_counter as clock
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from transformers import LlamaConfig, LlamaForCausalLM, PhiConfig, PhiForCausalLM

from outpace.control import FixedController
from outpace.decode import Round, generate
from outpace.noise import RoundNoise
from outpace.registry import DRAFTERS, RULES
from outpace.sampling import Sampler, SamplingParams
from outpace.targets.torch_causal import TorchTarget
from outpace.targets.torch_static import nothing_recorded, recorder_of
from outpace.types import EMPTY, Draft, Prompt, Step, Verdict

SHAPES = {
    # size: ((hidden, ffn, layers, heads) of the target, of the draft, vocabulary)
    "tiny": ((32, 64, 2, 4), (16, 32, 1, 2), 1000),
    "8b": ((4096, 21504, 32, 32), (2048, 8192, 16, 16), 32000),
}
PROMPT = tuple(range(5, 37))
SEED = 7


@dataclass(frozen=True, slots=True)
class Measured:
    """One run. expected: (1 - alpha^(gamma + 1)) / (1 - alpha) tokens a step; error: its standard error here.

    passes: how the target's were launched. plain_tokens_per_second, speedup: of and over plain decoding so launched.
    """

    passes: str
    alpha: float
    length: int
    tokens_per_step: float
    expected: float
    error: float
    tokens_per_second: float
    plain_tokens_per_second: float

    @property
    def speedup(self) -> float:
        return self.tokens_per_second / self.plain_tokens_per_second

    @property
    def agrees(self) -> bool:
        """Whether the tokens a step are within four standard errors of the formula."""
        return abs(self.tokens_per_step - self.expected) <= 4 * self.error


def constructed(shape: tuple[int, int, int, int], vocab: int, share: float, device: str, dtype: torch.dtype) -> Any:
    """Returns a random model whose law is uniform over the first `share` of the vocabulary, whatever came before."""
    hidden, ffn, layers, heads = shape
    config = PhiConfig(
        vocab_size=vocab,
        hidden_size=hidden,
        intermediate_size=ffn,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        max_position_embeddings=2048,
    )
    torch.manual_seed(SEED)
    with torch.device(device):
        model = PhiForCausalLM._from_config(config, dtype=dtype).eval()
    with torch.no_grad():
        norm = model.model.final_layernorm
        norm.weight.zero_()
        norm.bias.zero_()
        model.lm_head.bias.zero_()
        model.lm_head.bias[round(share * vocab) :] = -1e4
    return model


def run(
    target: TorchTarget, draft: TorchTarget | None, length: int, tokens: int, seed: int
) -> tuple[list[Step], float]:
    """Returns the Steps under rule `rejection`, and the seconds of decoding."""
    drafter = DRAFTERS.get("none" if draft is None else "model")(target, draft)
    params = SamplingParams(temperature=1.0, seed=seed)
    session, context = target.open(Prompt(PROMPT))
    laws = Sampler(params, seed, shares_noise=False)
    one = Round(
        session=session,
        drafting=drafter.open(Prompt(PROMPT), context, laws),
        committed=list(PROMPT),
        limit=len(PROMPT) + tokens,
        vocab_size=target.vocab_size,
        laws=Sampler(params, seed),
        rule=RULES.get("rejection")(),
        noise=lambda committed: RoundNoise(seed, 0, committed),
        controller=FixedController(length if draft else 0),
        stop=lambda token: None,
    )
    start = clock()
    steps = list(generate(one, target, drafter))
    seconds = clock() - start
    if one.fault:
        raise SystemExit(f"the drafter was dropped: {one.fault}")
    session.close()
    return steps, seconds


def tokens_per_step(alpha: float, length: int) -> tuple[float, float]:
    """Returns the mean and the standard deviation of tokens a step, acceptances being independent."""
    masses = [alpha**k * (1 - alpha) for k in range(length)] + [alpha**length]
    mean = sum((k + 1) * mass for k, mass in enumerate(masses))
    return mean, float(np.sqrt(sum((k + 1 - mean) ** 2 * mass for k, mass in enumerate(masses))))


def measure(
    size: str, device: str, dtype: torch.dtype, alphas: list[float], length: int, tokens: int
) -> list[Measured]:
    """Returns one record an alpha, plain decoding beside each; on CUDA for recorded passes, then for eager ones."""
    shape, small, vocab = SHAPES[size]
    model = constructed(shape, vocab, 1.0, device, dtype)
    found = []
    for record in (recorder_of, nothing_recorded) if torch.device(device).type == "cuda" else (recorder_of,):
        target = TorchTarget(model, "target", proved=False, record=record)
        _, seconds = timed(target, None, 0, tokens)
        for alpha in alphas:
            drafting = constructed(small, vocab, alpha, device, dtype)
            draft = TorchTarget(drafting, "draft", proved=False, record=record)
            steps, took = timed(target, draft, length, tokens)
            whole = [step for step in steps if step.finish is None]  # the last one is cut
            mean, deviation = tokens_per_step(alpha, length)
            found.append(
                Measured(
                    target.passes,
                    alpha,
                    length,
                    sum(len(step.tokens) for step in whole) / len(whole),
                    mean,
                    deviation / len(whole) ** 0.5,
                    tokens / took,
                    tokens / seconds,
                )
            )
            del draft, drafting
    return found


def timed(target: TorchTarget, draft: TorchTarget | None, length: int, tokens: int) -> tuple[list[Step], float]:
    """Returns the Steps and seconds of a second run: in the first one passes are slow, or being recorded."""
    run(target, draft, length, tokens if target.device.type == "cuda" else 4, SEED)
    return run(target, draft, length, tokens, SEED)


def exactness(size: str, device: str, dtype: torch.dtype) -> tuple[float, float]:
    """Returns how far tree and batch scores are from single tokens', as a share of what one other token changes."""
    (hidden, ffn, layers, heads), _, vocab = SHAPES[size]
    config = LlamaConfig(
        vocab_size=vocab, hidden_size=hidden, intermediate_size=ffn * 2 // 3, num_hidden_layers=layers,
        num_attention_heads=heads, num_key_value_heads=heads // 2, initializer_range=0.05,
    )  # fmt: skip
    torch.manual_seed(SEED)
    with torch.device(device):
        model = LlamaForCausalLM._from_config(config, dtype=dtype).eval()
    target = TorchTarget(model, "llama")  # raises when drafts are not scored as single tokens are
    if not (target.scores_trees and target.joins_requests):
        raise SystemExit("trees or batches are not scored as single tokens are")
    path = (9, 8, 7)
    session, _ = target.open(Prompt(PROMPT))
    rows = []
    for token in path:
        rows.append(np.array(target.score_many([(session, EMPTY)])[0].logits[0]))
        session.commit(EMPTY, Verdict((), token))
    tree = Draft((3, 9, 4, 8, 7), (-1, -1, 0, 1, 3), (None,) * 5)
    fresh, _ = target.open(Prompt(PROMPT))
    other, _ = target.open(Prompt(PROMPT[:7]))
    scores = target.score_many([(fresh, tree), (other, EMPTY)])[0].logits
    changed = float(np.abs(scores[3] - scores[4]).max())  # after 3 4 instead of 9 8
    off = max(float(np.abs(scores[i] - row).max()) for i, row in zip((0, 2, 4), rows, strict=True))
    return off, off / changed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SHAPES, default="8b")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", choices=("bfloat16", "float16", "float32"), default="bfloat16")
    parser.add_argument("--alpha", type=float, nargs="+", default=[0.5, 0.7, 0.9])
    parser.add_argument("--draft-length", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--threads", type=int, help="of a CPU; PyTorch's own by default")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    dtype = getattr(torch, options.dtype)
    off, share = exactness(options.size, options.device, dtype)
    found = measure(options.size, options.device, dtype, options.alpha, options.draft_length, options.tokens)
    if options.json:
        names = (*Measured.__slots__, "speedup", "agrees")
        records = [{name: getattr(one, name) for name in names} for one in found]
        print(json.dumps({"off": off, "share": share, "runs": records}))
        return 0
    console = Console()
    console.print(
        f"tree and batch against single tokens: off by {off:.2g}, {100 * share:.2g} % of another token's effect"
    )
    title = f"{options.size} on {options.device}, {options.dtype}, drafts of {options.draft_length}, rule rejection"
    for passes, alike in groupby(found, key=lambda one: one.passes):
        columns = ("alpha", "tokens a step", "formula", "+- (1 s.e.)", "tokens/s", "times plain")
        table = Table(*columns, title=f"{title}: {passes}")
        rows = list(alike)
        table.caption = f"plain decoding: {rows[0].plain_tokens_per_second:.1f} tokens/s"
        for one in rows:
            table.add_row(
                f"{one.alpha:g}", f"{one.tokens_per_step:.3f}", f"{one.expected:.3f}", f"{one.error:.3f}",
                f"{one.tokens_per_second:.1f}", f"{one.speedup:.2f}",
            )  # fmt: skip
        console.print(table)
    return 0 if all(one.agrees for one in found) else 1


if __name__ == "__main__":
    sys.exit(main())
