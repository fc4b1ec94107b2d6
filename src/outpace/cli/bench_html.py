"""A benchmark run as one page that stands alone: plots, tables, checks, and where the figures come from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from outpace.cli.bench_view import interval, remarks
from outpace.cli.console import visible

if TYPE_CHECKING:
    from outpace.bench.run import Run
    from outpace.bench.summary import Line

_STYLE = """
:root { color-scheme: light dark; --page: #fff; --ink: #1b1f24; --soft: #59636e; --line: #d5dae0; --ours: #0b6e4f;
  --plain: #7aa892; --peer: #8b95a1; --good: #116329; --bad: #a40e26; }
@media (prefers-color-scheme: dark) { :root { --page: #0f1216; --ink: #e4e8ec; --soft: #9aa5b1; --line: #333b44;
  --ours: #3fc493; --plain: #33735a; --peer: #6b7681; --good: #7fdc98; --bad: #ff8b95; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 66rem; padding: 1rem; background: var(--page); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.4rem; margin: 0 0 .3rem; } h2 { font-size: 1.05rem; margin: 1.6rem 0 .3rem; }
p { margin: .3rem 0; } .soft { color: var(--soft); font-size: .87rem; }
svg { width: 100%; height: auto; max-width: 60rem; } svg text { font: 13px system-ui, sans-serif; fill: var(--ink); }
svg .soft { fill: var(--soft); } .axis { stroke: var(--line); } .whisker { stroke: var(--ink); stroke-width: 1.5; }
.ours { fill: var(--ours); } .plain { fill: var(--plain); } .peer { fill: var(--peer); }
.good { color: var(--good); } .bad { color: var(--bad); }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: .87rem; }
th { font-weight: 500; color: var(--soft); text-align: right; } th:first-child, td:first-child { text-align: left; }
th, td { padding: .2rem .9rem .2rem 0; border-bottom: 1px solid var(--line); white-space: nowrap; }
td { text-align: right; font-variant-numeric: tabular-nums; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem .8rem; margin: .3rem 0; font-size: .87rem; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; } li { overflow-wrap: anywhere; }
"""

_WIDTH, _NAME, _VALUE, _BAR, _GAP = 940, 190, 190, 20, 8


def page(run: Run) -> str:
    """Returns the page. Every word of the record is escaped."""
    from outpace.bench.summary import ALL, summarise

    lines, settings = summarise(run), run.settings
    whole = [line for line in lines if line.task == ALL]
    title = f"outpace bench: {settings.get('model')}"
    draft = f" with draft {settings['draft']}" if settings.get("draft") else ""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{_text(title)}</title>
<style>{_STYLE}</style>
</head>
<body>
<h1>{_text(title)}</h1>
<p>{_text(_conditions(run, draft))}</p>
{_remarks(run)}
<h2>Decoding speed, tokens/s, over all prompts</h2>
<p class="soft">After the first token; medians over repeats, 95 % bootstrap intervals over prompts.</p>
{
        _bars(
            [
                (
                    one.contender,
                    one.tokens_per_s.value,
                    one.tokens_per_s.low,
                    one.tokens_per_s.high,
                    interval(one.tokens_per_s, 0),
                )
                for one in whole
            ]
        )
    }
<h2>Times plain decoding, by task</h2>
<p class="soft">Of the same model in the same run; the line is 1.</p>
{_by_task(lines)}
<h2>Speed by task</h2>
{_speeds(run, lines)}
<h2>Latency, ms</h2>
<p class="soft">First token: since the request, the prompt in no cache. A token takes its arrival's wait over
the tokens that came with it; the last column is the wait between arrivals that one in a hundred exceeds.</p>
{_latency(whole)}
<h2>Time to the first token, ms</h2>
{_bars([(one.contender, 1e3 * one.first_seconds, None, None, f"{1e3 * one.first_seconds:.0f}") for one in whole])}
<h2>Where the figures come from</h2>
<dl>{"".join(_facts(run))}</dl>
</body>
</html>
"""


def _conditions(run: Run, draft: str) -> str:
    s = run.settings
    tasks = len({question.task for question in run.questions})
    return (
        f"{len(run.questions)} prompts of {tasks} tasks{draft}, up to {s.get('max_tokens')} tokens each, greedy, one "
        f"request at a time, {s.get('threads')} threads, {s.get('repeats')} repeats in turns"
    )


def _remarks(run: Run) -> str:
    good = bool(run.checks) and all(check.holds for check in run.checks)
    bad = any(not check.holds for check in run.checks) or run.ended is not None
    kind = "bad" if bad else "good" if good else "soft"
    verdict = (
        "The run is incomplete, or a text differs: see below."
        if bad
        else "With speculation and without, the tokens are the same."
        if good
        else "Equality was not checked."
    )
    items = "".join(f"<li>{_text(line)}</li>" for line in remarks(run))
    return f'<p class="{kind}"><b>{verdict}</b></p><ul class="soft">{items}</ul>'


def _bars(
    rows: Sequence[tuple[str, float, float | None, float | None, str]], mark: float | None = None, kind: str = ""
) -> str:
    """Returns bars with whiskers: (name, value, low, high, label); `mark` is a line across, `kind` their colour."""
    if not rows:
        return '<p class="soft">nothing was measured</p>'
    largest = max(high or value for _, value, _, high, _ in rows)
    scale = (_WIDTH - _NAME - _VALUE) / max(largest, mark or 0.0, 1e-12)
    height = len(rows) * (_BAR + _GAP) + _GAP
    parts = [f'<svg viewBox="0 0 {_WIDTH} {height}" role="img">']
    for place, (name, value, low, high, label) in enumerate(rows):
        top = _GAP + place * (_BAR + _GAP)
        middle, end = top + _BAR / 2, _NAME + scale * value
        parts.append(f'<text x="{_NAME - 8}" y="{middle + 4.5}" text-anchor="end">{_text(name)}</text>')
        parts.append(
            f'<rect class="{kind or _kind(name)}" x="{_NAME}" y="{top}" '
            f'width="{scale * value:.1f}" height="{_BAR}" rx="2"/>'
        )
        if low is not None and high is not None:
            left, end = _NAME + scale * low, max(end, _NAME + scale * high)
            parts.append(
                f'<path class="whisker" d="M{left:.1f} {middle}H{_NAME + scale * high:.1f}'
                f'M{left:.1f} {middle - 4}v8M{_NAME + scale * high:.1f} {middle - 4}v8"/>'
            )
        parts.append(f'<text x="{end + 8:.1f}" y="{middle + 4.5}">{_text(label)}</text>')
    if mark is not None:
        at = _NAME + scale * mark
        parts.append(f'<path class="whisker" stroke-dasharray="3 3" d="M{at:.1f} 0V{height}"/>')
    return "".join(parts) + "</svg>"


def _kind(name: str) -> str:
    return "plain" if name == "outpace plain" else "ours" if name.startswith("outpace") else "peer"


def _by_task(lines: Sequence[Line]) -> str:
    names = dict.fromkeys(one.contender for one in lines if one.over_plain is not None)
    parts = []
    for name in (each for each in names if _kind(each) == "ours"):
        rows = [
            (one.task.replace("_", " "), over.value, over.low, over.high, interval(over, 2))
            for one in lines
            if one.contender == name and (over := one.over_plain) is not None
        ]
        parts.append(f"<p>{_text(name)}</p>" + _bars(rows, mark=1.0, kind="ours"))
    return "".join(parts) or '<p class="soft">nothing to compare</p>'


def _speeds(run: Run, lines: Sequence[Line]) -> str:
    from outpace.bench.summary import tasks_of

    tasks = tasks_of(run)
    rows = []
    for name in run.entrants:
        mine = {line.task: line for line in lines if line.contender == name}
        if mine:
            rows.append([name, *(f"{mine[t].tokens_per_s.value:.0f}" if t in mine else "-" for t in tasks)])
    return _table(["tokens/s", *(task.replace("_", " ") for task in tasks)], rows)


def _latency(whole: Sequence[Line]) -> str:
    rows = [
        [
            one.contender,
            f"{1e3 * one.first_seconds:.0f}",
            *(f"{1e3 * seconds:.2f}" for seconds in one.token_seconds),
            f"{1e3 * one.gap_seconds[-1]:.1f}",
            "" if one.tokens_per_step is None else f"{one.tokens_per_step:.2f}",
            "" if one.acceptance_rate is None else f"{100 * one.acceptance_rate:.0f} %",
        ]
        for one in whole
    ]
    heads = ["", "first token", "token p50", "p90", "p99", "wait p99", "tokens a step", "drafted accepted"]
    return _table(heads, rows)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{_text(title)}</th>" for title in heads)
    body = "".join("<tr>" + "".join(f"<td>{_text(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="wide"><table><tr>{head}</tr>{body}</table></div>'


def _facts(run: Run) -> Iterator[str]:
    made: dict[str, Any] = dict(run.provenance)
    versions = made.pop("versions", {})
    settings = dict(run.settings)
    for name, value in {**made, **settings}.items():
        yield f"<dt>{_text(name.replace('_', ' '))}</dt><dd>{_text(_value(value))}</dd>"
    for one in run.entrants.values():
        yield f"<dt>{_text(one.name)}</dt><dd>{_text(one.version)}</dd>"
    if isinstance(versions, dict):
        yield f"<dt>versions</dt><dd>{_text(', '.join(f'{name} {value}' for name, value in versions.items()))}</dd>"


def _value(value: Any) -> str:
    if value is None:
        return "none"
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _text(words: str) -> str:
    return escape(visible(str(words)))
