"""An audit's report as one page that stands alone: no script, no network, light and dark, legible on a phone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from outpace.cli.audit_view import FAILS, counts, groups
from outpace.cli.console import visible
from outpace.errors import UsageError

if TYPE_CHECKING:
    from outpace.audit.report import Check, Report

_STYLE = """
:root { color-scheme: light dark; --page: #fff; --card: #f6f7f9; --ink: #1b1f24; --soft: #59636e; --line: #d5dae0;
  --good: #116329; --good-wash: #d4f2dc; --bad: #a40e26; --bad-wash: #ffd9dd; --left: #7a4a00; }
@media (prefers-color-scheme: dark) {
  :root { --page: #0f1216; --card: #191e24; --ink: #e4e8ec; --soft: #9aa5b1; --line: #333b44;
    --good: #7fdc98; --good-wash: #173a22; --bad: #ff8b95; --bad-wash: #4a1a20; --left: #f5c265; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 64rem; padding: 1rem; background: var(--page); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.4rem; margin: 0 0 .5rem; } h2 { font-size: 1.05rem; margin: 1.4rem 0 .4rem; }
.verdict { padding: .6rem .8rem; border-radius: .4rem; font-weight: 600; }
.verdict.good { color: var(--good); background: var(--good-wash); }
.verdict.bad { color: var(--bad); background: var(--bad-wash); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem .8rem; margin: .8rem 0; font-size: .9rem; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .85rem; }
th { text-align: left; font-weight: 500; color: var(--soft); }
th, td { padding: .2rem .7rem .2rem 0; vertical-align: top; border-bottom: 1px solid var(--line); }
td { overflow-wrap: break-word; min-width: 3rem; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.good { color: var(--good); } .bad { color: var(--bad); } .left { color: var(--left); }
details { border-bottom: 1px solid var(--line); padding: .25rem 0; font-size: .9rem; }
summary { cursor: pointer; } summary .soft { padding-left: 1.1rem; overflow-wrap: anywhere; }
.soft { color: var(--soft); font-size: .85rem; }
li { margin: .15rem 0; overflow-wrap: anywhere; } ul { padding-left: 1.2rem; margin: .3rem 0; }
"""

_CLASSES = {"holds": "good", "fails": "bad", "not covered": "left"}


def check_name(path: str) -> None:
    """Raises UsageError for a name that is no page's, before anything is measured."""
    if not path.endswith(".html"):
        raise UsageError(f"--html writes a page, whose name ends in .html, got {path!r}")


def write(path: str, report: Report) -> None:
    """Writes the page; OSError where it cannot be written."""
    Path(path).write_text(page(report), encoding="utf-8")


def page(report: Report) -> str:
    """Returns the page: verdict, evidence, mutants, what was not tested. Every word of it is escaped."""
    faults = "" if report.holds else f"<h2>Faults</h2>{_list(report.faults, 'bad')}"
    facts = "".join(f"<dt>{_text(name)}</dt><dd>{_text(value)}</dd>" for name, value in report.facts.items())
    title = f"outpace audit {report.title}: {report.subject}"
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
<p class="verdict {"good" if report.holds else "bad"}">{_text(report.verdict())}</p>
<dl>{facts}</dl>
{faults}
<h2>What was checked</h2>
{"".join(_group(name, checks) for name, checks in groups(report))}
{_controls(report)}
<h2>What was not tested</h2>
{_list(report.not_covered, "soft")}
</body>
</html>
"""


def _group(name: str, checks: Sequence[Check]) -> str:
    held, failed, left = counts(list(checks))
    parts = [f"{held} hold"] + [f"{failed} fail"] * bool(failed) + [f"{left} not covered"] * bool(left)
    kind = "bad" if failed else "good" if held else "left"
    rows = "".join(
        f'<tr><td>{_text(c.name)}</td><td class="{_CLASSES[c.verdict]}">{c.verdict}</td>'
        f'<td>{_text(c.evidence)}</td><td class="number">{c.seconds:.2f}</td></tr>'
        for c in checks
    )
    worst = next((c for c in checks if c.verdict == FAILS), checks[-1])
    shown = " open" if worst.verdict == FAILS else ""
    return (
        f'<details{shown}><summary>{_text(name)} <span class="{kind}">{", ".join(parts)}</span>'
        f'<div class="soft">{_text(worst.name)}: {_text(worst.evidence)}</div></summary>'
        f'<div class="wide"><table><tr><th>case</th><th></th><th>evidence</th><th class="number">seconds</th></tr>'
        f"{rows}</table></div></details>"
    )


def _controls(report: Report) -> str:
    if not report.controls:
        return ""
    rows = "".join(
        f'<tr><td>{_text(c.name)}</td><td class="{"good" if c.killed else "bad"}">'
        f"{'killed' if c.killed else 'SURVIVES'}</td><td>{_text(c.fault)}</td><td>{_text(c.killer)}</td>"
        f"<td>{_text(c.evidence)}</td></tr>"
        for c in report.controls
    )
    return (
        "<h2>Mutants: builds with one fault, which the checks must see</h2>"
        '<div class="wide"><table><tr><th>mutant</th><th></th><th>what it does wrong</th><th>must be killed by</th>'
        f"<th>how it was seen</th></tr>{rows}</table></div>"
    )


def _list(lines: Iterable[str], kind: str) -> str:
    return f'<ul class="{kind}">{"".join(f"<li>{_text(line)}</li>" for line in lines)}</ul>'


def _text(words: str) -> str:
    return escape(visible(words))
