"""`outpace train`: text that the target writes itself, and heads and draft models that learn from it."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter as clock
from typing import Annotated, Any, TypeAlias

import typer

from outpace.cli import arguments, console, options
from outpace.errors import UsageError

DATA, TRAINING = "Data", "Training"

LINE_EVERY = 30.0
"""Seconds between two lines about a run where nobody is looking."""

Prompts: TypeAlias = Annotated[
    Path,
    typer.Option(
        "--prompts",
        metavar="FILE",
        show_default="needed",
        rich_help_panel=DATA,
        help='JSON lines: {"prompt": "..."} or {"turns": ["...", ...]}.',
    ),
]
Exclude: TypeAlias = Annotated[
    list[Path] | None,
    typer.Option(
        "--exclude",
        metavar="FILE",
        show_default="nothing",
        rich_help_panel=DATA,
        help="Prompts that must not be trained on, such as those of a benchmark; may be repeated.",
    ),
]
Folders: TypeAlias = Annotated[
    list[Path],
    typer.Option(
        "--data",
        metavar="FOLDER",
        show_default="needed",
        rich_help_panel=DATA,
        help="What `train data` wrote; may be repeated.",
    ),
]
Out: TypeAlias = Annotated[
    Path,
    typer.Option(
        "--out", metavar="FILE", show_default="needed", help="The head: a safetensors file, with a record beside it."
    ),
]
DraftVocabulary: TypeAlias = Annotated[
    int, typer.Option("--vocab", metavar="N", rich_help_panel=TRAINING, help="Tokens that the head can propose.")
]
Block: TypeAlias = Annotated[
    int,
    typer.Option("--block", metavar="N", rich_help_panel=TRAINING, help="Positions that it is trained to propose."),
]
Epochs: TypeAlias = Annotated[
    float, typer.Option("--epochs", metavar="X", rich_help_panel=TRAINING, help="Passes over the data.")
]
BatchTexts: TypeAlias = Annotated[
    int, typer.Option("--batch", metavar="N", rich_help_panel=TRAINING, help="Texts in a step.")
]
Rate: TypeAlias = Annotated[
    float, typer.Option("--rate", metavar="X", rich_help_panel=TRAINING, help="The largest step of Adam.")
]
Bits: TypeAlias = Annotated[
    int, typer.Option("--bits", metavar="N", rich_help_panel=TRAINING, help="Bits of a weight in the file: 4 or 8.")
]
Minutes: TypeAlias = Annotated[
    float | None,
    typer.Option(
        "--minutes", metavar="X", show_default="no limit", rich_help_panel=TRAINING, help="End after this long."
    ),
]
Start: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--start",
        metavar="FILE",
        show_default="the target's last layer",
        rich_help_panel=TRAINING,
        help="A head of the same shape whose weights to go on from.",
    ),
]
Seed: TypeAlias = Annotated[int, typer.Option("--seed", metavar="N", help="Makes a run repeatable.")]


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    group = typer.Typer(
        no_args_is_help=True, help="Write training text with the target, and train draft heads on it."
    )
    group.command("prompts")(prompts)
    group.command("tasks")(tasks)
    group.command("data")(data)
    for kind, about in _ABOUT.items():
        group.command(kind, help=about)(_command(kind))
    group.command("distill")(distill)
    app.add_typer(group, name="train")


def prompts(
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", show_default="needed", help="JSON lines; prompts join them.")
    ],
    model: options.Model = options.EMBEDDED,
    count: Annotated[
        int, typer.Option("--count", metavar="N", rich_help_panel=DATA, help="Prompts to have in the end.")
    ] = 4500,
    max_tokens: Annotated[
        int, typer.Option("--max-tokens", metavar="N", rich_help_panel=DATA, help="Longer prompts are dropped.")
    ] = 220,
    temperature: Annotated[
        float, typer.Option("--temperature", metavar="X", rich_help_panel=DATA, help="That they are drawn at.")
    ] = 1.0,
    top_p: Annotated[
        float,
        typer.Option("--top-p", metavar="X", rich_help_panel=DATA, help="Share of the law to draw from."),
    ] = 0.95,
    batch: Annotated[
        int, typer.Option("--batch", metavar="N", rich_help_panel=DATA, help="Prompts written side by side.")
    ] = 16,
    seed: Seed = 0,
    threads: options.Threads = None,
) -> None:
    """Let the target write prompts: what it has learnt that users ask, for `train data` and `draft store`."""
    from outpace.train.asking import Asking
    from outpace.train.running import ask_prompts

    asking = Asking(count, max_tokens, temperature, top_p, batch, seed)
    with _bar("prompts") as show:
        found = ask_prompts(model, threads, out, asking, show)
    console.note(f"{out}: {found:,} prompts")


def tasks(
    folders: Folders,
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", show_default="needed", help="JSON lines, a new file.")
    ],
    model: options.Model = options.EMBEDDED,
    count: Annotated[
        int, typer.Option("--count", metavar="N", rich_help_panel=DATA, help="Prompts to write at most.")
    ] = 2000,
    seed: Seed = 0,
) -> None:
    """Make prompts of a corpus: something to be done with an answer, such as to summarise or to translate it."""
    from outpace.train.running import task_prompts

    console.note(f"{out}: {task_prompts(model, folders, out, count, seed):,} prompts")


def data(
    prompts: Prompts,
    out: Annotated[
        Path, typer.Option("--out", metavar="FOLDER", show_default="needed", help="Where the corpus is, or will be.")
    ],
    model: options.Model = options.EMBEDDED,
    exclude: Exclude = None,
    tokens: Annotated[
        int, typer.Option("--tokens", metavar="N", rich_help_panel=DATA, help="Generated tokens to have in the end.")
    ] = 300_000,
    max_tokens: Annotated[
        int, typer.Option("--max-tokens", metavar="N", rich_help_panel=DATA, help="Tokens of an answer at most.")
    ] = 128,
    max_prompt: Annotated[
        int, typer.Option("--max-prompt", metavar="N", rich_help_panel=DATA, help="Longer prompts are left out.")
    ] = 384,
    temperature: Annotated[
        list[float] | None,
        typer.Option(
            "--temperature",
            metavar="X",
            show_default="0 and 1",
            rich_help_panel=DATA,
            help="Of the answers, taken in turn; may be repeated.",
        ),
    ] = None,
    batch: Annotated[
        int, typer.Option("--batch", metavar="N", rich_help_panel=DATA, help="Answers written side by side.")
    ] = 16,
    seed: Seed = 0,
    threads: options.Threads = None,
) -> None:
    """Write answers with the target, and keep its hidden states: what heads are trained on.

    Goes on where an interrupted run ended. The same command with more --tokens adds to the corpus.
    """
    from outpace.train.running import Answers, write_data

    wanted = Answers(tokens, max_tokens, max_prompt, tuple(temperature or (0.0, 1.0)), batch, seed)
    with _bar("tokens") as show:
        progress = write_data(model, threads, prompts, tuple(exclude or ()), out, wanted, _typed(), show)
    if progress.tokens < progress.wanted:
        console.note(
            f"the prompts are used up before {progress.wanted:,} tokens: more of them go into another folder"
        )
    console.note(f"{out}: {progress.tokens:,} generated tokens, {progress.tokens_per_second:,.0f} a second")


_ABOUT = {
    "eagle": "Train an `eagle` head: one layer on the target's features that goes on from its own outputs.",
    "parallel": "Train a `parallel` head: the same layer, all positions of a draft in one pass.",
    "medusa": "Train `medusa` heads: each guesses its position from the last hidden state alone.",
    "blockwise": "Train `blockwise` heads: the same with one shared layer (Stern et al. 2018).",
}


def _command(kind: str) -> Callable[..., None]:
    def train(
        folders: Folders,
        out: Out,
        model: options.Model = options.EMBEDDED,
        vocab: DraftVocabulary = 4096,
        block: Block = 3,
        epochs: Epochs = 4.0,
        batch: BatchTexts = 8,
        rate: Rate = 5e-4,
        bits: Bits = 8,
        minutes: Minutes = None,
        start: Start = None,
        seed: Seed = 0,
        threads: options.Threads = None,
    ) -> None:
        from outpace.train.running import Training, train_head

        if bits not in (4, 8):
            raise UsageError(f"bits must be 4 or 8, got {bits}")
        _beside(out)
        wanted = Training(kind, vocab, block, epochs, batch, rate, bits, minutes, seed, start)
        with _bar("steps") as show:
            card = train_head(model, threads, folders, out, wanted, _typed(), show)
        _tell(out, card)

    return train


def distill(
    draft: Annotated[
        str,
        typer.Option(
            "--draft",
            metavar="MODEL",
            show_default="needed",
            help="The GGUF to begin with: `draft make` writes it.",
        ),
    ],
    folders: Folders,
    out: Annotated[
        Path,
        typer.Option(
            "--out", metavar="FILE", show_default="needed", help="The GGUF to write; a record is put beside it."
        ),
    ],
    model: options.Model = options.EMBEDDED,
    epochs: Epochs = 1.0,
    batch: BatchTexts = 8,
    rate: Rate = 2e-5,
    minutes: Minutes = None,
    seed: Seed = 0,
    threads: options.Threads = None,
) -> None:
    """Heal a draft model: it learns the target's laws on text that the target wrote.

    For a draft that lost layers or bits. Goes on where an interrupted run of the same command ended.
    """
    from outpace.train.running import Healing, heal_draft

    _beside(out)
    healing = Healing(epochs, batch, rate, minutes, seed)
    with _bar("steps") as show:
        card = heal_draft(model, draft, threads, folders, out, healing, _typed(), show)
    before, after = card["held_out_before"], card["held_out"]
    console.note(
        f"{out}: accepted on held-out text {after['greedy'][0]:.3f} +-{after['greedy_error'][0]:.3f}, "
        f"{before['greedy'][0]:.3f} before (n = {after['greedy_rows']})"
    )


def _beside(out: Path) -> None:
    """Raises UsageError for a file that could not be written after hours, or that its record would overwrite."""
    if out.suffix in (".json", ".checkpoint"):
        raise UsageError(f"--out {out}: {out.suffix} is the ending of what is put beside it: name another file")
    if out.parent.is_file():
        raise UsageError(f"--out {out}: {out.parent} is a file: name a folder")
    out.parent.mkdir(parents=True, exist_ok=True)
    arguments.output_file("--out", out)


def _tell(out: Path, card: dict[str, Any]) -> None:
    found = card["held_out"]
    shares = ", ".join(
        f"{share:.3f} +-{error:.3f}" for share, error in zip(found["greedy"], found["greedy_error"], strict=True)
    )
    console.note(f"{out}: accepted on held-out text, by position: {shares} (n = {found['greedy_rows']})")
    console.note("use it: name its file or folder in OUTPACE_HEADS, and ask for the drafter of its kind")


def _typed() -> list[str]:
    return ["outpace", *map(shlex.quote, sys.argv[1:])]


@contextmanager
def _bar(unit: str) -> Iterator[Callable[[int, int, str], None]]:
    """Yields a function (done, of, words) that shows how far a run is, on stderr; in a file, a line now and then."""
    if not sys.stderr.isatty():
        yield _lines(unit)
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn(unit), TimeRemainingColumn())
    with Progress(*columns, TextColumn("{task.description}"), console=console.stderr()) as progress:
        task = progress.add_task("", total=None)

        def show(done: int, of: int, words: str) -> None:
            progress.update(task, completed=done, total=of, description=words)

        yield show


def _lines(unit: str) -> Callable[[int, int, str], None]:
    started = clock()
    first, told, ended = 0, -LINE_EVERY, False

    def show(done: int, of: int, words: str) -> None:
        nonlocal first, told, ended
        spent = clock() - started
        first = first or done
        if spent - told < LINE_EVERY and (ended or done < of):
            return
        told, ended = spent, done >= of
        left = spent / max(1, done - first) * max(0, of - done) / 60
        console.note(f"{done:,} of {of:,} {unit}, {words}, {left:.0f} min left")

    return show
