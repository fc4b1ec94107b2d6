"""The options that several commands share, with the words that describe them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

EMBEDDED = "smollm2-135m"
"""The default model; what `outpace.api` calls so, without importing it for the sake of a help page."""

MODEL, SPECULATION, SAMPLING, OUTPUT, ENGINE = "Model", "Speculation", "Sampling", "Output", "Engine"
"""Panels of the help."""

Model: TypeAlias = Annotated[
    str,
    typer.Option(
        "--model",
        "-m",
        metavar="MODEL",
        rich_help_panel=MODEL,
        help="The target: a catalogue name, a GGUF file, a folder with safetensors and config.json, "
        "or a Hugging Face id (owner/name or owner/name:quant).",
    ),
]
ContextLength: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--context",
        metavar="N",
        rich_help_panel=MODEL,
        show_default="the model's own, at most 8192",
        help="Room for prompt and answer together, in tokens.",
    ),
]
System: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--system",
        metavar="TEXT",
        rich_help_panel=MODEL,
        show_default="the template's own",
        help="The system message of the chat template.",
    ),
]
Threads: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--threads",
        metavar="N",
        rich_help_panel=ENGINE,
        show_default="the physical cores this process may use",
        help="Threads of the native engine.",
    ),
]
Engine: TypeAlias = Annotated[
    str,
    typer.Option(
        "--engine",
        metavar="NAME",
        rich_help_panel=ENGINE,
        help="auto (native), native (our own, for CPUs), or torch (any model of transformers in a folder).",
    ),
]
DraftEngine: TypeAlias = Annotated[
    str,
    typer.Option(
        "--draft-engine", metavar="NAME", rich_help_panel=ENGINE, show_default="--engine", help="Of the draft model."
    ),
]
Translate: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--translate",
        metavar="HOW",
        rich_help_panel=SPECULATION,
        show_default="off",
        help="How a --draft of another vocabulary drafts: token (its law over the tokens that both have) or string "
        "(what it writes, tokenised anew).",
    ),
]
Device: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--device",
        metavar="NAME",
        rich_help_panel=ENGINE,
        show_default="a GPU where there is one",
        help="Of engine torch: cpu, cuda or cuda:N.",
    ),
]
Dtype: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--dtype",
        metavar="TYPE",
        rich_help_panel=ENGINE,
        show_default="as stored",
        help="Of engine torch: float32, bfloat16 or float16.",
    ),
]
Pack: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--pack",
        metavar="BITS",
        rich_help_panel=ENGINE,
        show_default="as stored",
        help="Of engine native: q4 or q8, to round weights in F32, F16 or BF16.",
    ),
]
ExitLayer: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--exit-layer",
        metavar="N",
        rich_help_panel=SPECULATION,
        show_default="a quarter of them",
        help="Of --drafter early_exit on engine native: how many layers of the model draft.",
    ),
]
TrustRemoteCode: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--trust-remote-code",
        rich_help_panel=ENGINE,
        show_default="off",
        help="Of engine torch: run code that comes with the model.",
    ),
]
DraftModel: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--draft",
        metavar="MODEL",
        rich_help_panel=SPECULATION,
        show_default="none",
        help="A smaller model of the same vocabulary that drafts; named as --model is. Implies --drafter mixture. "
        "Beside --engine torch also the folder of a published EAGLE or Medusa head.",
    ),
]
Drafter: TypeAlias = Annotated[
    str,
    typer.Option(
        "--drafter",
        metavar="NAME",
        rich_help_panel=SPECULATION,
        help="Who proposes the next tokens: auto, suffix (what mostly followed the same words), ngram (what followed "
        "them last), unigram or bigram (counts of tokens), model (--draft), mixture (suffix and model), "
        "early_exit (the model's first layers), quantized (the model at 4 bits), lookahead (its earlier guesses), "
        "eagle, parallel, medusa or blockwise (heads on the target's features, see outpace train), blend (suffix "
        "and an eagle head), published (a head's folder as --draft), translate (see --translate), or none (plain "
        "decoding).",
    ),
]
Store: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--store",
        metavar="FILE",
        rich_help_panel=SPECULATION,
        show_default="nothing is kept",
        help="Draft from the texts in this file, too, and add this run's; made when it is not there.",
    ),
]
DraftLength: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--draft-length",
        metavar="N",
        rich_help_panel=SPECULATION,
        show_default="set from measured costs",
        help="Propose this many tokens a round, always; 0 is plain decoding.",
    ),
]
Rule: TypeAlias = Annotated[
    str,
    typer.Option(
        "--rule",
        metavar="NAME",
        rich_help_panel=SPECULATION,
        help="Lossless: `coupled` keeps the seed's text, `rejection` is the papers' rule, `block` accepts more of a "
        "chain, `traversal` of a tree. Lossy, so not the model's own law: `typical`, `lenience`, `lenience-greedy`.",
    ),
]
Predict: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--predict",
        metavar="FILE",
        rich_help_panel=SPECULATION,
        show_default="none",
        help="The answer as you expect it, such as a file before an edit: it is drafted from while it holds.",
    ),
]
NoSpeculation: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--no-speculation",
        rich_help_panel=SPECULATION,
        help="Plain decoding, one token a pass; the same as --drafter none.",
        show_default="speculation on",
    ),
]
Temperature: TypeAlias = Annotated[
    float,
    typer.Option("--temperature", "-t", metavar="X", rich_help_panel=SAMPLING, help="0 is greedy."),
]
TopP: TypeAlias = Annotated[
    float,
    typer.Option(
        "--top-p",
        metavar="X",
        rich_help_panel=SAMPLING,
        help="Keep the likeliest tokens that together reach this probability; 1 keeps all.",
    ),
]
TopK: TypeAlias = Annotated[
    int,
    typer.Option("--top-k", metavar="N", rich_help_panel=SAMPLING, help="Keep the N likeliest tokens; 0 keeps all."),
]
MinP: TypeAlias = Annotated[
    float,
    typer.Option(
        "--min-p",
        metavar="X",
        rich_help_panel=SAMPLING,
        help="Keep tokens at least X times as likely as the likeliest; 0 keeps all.",
    ),
]
Seed: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--seed",
        metavar="N",
        rich_help_panel=SAMPLING,
        show_default="a new one each time",
        help="The same seed gives the same text.",
    ),
]
MaxTokens: TypeAlias = Annotated[
    int,
    typer.Option("--max-tokens", "-n", metavar="N", rich_help_panel=SAMPLING, help="End after this many tokens."),
]
Stop: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--stop",
        metavar="TEXT",
        rich_help_panel=SAMPLING,
        show_default="none",
        help="End before this text; may be given several times.",
    ),
]
RepetitionPenalty: TypeAlias = Annotated[
    float,
    typer.Option(
        "--repetition-penalty",
        metavar="X",
        rich_help_panel=SAMPLING,
        help="Divide positive logits, multiply others, of tokens in prompt or output; 1 is off.",
    ),
]
PresencePenalty: TypeAlias = Annotated[
    float,
    typer.Option(
        "--presence-penalty",
        metavar="X",
        rich_help_panel=SAMPLING,
        help="Subtract this from the logit of each token of the output; 0 is off.",
    ),
]
FrequencyPenalty: TypeAlias = Annotated[
    float,
    typer.Option(
        "--frequency-penalty",
        metavar="X",
        rich_help_panel=SAMPLING,
        help="Subtract this as often as the token occurs in the output; 0 is off.",
    ),
]
LogitBias: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--logit-bias",
        metavar="ID=X",
        rich_help_panel=SAMPLING,
        show_default="none",
        help="Add X to the logit of a token, after the penalties; may be given several times.",
    ),
]
Ban: TypeAlias = Annotated[
    list[int] | None,
    typer.Option(
        "--ban",
        metavar="ID",
        rich_help_panel=SAMPLING,
        show_default="none",
        help="Never emit this token; may be given several times.",
    ),
]
Allow: TypeAlias = Annotated[
    list[int] | None,
    typer.Option(
        "--allow",
        metavar="ID",
        rich_help_panel=SAMPLING,
        show_default="all",
        help="Emit no token but this; may be given several times.",
    ),
]
StopId: TypeAlias = Annotated[
    list[int] | None,
    typer.Option(
        "--stop-id",
        metavar="ID",
        rich_help_panel=SAMPLING,
        show_default="none",
        help="End at this token; may be given several times.",
    ),
]
IgnoreEos: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--ignore-eos",
        rich_help_panel=SAMPLING,
        show_default="off",
        help="Go on after the model's own ending tokens.",
    ),
]
MinTokens: TypeAlias = Annotated[
    int,
    typer.Option("--min-tokens", metavar="N", rich_help_panel=SAMPLING, help="Do not end before this many tokens."),
]
SchemaFile: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--json-schema",
        metavar="FILE",
        rich_help_panel=SAMPLING,
        show_default="any text",
        help="The text is one JSON value that this JSON schema admits.",
    ),
]
RegexPattern: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--regex",
        metavar="PATTERN",
        rich_help_panel=SAMPLING,
        show_default="any text",
        help="The whole text matches this regular expression.",
    ),
]
Logprobs: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--logprobs",
        metavar="N",
        rich_help_panel=OUTPUT,
        show_default="off",
        help="With --json: each token's log-probability under the model's own law, and the N likeliest beside it.",
    ),
]
Choices: TypeAlias = Annotated[
    int,
    typer.Option(
        "--n", metavar="N", rich_help_panel=SAMPLING, help="Generate this many texts, each with its own noise."
    ),
]
ShowDraft: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--show-draft",
        rich_help_panel=OUTPUT,
        show_default="off",
        help="Colour accepted, corrected and bonus tokens; without a terminal, or with NO_COLOR set, write "
        "{accepted} <correction> (bonus).",
    ),
]
Explain: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--explain",
        rich_help_panel=OUTPUT,
        show_default="off",
        help="Print how much was drafted and why: tokens/s and times plain, expected and realised.",
    ),
]
Json: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--json", rich_help_panel=OUTPUT, show_default="off", help="Print one JSON object and nothing else on stdout."
    ),
]
