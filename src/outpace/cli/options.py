"""The options that several commands share, with the words that describe them."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer
from typer.core import TyperCommand

from outpace.errors import UsageError

if TYPE_CHECKING:
    import outpace.api
    from outpace.grammar import Grammar

EMBEDDED = "smollm2-135m"
"""The default model; what `outpace.api` calls so, without importing it for the sake of a help page."""

MAX_THREADS = 1024

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
        help="A smaller model of the same vocabulary that drafts; named as --model is. Implies --drafter model.",
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
        "eagle, parallel, medusa or blockwise (heads on the target's features, see outpace train), translate "
        "(see --translate), or none (plain decoding).",
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
Json: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--json", rich_help_panel=OUTPUT, show_default="off", help="Print one JSON object and nothing else on stdout."
    ),
]


class OptionalTraceFile(TyperCommand):
    """A command whose --trace may stand alone: only what ends in .html is its file, not any next argument."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        words, rest = (args[: args.index("--")], args[args.index("--") :]) if "--" in args else (args, [])
        spelt = [
            "--trace=-" if word == "--trace" and not following.endswith(".html") else word
            for word, following in zip_longest(words, words[1:], fillvalue="")
        ]
        return super().parse_args(ctx, spelt + rest)


def trace_file(trace: str | None) -> str | None:
    """Returns where a trace goes. Raises UsageError for a file that is no page."""
    if trace is not None and trace != "-" and not trace.endswith(".html"):
        raise UsageError(f"--trace writes a page, whose name ends in .html, got {trace!r}")
    return trace


def chosen_drafter(drafter: str, draft: str | None, draft_length: int | None, no_speculation: bool) -> str:
    """Returns the drafter that the options agree on. Raises UsageError when they contradict each other."""
    if no_speculation:
        others = {"--drafter": drafter not in ("auto", "none"), "--draft": draft, "--draft-length": draft_length}
        given = [name for name, value in others.items() if value]
        if given:
            raise UsageError(f"--no-speculation and {given[0]} contradict each other: leave one of them out")
        return "none"
    if draft is not None and drafter not in ("auto", "model"):
        raise UsageError(f"--draft MODEL is for the drafter 'model', got --drafter {drafter}: leave one of them out")
    if drafter == "model" and draft is None:
        raise UsageError("--drafter model needs a draft model: --draft MODEL (outpace models drafts lists some)")
    return drafter


def token_biases(arguments: list[str] | None) -> dict[int, float]:
    """Returns token -> bias of arguments like 42=-1.5. Raises UsageError for any other."""
    biases: dict[int, float] = {}
    for argument in arguments or ():
        name, _, value = argument.partition("=")
        try:
            token, bias = int(name), float(value)
        except ValueError:
            raise UsageError(f"--logit-bias must be a token id and a number, ID=X, got {argument!r:.60}") from None
        if token in biases:
            raise UsageError(f"--logit-bias names token {token} twice: leave one of them out")
        biases[token] = bias
    return biases


def grammar(schema_file: str | None, pattern: str | None) -> Grammar | None:
    """Returns what the text must look like. Raises UsageError for both at once, and for a file that has no schema."""
    from outpace.grammar import MAX_SCHEMA, JsonSchema, Regex

    if schema_file is not None and pattern is not None:
        raise UsageError("--json-schema and --regex each say what the whole text is: leave one of them out")
    if pattern is not None:
        return Regex(pattern)
    if schema_file is None:
        return None
    try:
        with Path(schema_file).open("rb") as file:
            text = file.read(4 * MAX_SCHEMA + 1).decode()  # UTF-8 has up to four bytes a character
    except OSError as error:
        raise UsageError(f"--json-schema {schema_file}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"--json-schema {schema_file} is not UTF-8: byte {error.start}") from None
    return JsonSchema(text)


def checked_threads(threads: int) -> int:
    """Returns the number. Raises UsageError unless it is one of threads."""
    if not 1 <= threads <= MAX_THREADS:
        raise UsageError(f"threads must be in [1, {MAX_THREADS}], got {threads}")
    return threads


def seed_or_new(seed: int | None) -> int:
    """Returns the seed, or a new one for a request that is run or explained more than once."""
    import secrets

    return secrets.randbits(32) if seed is None else seed


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """Which engine runs a model, and how, as `outpace.load` takes it."""

    engine: str = "auto"
    draft_engine: str = "auto"
    translate: str | None = None
    device: str | None = None
    dtype: str | None = None
    trust_remote_code: bool = False
    pack: str | None = None

    @property
    def given(self) -> dict[str, Any]:
        """What was asked for, less what is the default anyway."""
        return {name: value for name, value in asdict(self).items() if value not in ("auto", None, False)}


_AUTOMATIC = EngineChoice()


def load_model(
    name: str,
    *,
    draft: str | None,
    threads: int | None,
    context: int | None,
    engine: EngineChoice = _AUTOMATIC,
    store: Path | None = None,
) -> outpace.api.Model:
    """Returns the loaded model, fetched first where it is not here; on a terminal, one line says what goes on."""
    from outpace.api import load

    path, draft_path = _here(name), None if draft is None else _here(draft)
    watched = sys.stderr.isatty()
    if watched:
        sys.stderr.write(f"loading {name} ...")
        sys.stderr.flush()
    try:
        asked = engine.given | ({} if store is None else {"store": store})
        return load(path, draft=draft_path, threads=threads, context=context, **asked)
    finally:
        if watched:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def _here(name: str) -> Path:
    from outpace import models
    from outpace.cli.pulling import pulling

    with pulling(name) as progress:
        return models.resolve(name, progress=progress)
