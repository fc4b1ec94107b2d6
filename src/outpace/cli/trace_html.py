"""A trace as one page that stands alone: no script, no network, light and dark, legible on a phone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from outpace.cli.console import visible
from outpace.cli.trace import ENDINGS, candidates, heading, probability, quoted, reason
from outpace.trace import Ending, Guess, Outcome, TraceRound

TextOf = Callable[[int], str]


@dataclass(frozen=True, slots=True)
class Piece:
    """The text that one committed token completed, and the round it came from."""

    text: str
    origin: str
    round: int


_STYLE = """
:root { color-scheme: light dark; --page: #fff; --card: #f6f7f9; --ink: #1b1f24; --soft: #59636e; --line: #d5dae0;
  --accepted: #116329; --accepted-wash: #d4f2dc; --correction: #7a4a00; --correction-wash: #ffe6b8;
  --bonus: #0a4b9c; --bonus-wash: #d6e8ff; --rejected: #a40e26; --p: #4a7fd6; --q: #b9772e; }
@media (prefers-color-scheme: dark) {
  :root { --page: #0f1216; --card: #191e24; --ink: #e4e8ec; --soft: #9aa5b1; --line: #333b44;
    --accepted: #7fdc98; --accepted-wash: #173a22; --correction: #f5c265; --correction-wash: #46330d;
    --bonus: #8cc2ff; --bonus-wash: #14345a; --rejected: #ff8b95; --p: #6fa0f0; --q: #d79a56; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 60rem; padding: 1rem; background: var(--page); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.4rem; margin: 0 0 .25rem; } h2 { font-size: 1rem; margin: 0 0 .5rem; }
p { margin: .5rem 0; } a { color: inherit; text-decoration: none; } a:hover { text-decoration: underline; }
code, td.token, .text { font-family: ui-monospace, Menlo, Consolas, monospace; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem .8rem; margin: .5rem 0; font-size: .9rem; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; }
.text { white-space: pre-wrap; overflow-wrap: anywhere; background: var(--card); border: 1px solid var(--line);
  border-radius: .4rem; padding: .7rem; font-size: .9rem; }
.accepted { color: var(--accepted); background: var(--accepted-wash); }
.correction { color: var(--correction); background: var(--correction-wash); }
.bonus { color: var(--bonus); background: var(--bonus-wash); }
.key span { padding: 0 .3rem; border-radius: .2rem; margin-right: .4rem; }
section { background: var(--card); border: 1px solid var(--line); border-radius: .4rem; padding: .7rem;
  margin: .8rem 0; }
section:target { outline: 2px solid var(--bonus); }
table { border-collapse: collapse; width: 100%; font-size: .85rem; }
th { text-align: left; font-weight: 500; color: var(--soft); } th, td { padding: .15rem .3rem; vertical-align: top; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.token { overflow-wrap: anywhere; } .rejected s { color: var(--rejected); }
tr.rejected td { background: transparent; } tr.unreached td { color: var(--soft); }
tr.accepted, tr.rejected { background: none; color: inherit; }
tr.accepted td.token { color: var(--accepted); }
.bars { display: block; min-width: 4rem; margin-top: .35rem; }
.bars i { display: block; height: .28rem; border-radius: .1rem; margin-bottom: .12rem; }
.bars .p { background: var(--p); } .bars .q { background: var(--q); }
.one { white-space: nowrap; margin-right: .5rem; }
.soft { color: var(--soft); font-size: .85rem; overflow-wrap: anywhere; }
@media (max-width: 34rem) { .why, .wide { display: none; } body { padding: .6rem; } }
"""


def page(
    title: str,
    facts: Mapping[str, str],
    pieces: Sequence[Piece],
    rounds: Sequence[TraceRound],
    text_of: TextOf,
) -> str:
    """Returns the page. facts: what was run, name to value, shown in this order; every word of it is escaped."""
    listed = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts.items())
    shares_noise = any(guess.drawn is not None for one in rounds for guess in one.guesses)
    body = "\n".join(_round(one, text_of, shares_noise) for one in rounds)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>{_STYLE}</style>
</head>
<body>
<h1>{escape(title)}</h1>
<dl>{listed}</dl>
<p class="key soft"><span class="accepted">accepted</span><span class="correction">correction</span><span \
class="bonus">bonus</span>plain</p>
<div class="text">{"".join(_piece(piece) for piece in pieces)}</div>
<p class="soft">{_how_to_read(shares_noise)}</p>
<main>
{body}
</main>
</body>
</html>
"""


def _piece(piece: Piece) -> str:
    text = escape(visible(piece.text))
    return f'<a class="{piece.origin}" href="#round-{piece.round}" title="round {piece.round}">{text}</a>'


def _how_to_read(shares_noise: bool) -> str:
    laws = (
        "p (upper bar) is the target's probability of a token, q (lower bar) that of the law the guess was drawn "
        "from, 1 where it was chosen outright. "
    )
    if shares_noise:
        return laws + "Both draw with the same noise; a guess is accepted when the target drew the same token."
    return laws + (
        "A guess is accepted when r q &lt; p, r uniform; after a rejection the token is drawn from "
        "norm(max(0, p &minus; q))."
    )


def _round(one: TraceRound, text_of: TextOf, shares_noise: bool) -> str:
    rows = "".join(_guess(guess, text_of, shares_noise) for guess in one.guesses)
    drawn = "<th>target drew</th>" if shares_noise else ""
    r = "" if shares_noise else '<th class="number">r</th>'
    table = (
        f'<table><thead><tr><th>{"drafter drew" if shares_noise else "guess"}</th>{drawn}<th class="number">p</th>'
        f'<th class="number">q</th>{r}<th class="wide"></th><th class="why"></th></tr></thead>'
        f"<tbody>{rows}</tbody></table>"
        if rows
        else ""
    )
    law = ""
    if one.ending is not Ending.STOPPED:
        name = "residual" if one.rejected_mass is not None else "p"
        mass = f" (mass {probability(one.rejected_mass)})" if one.rejected_mass is not None else ""
        law = f'<p class="soft">{name}{mass}: {_law(one, text_of)}</p>'
    milliseconds = " + ".join(
        f"{1e3 * seconds:.1f}" for seconds in (one.draft_seconds, one.score_seconds, one.verify_seconds)
    )
    return (
        f'<section id="round-{one.number}"><h2>{escape(heading(one))}</h2>{table}{law}'
        f'<p>&rarr; <code class="{one.ending}">{escape(quoted(text_of(one.last)))}</code> {ENDINGS[one.ending][0]}, '
        f'p {escape(probability(one.last_p))} <span class="soft wide">&middot; draft + score + verify '
        f"{milliseconds} ms</span></p></section>"
    )


def _guess(guess: Guess, text_of: TextOf, shares_noise: bool) -> str:
    text = escape(quoted(text_of(guess.token)))
    other = escape(quoted(text_of(guess.drawn))) if guess.drawn is not None else "&ndash;"
    # A chain needs no indent: it is the order of the rows.
    indent = guess.depth - 1 if guess.parent != guess.node - 1 else 0
    cells = [
        f'<td class="token" style="padding-left:{0.3 + 0.6 * indent:.1f}rem">'
        + (f"<s>{text}</s>" if guess.outcome is Outcome.REJECTED else text)
        + "</td>",
        f'<td class="token">{other}</td>' if shares_noise else "",
        _number(guess.p),
        _number(guess.q),
        "" if shares_noise else _number(guess.r),
        f'<td class="wide"><span class="bars">{_bar("p", guess.p)}{_bar("q", guess.q)}</span></td>',
        f'<td class="why soft">{escape(reason(guess))}</td>',
    ]
    return f'<tr class="{guess.outcome}">{"".join(cells)}</tr>'


def _law(one: TraceRound, text_of: TextOf) -> str:
    return " ".join(f'<span class="one">{escape(candidates([each], text_of))}</span>' for each in one.law)


def _bar(name: str, value: float) -> str:
    return f'<i class="{name}" style="width:{100 * value:.1f}%"></i>'


def _number(value: float | None) -> str:
    return f'<td class="number">{escape(probability(value))}</td>'
