"""A round on the terminal: what was guessed, under which laws, and what became of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from outpace.cli.console import visible
from outpace.trace import Candidate, Ending, Guess, Outcome, TraceRound

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

TextOf = Callable[[int], str]

MARKS = {Outcome.ACCEPTED: "✓", Outcome.REJECTED: "✗", Outcome.UNREACHED: "·"}
STYLES = {Outcome.ACCEPTED: "green", Outcome.REJECTED: "red strike", Outcome.UNREACHED: "dim"}
ENDINGS = {
    Ending.CORRECTION: ("correction", "yellow"),
    Ending.BONUS: ("bonus", "cyan"),
    Ending.PLAIN: ("plain", "default"),
    Ending.STOPPED: ("stopped here", "green"),
}


def quoted(text: str) -> str:
    """Returns a token's text in quotes, with everything that would not show spelt out."""
    return (
        '"' + visible(text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")) + '"'
    )


def heading(one: TraceRound) -> str:
    """Returns a round's first line: what it did and where."""
    if not one.guesses:
        what = "no guess"
    else:
        what = f"{one.accepted} of {len(one.guesses)} {'guess' if len(one.guesses) == 1 else 'guesses'} accepted"
    ending = {Ending.CORRECTION: ", then a correction", Ending.BONUS: ", then a bonus token"}.get(one.ending, "")
    finish = f", finished: {one.finish}" if one.finish else ""
    return f"round {one.number}, after {one.start} tokens: {what}{ending}{finish}"


def render(one: TraceRound, text_of: TextOf) -> list[Text | Table]:
    """Returns the lines of a round for a rich console."""
    from rich.text import Text

    lines: list[Text | Table] = [Text(heading(one), style="bold")]
    if one.guesses:
        lines.append(_guesses(one, text_of))
    if one.ending is not Ending.STOPPED:
        lines.append(_law(one, text_of))
    name, style = ENDINGS[one.ending]
    lines.append(Text.assemble("  → ", (quoted(text_of(one.last)), style), f"  {name}, p {probability(one.last_p)}"))
    return lines


def probability(value: float | None) -> str:
    """Returns a probability in three places; "-" for one that was never looked at."""
    if value is None:
        return "-"
    return "<0.001" if 0 < value < 0.0005 else f"{value:.3f}"


def _guesses(one: TraceRound, text_of: TextOf) -> Table:
    from rich.table import Table
    from rich.text import Text

    shares_noise = any(guess.drawn is not None for guess in one.guesses)
    table = Table(box=None, padding=(0, 1), header_style="dim", pad_edge=False)
    table.add_column("  ", width=3)
    table.add_column("drafter drew" if shares_noise else "guess", min_width=14)
    if shares_noise:
        table.add_column("target drew", min_width=14)
    for name in ("p", "q") if shares_noise else ("p", "q", "r"):
        table.add_column(name, justify="right", min_width=6)
    table.add_column("")
    for guess in one.guesses:
        style = STYLES[guess.outcome]
        cells = [
            Text("  " + MARKS[guess.outcome], style=style.replace(" strike", "")),
            Text("  " * (guess.depth - 1) * (not _is_chain(one.guesses)) + quoted(text_of(guess.token)), style=style),
        ]
        if shares_noise:
            cells.append(Text(quoted(text_of(guess.drawn)) if guess.drawn is not None else "-"))
        cells += [Text(probability(guess.p)), Text(probability(guess.q))]
        if not shares_noise:
            cells.append(Text(probability(guess.r)))
        cells.append(Text(reason(guess), style="dim"))
        table.add_row(*cells)
    return table


def reason(guess: Guess) -> str:
    """Returns in a few words why a guess was kept or not."""
    if guess.outcome is Outcome.UNREACHED:
        return "not reached"
    accepted = guess.outcome is Outcome.ACCEPTED
    if guess.r is None:
        return "the same token" if accepted else "another token"
    return "r q < p" if accepted else "r q ≥ p"


def law_line(one: TraceRound, text_of: TextOf) -> str:
    """Returns the top of the law that the round's last token was drawn from."""
    if one.rejected_mass is not None:
        name = f"residual norm(max(0, p - q)), mass {probability(one.rejected_mass)}"
    else:
        name = "target's law p"
    return f"{name}: {candidates(one.law, text_of)}"


def candidates(law: Sequence[Candidate], text_of: TextOf) -> str:
    """Returns tokens and their probabilities in one line."""
    return "  ".join(f"{quoted(text_of(each.token))} {probability(each.probability)}" for each in law)


def _law(one: TraceRound, text_of: TextOf) -> Text:
    from rich.text import Text

    return Text("  " + law_line(one, text_of), style="dim")


def _is_chain(guesses: Sequence[Guess]) -> bool:
    return all(guess.parent == guess.node - 1 for guess in guesses)
