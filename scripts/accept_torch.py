"""The torch engine: exported models, `generate`, drafts of every kind; Whisper where its folder is given."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from time import perf_counter as clock
from typing import Any

import numpy as np
from acceptance import Line, NotRun, Outcome
from first_light.common import DRAFT, EMBEDDED, SEED, TARGET, file_of, per_task

import outpace
from outpace import models
from outpace.api import Model
from outpace.models.store import search_folders

SPEECH = Path(__file__).parents[1] / "tests" / "hf" / "boats.wav"
TOKENS = 96


@cache
def folder(name: str, dtype: str) -> Path:
    """Returns a transformers folder of a catalogue model: NAME-TYPE where models are, else made for this run."""
    for known in search_folders():
        if (known / f"{name}-{dtype}" / "config.json").is_file():
            return known / f"{name}-{dtype}"
    made = Path(tempfile.mkdtemp(prefix="outpace-torch-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return models.export(file_of(name), made / f"{name}-{dtype}", dtype)


@cache
def load(name: str, dtype: str) -> Model:
    try:
        return outpace.load(folder(name, dtype), engine="torch", device="cpu")
    except outpace.MissingExtra as error:
        raise NotRun(str(error)) from None


def questions(count: int = 1) -> list[tuple[str, str]]:
    return per_task(count)


def speed() -> Iterator[Outcome]:
    """Plain decoding and n-grams beside transformers' own, interleaved, best of two, totals over prompts."""
    import torch
    from transformers import AutoModelForCausalLM

    model = load(EMBEDDED, "bfloat16")
    theirs = AutoModelForCausalLM.from_pretrained(folder(EMBEDDED, "bfloat16"), dtype=torch.bfloat16).eval()
    times = dict.fromkeys(("ours", "generate", "n-grams", "lookup", "default"), 0.0)
    tokens = dict.fromkeys(times, 0)
    inside = total = 0.0
    for _, question in questions(1):
        ids = model.text.render_chat([{"role": "user", "content": question}])
        given = {"inputs": torch.tensor([ids]), "attention_mask": torch.ones(1, len(ids), dtype=torch.long)}
        own = {"max_new_tokens": TOKENS, "do_sample": False, "pad_token_id": 0}
        best = dict.fromkeys(times, (float("inf"), 0))
        for _ in range(2):
            for name, how in (("ours", "none"), ("n-grams", "ngram"), ("default", "auto")):
                result = model.generate(question, max_tokens=TOKENS, drafter=how)
                best[name] = min(best[name], (result.seconds.decode, len(result.tokens)))
                if name == "ours":
                    inside, total = inside + result.seconds.score, total + result.seconds.decode
            for name, more in (("generate", {}), ("lookup", {"prompt_lookup_num_tokens": 10})):
                with torch.inference_mode():
                    start = clock()
                    theirs.generate(**given, **own | {"max_new_tokens": 1})
                    first = clock() - start
                    start = clock()
                    out = theirs.generate(**given, **own, **more)
                    # Less the prompt and the first token, which came with it.
                    best[name] = min(best[name], (clock() - start - first, out.shape[1] - len(ids) - 1))
        for name, (seconds, count) in best.items():
            times[name] += seconds
            tokens[name] += count
    rate = {name: tokens[name] / times[name] for name in times}
    shown = ", ".join(f"{name} {value:.1f}" for name, value in rate.items())
    yield Outcome("tokens/s", shown, "", True)
    ratio = rate["ours"] / rate["generate"]
    yield Outcome("our plain decoding over generate", f"{ratio:.2f}", ">= 1.0", ratio >= 1.0)
    ratio = rate["n-grams"] / rate["lookup"]
    yield Outcome("our n-grams over prompt lookup", f"{ratio:.2f}", ">= 1.3", ratio >= 1.3)
    outside = 100 * (1 - inside / total)
    yield Outcome("time outside the forward", f"{outside:.1f} %", "< 10 %", outside < 10)


def same_text() -> Iterator[Outcome]:
    """In float32 the exported model writes what it writes without drafts; half precision is counted."""
    for dtype, count in (("float32", 2), ("bfloat16", 10)):
        model = load(EMBEDDED, dtype)
        different, margins, prompts = 0, [], questions(count)
        for _, question in prompts:
            plain = model.generate(question, max_tokens=TOKENS, drafter="none", logprobs=2)
            ours = model.generate(question, max_tokens=TOKENS, drafter="ngram", draft_length=4)
            if ours.tokens == plain.tokens:
                continue
            different += 1
            place = next(i for i, (a, b) in enumerate(zip(ours.tokens, plain.tokens, strict=False)) if a != b)
            margins.append(_margin(plain, place))
        listed = ", ".join(f"{margin:.3f}" for margin in sorted(margins))
        figure = f"{different} of {len(prompts)} texts differ" + (
            f"; margins of the top two: {listed}" if margins else ""
        )
        yield Outcome(dtype, figure, "0" if dtype == "float32" else "counted", different == 0 or dtype != "float32")


def _margin(result: Any, place: int) -> float:
    """Returns how much likelier, in nats, the first token was than the second where two texts part."""
    (_, first), (_, second) = result.logprobs[place].top
    return float(first - second)


def vocabularies() -> Iterator[Outcome]:
    """SmolLM2 drafts for Qwen2.5-Coder on the native engine, which speak other tokens."""
    for how in ("token", "string"):
        model = outpace.load(file_of(TARGET), draft=file_of(EMBEDDED), translate=how, context=4096)
        for temperature in (0.0, 1.0):
            accepted = drafted = 0
            seconds = [0.0, 0.0]
            same = True
            for _, question in questions(1):
                settings = {"max_tokens": 48, "temperature": temperature, "seed": SEED}
                ours = model.generate(question, draft_length=4, **settings)
                plain = model.generate(question, drafter="none", **settings)
                same &= ours.tokens == plain.tokens and ours.fault is None
                accepted, drafted = accepted + ours.accepted, drafted + ours.drafted
                seconds = [seconds[0] + ours.seconds.decode, seconds[1] + plain.seconds.decode]
            share, gain = accepted / drafted, seconds[1] / seconds[0]
            figure = (
                f"{share:.3f} of {drafted} accepted, {gain:.2f} times as fast, texts {'equal' if same else 'DIFFER'}"
            )
            yield Outcome(f"{how} by {how}, temperature {temperature:g}", figure, "texts equal", same)


def constructed() -> Iterator[Outcome]:
    """A pair whose acceptance is alpha by construction, rule rejection, drafts of four."""
    import torch
    from gpu_check import measure

    for one in measure("tiny", "cpu", torch.float32, [0.5, 0.7, 0.9], 4, 1900):
        figure = f"{one.tokens_per_step:.3f} tokens a step, formula {one.expected:.3f}"
        yield Outcome(f"alpha {one.alpha:g}", figure, "within 4 s.e.", one.agrees, f"+-{one.error:.3f}")


def exported() -> Iterator[Outcome]:
    """The exported model in float32 beside the native engine, which rounds activations to 8 bits."""
    native = outpace.load(file_of(EMBEDDED))
    model = load(EMBEDDED, "float32")
    shared = []
    for _, question in questions(1):
        a, b = (one.generate(question, max_tokens=32, drafter="none").tokens for one in (native, model))
        shared.append(next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))))
    yield Outcome(
        "first tokens shared, of 32", ", ".join(map(str, shared)), "median >= 8", float(np.median(shared)) >= 8
    )


def whisper() -> Iterator[Outcome]:
    """Whisper base hears a WAV, whatever drafts; its folder `whisper-base` is looked for as model files are."""
    places = [folder / "whisper-base" for folder in search_folders()]
    place = next((place for place in places if (place / "config.json").is_file()), None)
    if place is None:
        raise NotRun("no folder whisper-base of transformers where OUTPACE_MODELS says")
    model = outpace.load(place, engine="torch", device="cpu", dtype="float32")
    plain = model.transcription(SPEECH, drafter="none", max_tokens=64).run()
    for name, layers in (("ngram", 0), ("bigram", 0), ("suffix", 0), ("first 2 layers", 2), ("first 4 layers", 4)):
        if layers:
            model.draft = model.target.cut_down(layers)  # type: ignore[attr-defined]
        drafter = "model" if layers else name
        result = model.transcription(SPEECH, drafter=drafter, draft_length=3, max_tokens=64).run()
        figure = f"{result.text.strip()!r}, {result.accepted} of {result.drafted} accepted"
        yield Outcome(name, figure, "plain's text", result.tokens == plain.tokens and result.fault is None)


LINES: list[Line] = [
    ("speed", "in bfloat16, beside transformers", speed),
    ("same-text", "n-gram drafts change no text in float32", same_text),
    ("vocabularies", f"drafts of another vocabulary for {TARGET} (not {DRAFT}'s)", vocabularies),
    ("theory", "tokens a step of a constructed pair", constructed),
    ("export", "the exported model says what the native engine says", exported),
    ("whisper", "speech, whatever drafts", whisper),
]
