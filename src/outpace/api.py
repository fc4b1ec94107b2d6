"""The Python face: load a model, generate, stream, chat.

>>> import outpace
>>> model = outpace.load()
>>> result = model.generate("Name the four seasons.", max_tokens=64)
>>> print(result.text)
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from numbers import Integral
from pathlib import Path
from time import perf_counter as clock
from typing import Any

from outpace import models, profiles
from outpace.errors import UsageError, VocabularyMismatch
from outpace.heads.published import published_head
from outpace.model import Model as Model
from outpace.options import AUTO
from outpace.registry import ENGINES
from outpace.suffix_store import Stores
from outpace.text import Text
from outpace.translating import translated
from outpace.types import Target
from outpace.vocabulary import compare

EMBEDDED = "smollm2-135m"
"""The catalogue's name of the default model."""


def load(
    target: str | os.PathLike[str] = EMBEDDED,
    *,
    draft: str | os.PathLike[str] | None = None,
    threads: int | None = None,
    context: int | None = None,
    engine: str = AUTO,
    draft_engine: str = AUTO,
    translate: str | None = None,
    device: str | None = None,
    dtype: str | None = None,
    trust_remote_code: bool = False,
    pack: str | None = None,
    exit_layer: int | None = None,
    store: str | os.PathLike[str] | None = None,
) -> Model:
    """Returns the model, ready to generate.

    target, draft: a catalogue name, a GGUF file, a folder with safetensors and config.json, or a Hugging Face id;
    the draft is a smaller model of the same vocabulary, or on engine "torch" the folder of a published head.
    threads: None = the cores this process may use.
    context: room for prompt and answer in tokens; None = the model's own, at most 8,192. engine: "native", or "torch"
    for any model of transformers in a folder. draft_engine: of the draft, by default the target's. translate: how a
    draft of another vocabulary drafts, "token" by token or "string" by string; None refuses it. Of torch alone:
    device "cpu", "cuda" or "cuda:N", None = a GPU where there is one; dtype "float32", "bfloat16" or "float16",
    None = as stored; trust_remote_code runs code that comes with the model. pack, of the target on the native engine:
    "q4" or "q8" rounds weights in F32, F16 or BF16 to 4.5 or 8.5 bits each, and the model's name says so.
    exit_layer, of the target on the native engine: how many layers the drafter early_exit runs; None = a quarter.
    store: a file of earlier texts to draft from; finished requests join it, and closing the model writes it.
    Raises ModelNotFound, ModelError (VocabularyMismatch when the draft's tokens are not the target's) or UsageError.
    """
    start = clock()
    for name, number in (("threads", threads), ("context", context), ("exit_layer", exit_layer)):
        if number is not None and (not isinstance(number, Integral) or isinstance(number, bool)):
            raise UsageError(f"{name} must be a whole number, got {number!r:.40}")
    if translate is not None and draft is None:
        raise UsageError(f"translate is for a draft of another vocabulary, got {translate!r} and no draft: name one")
    if draft_engine != AUTO and draft is None:
        raise UsageError(f"draft_engine is for a draft model, got {draft_engine!r} and no draft: name one")
    engine = "native" if engine == AUTO else engine
    draft_engine = engine if draft_engine == AUTO else draft_engine
    given = {"device": device, "dtype": dtype, "trust_remote_code": trust_remote_code}
    settings = {name: value for name, value in given.items() if value is not None and value is not False}
    if settings and engine == draft_engine == "native":
        raise UsageError(f"{next(iter(settings))} is for engine 'torch', got engine 'native': leave one of them out")
    held = {name: value for name, value in (("pack", pack), ("exit_layer", exit_layer)) if value is not None}
    if held and engine != "native":
        raise UsageError(f"{next(iter(held))} is for engine 'native', got engine {engine!r}: leave one of them out")
    if store is not None and not isinstance(os.fspath(store) if hasattr(store, "__fspath__") else store, str):
        raise UsageError(f"a store is the name of a file, got {store!r:.40}")
    scorer, text = _load(target, engine, threads, context, held if engine == "native" else settings)
    stores = Stores.of(text.vocabulary, scorer.vocab_size, None if store is None else Path(store))
    if draft is None:
        return Model(scorer, text, stores=stores, costs=profiles.profile(scorer), load_seconds=clock() - start)
    head = published_head(models.resolve(draft), scorer)
    if head is not None:
        return Model(scorer, text, head, stores=stores, costs=profiles.profile(scorer), load_seconds=clock() - start)
    # A draft of a shorter context drafts until the text outgrows it.
    drafting = {} if draft_engine == "native" else settings
    helper, helper_text = _load(draft, draft_engine, threads, context, drafting, clip=True)
    comparison = compare(text.vocabulary, helper_text.vocabulary)
    if translate is not None:
        helper = translated(scorer, text, helper, helper_text, translate)
    elif not comparison.usable:
        raise VocabularyMismatch(
            f"{helper.name} cannot draft for {scorer.name}: {comparison}; translate='token' or 'string' lets it"
        )
    costs = profiles.profile(scorer, helper)
    return Model(scorer, text, helper, stores=stores, costs=costs, load_seconds=clock() - start)


def _load(
    name: str | os.PathLike[str],
    engine: str,
    threads: int | None,
    context: int | None,
    settings: Mapping[str, Any],
    *,
    clip: bool = False,
) -> tuple[Target, Text]:
    load_with = ENGINES.get(engine)
    path = models.resolve(name)
    loaded: tuple[Target, Text] = load_with(path, threads, context, clip=clip, **settings)
    return loaded
