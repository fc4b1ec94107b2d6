"""`outpace generate --compare`: the same request with and without speculation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outpace.cli import arguments, console
from outpace.cli.answer import Request, Show, explain, run, summary, writer_for

if TYPE_CHECKING:
    from outpace.api import Model
    from outpace.bench.speculation import Comparison


PLAINLY = {"drafter": "none", "draft_length": None, "prediction": None}
"""What plain decoding is asked for with."""


def compare(model: Model, request: Request, show: Show) -> None:
    from outpace.bench.speculation import Comparison
    from outpace.cli.stream import Silent

    seeded = Request(request.prompt, request.settings | {"seed": arguments.seed_or_new(request.settings["seed"])})
    # The first passes of a process fault its memory in; neither side should pay for that.
    run(model, seeded, Silent(), max_tokens=2, **PLAINLY)
    speculative = run(model, seeded, writer_for(show))
    # A lossy rule may differ from the plain sampler even where nothing is drafted.
    rule = request.settings["rule"] if speculative.lossless else "coupled"
    plain = run(model, seeded, Silent(), rule=rule, **PLAINLY)
    found = Comparison(speculative, plain)
    if show.as_json:
        console.print_json(found.record())
        return
    console.note(f"speculative: {summary(speculative, request.sampled)}")
    console.note(f"plain:       {plain.summary()}")
    explain(speculative, show)
    for line in verdict(found):
        console.note(line)


def verdict(found: Comparison) -> list[str]:
    """Returns the lines that close a comparison."""
    faster = f"{found.speedup:.2f} times as fast as plain decoding"
    difference = found.first_difference()
    if difference is None:
        return [f"{faster}, text identical"]
    from outpace.cli.trace import quoted

    lines = [f"{faster}, texts differ from token {difference.token} on, after {quoted(difference.before)}:"]
    lines += [f"  speculative {quoted(difference.speculative)}", f"  plain       {quoted(difference.plain)}"]
    if not found.speculative.lossless:
        lines.append(f"  (rule {found.speculative.rule} is lossy: it keeps neither the model's law nor the text)")
    elif found.speculative.rule != "coupled":
        lines.append(
            f"  (rule {found.speculative.rule} keeps the model's law, not the seed's text; coupled keeps both)"
        )
    return lines
