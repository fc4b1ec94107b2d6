"""Who could draft for a target: smaller models, a head on its hidden states, n-grams; and a rule of thumb."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from outpace.theory.acceptance import Acceptance, assumed
from outpace.theory.shape import ModelShape, presets
from outpace.theory.speedup import Choice

HEAD_VOCABULARY = 32_000
"""Tokens that a drafting head proposes from, the most frequent of the target's (EAGLE-3, arXiv 2503.01840)."""

PADDING = 1024
"""Rows by which the vocabularies of one tokenizer may differ: heads are padded to suit a kernel."""

_ONE_FAMILY = {"mixtral": "mistral"}
_FAMILY = re.compile(r"([a-z]+)(?:-?(\d+)(?:\.\d+)?(?![\d.]*[bmx]))?")  # a number before b, m or x is a size


@dataclass(frozen=True, slots=True)
class Candidate:
    """A drafter for a target. kind: one of acceptance.KINDS; shape: what is read for a token, None for n-grams.

    named: the question named it. unusable: why it cannot draft for this target at all, or None.
    """

    name: str
    kind: str
    shape: ModelShape | None
    acceptance: Acceptance
    named: bool = False
    unusable: str | None = None


def head_for(target: ModelShape) -> ModelShape:
    """Returns the shape of an EAGLE-class head: one decoder layer, a fusion of three layers, an output head.

    The fusion (3 hidden x hidden) and the doubled input of its attention (arXiv 2503.01840, section 3) are counted as
    width of the feed-forward part, which keeps bytes and operations a token right. Embeddings are the target's own.
    """
    dense = target.feed_forward_size or target.experts_per_token * target.expert_size
    fusion = target.hidden_size + target.head_size * (target.heads + 2 * target.kv_heads) // 3
    return ModelShape(
        name="EAGLE-class head",
        layers=1,
        hidden_size=target.hidden_size,
        heads=target.heads,
        kv_heads=target.kv_heads,
        head_size=target.head_size,
        feed_forward_size=dense + fusion,
        vocab_size=min(HEAD_VOCABULARY, target.vocab_size),
        tied_embeddings=True,
    )


def candidates(
    target: ModelShape, drafts: Sequence[ModelShape], tasks: Sequence[str], measured: Mapping[str, float]
) -> list[Candidate]:
    """Returns who could draft: the named drafts, else every preset of the family; a head; n-grams.

    measured: acceptance rates by kind of drafter that replace the assumed ones.
    """

    def acceptance(kind: str, shape: ModelShape | None = None) -> Acceptance:
        if kind in measured:
            return Acceptance(measured[kind], "given")
        return assumed(kind, tasks, target.parameters / shape.parameters if shape else None)

    models = [*drafts] or [shape for shape in presets().values() if is_family_draft(target, shape)]
    found = [
        Candidate(
            shape.name, "draft", shape, acceptance("draft", shape), bool(drafts), vocabulary_problem(target, shape)
        )
        for shape in models
    ]
    if not target.encoder_layers:
        head = head_for(target)
        found.append(Candidate(head.name, "eagle", head, acceptance("eagle")))
    found.append(Candidate("n-grams", "ngram", None, acceptance("ngram")))
    return found


def vocabulary_problem(target: ModelShape, draft: ModelShape) -> str | None:
    """Returns why the draft's tokens cannot be the target's, judged by how many there are; None where they may be."""
    if bool(target.encoder_layers) != bool(draft.encoder_layers):
        return f"{draft.name} and {target.name} are not both encoder-decoders"
    if abs(target.vocab_size - draft.vocab_size) <= PADDING:
        return None
    return (
        f"{draft.name} has {draft.vocab_size:,} tokens and {target.name} {target.vocab_size:,}: a draft needs the "
        "target's tokenizer"
    )


def rule_of_thumb(target: ModelShape, draft: ModelShape, choice: Choice, cost: float) -> str | None:
    """Returns one line where a draft breaks the field's rule of thumb, with c and the gain predicted, else None.

    The rule: 3 to 5 tokens a draft, same tokenizer and family, 10 to 20 times smaller, for two to three times the
    speed on predictable text.
    """
    ratio = target.parameters / draft.parameters
    broken = []
    if not 10.0 <= ratio <= 20.0:
        broken.append(f"{ratio:.1f} times smaller, not 10 to 20")
    if vocabulary_problem(target, draft):
        broken.append("another tokenizer")
    elif family(target.name) != family(draft.name):
        broken.append("another family by its name")
    if choice.draft_length and not 3 <= choice.draft_length <= 5:
        broken.append(f"drafts of {choice.draft_length}, not 3 to 5")
    if choice.pays and choice.speedup < 2.0:
        broken.append(f"{choice.speedup:.2f} times as fast, not 2 to 3")
    if not broken:
        return None
    figures = f"c = {cost:.3f}, predicted {choice.speedup:.2f} times plain"
    return f"{draft.name} breaks the rule of thumb: {'; '.join(broken)} ({figures})"


def family(name: str) -> str:
    """Returns the family and generation that a model's name begins with: "llama3" of "llama-3.1-8b"."""
    found = _FAMILY.match(name.rsplit("/", 1)[-1].lower())
    if found is None:
        return name
    return _ONE_FAMILY.get(found[1], found[1]) + (found[2] or "")


def is_family_draft(target: ModelShape, draft: ModelShape) -> bool:
    """Returns True for a smaller model of the target's family, with its vocabulary."""
    return (
        draft.parameters < target.parameters
        and family(draft.name) == family(target.name)
        and vocabulary_problem(target, draft) is None
        and bool(draft.encoder_layers) == bool(target.encoder_layers)
    )
