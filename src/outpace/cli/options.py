"""The options that several commands share, with the words that describe them."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import typer

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
        show_default="the model's own, at most 4096",
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
        show_default="the cores this process may use",
        help="Threads of the native engine.",
    ),
]
DraftModel: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--draft",
        metavar="MODEL",
        rich_help_panel=SPECULATION,
        show_default="none",
        help="A smaller model of the same vocabulary that drafts; named as --model is. Implies --drafter model.",
    ),
]
Drafter: TypeAlias = Annotated[
    str,
    typer.Option(
        "--drafter",
        metavar="NAME",
        rich_help_panel=SPECULATION,
        help="Who proposes the next tokens: auto, ngram (what followed the same words earlier), model (see --draft), "
        "or none (plain decoding).",
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
        help="`rejection` is the papers' rule, `coupled` keeps the seed's text.",
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
Json: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--json", rich_help_panel=OUTPUT, show_default="off", help="Print one JSON object and nothing else on stdout."
    ),
]
