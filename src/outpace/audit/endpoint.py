"""`outpace audit endpoint`: whether an OpenAI-compatible server's text is its model's own, from its answers alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from outpace.audit.answers import AMBIGUOUS, first_difference, reported_law
from outpace.audit.doctored import FAULTS, Doctored
from outpace.audit.prompts import TEXTS
from outpace.audit.report import (
    HOLDS,
    Control,
    Finding,
    Minutes,
    NotCovered,
    Progress,
    Report,
    Task,
    perform,
    try_controls,
)
from outpace.audit.server import TOP, Answer, Refused, Server
from outpace.audit.statistics import fit

UNTESTED = (
    "prompts other than these; the law beyond the first three tokens, and that of tokens outside the reported ones",
    "whether the log-probabilities are the named model's: only that texts and log-probabilities agree",
    "other sampling parameters than temperature, stop and max_tokens",
)
LEVEL = 1e-4
ROUNDING = 0.05
"""Nats by which the company of a request may move a log-probability. In bfloat16 neighbouring logits are 0.125 apart
from 16 on."""

ASKED = (4, 9)
"""Tokens asked for where counts are compared."""

LONGEST = 12
"""max_tokens up to here is tried."""

TOGETHER = 4
"""Requests at a time."""


@dataclass(frozen=True, slots=True)
class EndpointExtent:
    """How much is asked, and how exactly. samples: texts of three tokens a sampled law. rounding: as `ROUNDING`."""

    texts: Sequence[str] = TEXTS
    tokens: int = 48
    samples: int = 400
    rounding: float = ROUNDING

    @property
    def near_tie(self) -> float:
        """Nats between two tokens up to which either may be the likeliest: both can be moved."""
        return 2 * self.rounding


@dataclass(slots=True)
class Probe:
    """A server under audit. reference: the same model without speculation, if there is one."""

    server: Server | Doctored
    reference: Server | None = None
    extent: EndpointExtent = field(default_factory=EndpointExtent)

    def greedy(self, server: Server | Doctored, text: str, tokens: int | None = None) -> Answer:
        """Returns a greedy answer, with log-probabilities where the server reports any."""
        options = {"temperature": 0, "max_tokens": tokens or self.extent.tokens}
        try:
            return server.ask(text, logprobs=TOP, **options)
        except Refused:
            return server.ask(text, **options)


def audit_endpoint(
    server: Server,
    reference: Server | None = None,
    *,
    minutes: Minutes | None = None,
    extent: EndpointExtent | None = None,
    progress: Progress = lambda what: None,
) -> Report:
    """Returns the audit of a server, beside a reference where one is given.

    Afterwards answers are doctored, one fault each, and the checks that held must see it.
    """
    minutes = minutes or Minutes()
    probe = Probe(server, reference, extent or EndpointExtent())
    checks = perform([*_tasks(probe)], minutes, progress)
    held = {check.group for check in checks} - {check.group for check in checks if check.verdict != HOLDS}
    broken = try_controls(_controls(server, reference or server, held, probe.extent), progress)
    facts = {
        "server": server.url,
        "model": server.model,
        "asked by": "chat completions" if server.chat else "completions",
        "reference": reference.url if reference else "none: the server is compared with itself",
        "near-tie": f"the two likeliest tokens within {probe.extent.near_tie:g} nats",
        "sampled laws": f"{probe.extent.samples} texts each, level {LEVEL:g}",
    }
    return Report("endpoint", server.url, checks, broken, UNTESTED, facts).timed(minutes)


def _tasks(probe: Probe) -> Iterator[Task]:
    texts = probe.extent.texts
    for number, text in enumerate(texts):
        name = f"prompt {number}"
        yield Task("greedy text", name, partial(greedy_equality, probe, text))
        yield Task("likeliest tokens", name, partial(likeliest, probe, text))
        yield Task("log-probabilities", name, partial(log_probabilities, probe, text))
        yield Task("stop strings", name, partial(stop_strings, probe, text))
        yield Task("streaming", name, partial(streaming, probe, text))
    yield Task("max_tokens", f"1 to {LONGEST}", partial(max_tokens, probe, texts[0]))
    yield Task("usage", "counts", partial(usage, probe, texts))
    yield Task("together", f"{len(texts)} requests at once", partial(together, probe, texts))
    for number, text in enumerate(texts[:2]):
        yield Task("sampled law", f"prompt {number}", partial(sampled_law, probe, text))


def _controls(server: Server, reference: Server, held: set[str], extent: EndpointExtent) -> Iterator[Control]:
    """Yields the faults that checks which held must see; a check that was not covered has nothing to show."""
    for fault in FAULTS:
        if fault.group in held:
            probe = Probe(Doctored(server, fault), reference, extent)
            runs = [task.run for task in _tasks(probe) if task.group == fault.group]
            yield Control(fault.name, fault.fault, fault.group, partial(_any_fails, runs))


def _any_fails(runs: Sequence[Callable[[], Finding]]) -> Finding:
    """Returns the first finding that does not hold, or the last one."""
    finding = Finding(True, "nothing was tried")
    for run in runs:
        finding = run()
        if not finding.holds:
            break
    return finding


def greedy_equality(probe: Probe, text: str) -> Finding:
    """Compares the greedy text with the reference's, or with a second answer of the same server."""
    answer = probe.greedy(probe.server, text)
    other = probe.greedy(probe.reference or probe.server, text)
    against = "the reference" if probe.reference else "a second answer"
    found = first_difference(answer, other)
    if found is None:
        return Finding(True, f"equal to {against}, {_count(answer)}")
    near = probe.extent.near_tie
    return Finding(found.margin is not None and found.margin <= near, f"{found.described(near)}, against {against}")


def likeliest(probe: Probe, text: str) -> Finding:
    """Greedy tokens must be the likeliest that the server itself reports at their place."""
    answer = probe.greedy(probe.server, text)
    tokens, logprobs, top = _reported(answer)
    ties, near = 0, probe.extent.near_tie
    for place, (token, value, law) in enumerate(zip(tokens, logprobs, top, strict=True)):
        best = max(law, key=lambda each: law[each])
        behind = law[best] - value
        ties += 0 < behind <= near
        if behind > near:
            return Finding(
                False,
                f"token {place} is {token!r}, {behind:.3g} nats less likely than {best!r} (late or wrong rows?)",
            )
    return Finding(True, f"{len(tokens)} tokens" + (f", {ties} near-ties" if ties else ""))


def log_probabilities(probe: Probe, text: str) -> Finding:
    """One log-probability a token, each at most 0, not all 0, the sum of each list at most 1."""
    answer = probe.server.ask(text, temperature=1, seed=1, max_tokens=probe.extent.tokens, logprobs=TOP)
    tokens, logprobs, top = _reported(answer)
    if answer.usage and answer.usage.completion != len(tokens) and answer.finish != "stop":
        return Finding(False, f"{len(tokens)} log-probabilities for {answer.usage.completion} tokens")
    if len(logprobs) >= 8 and not any(logprobs):
        return Finding(False, f"all {len(logprobs)} log-probabilities are 0.0: they are not the model's")
    for place, (token, value, law) in enumerate(zip(tokens, logprobs, top, strict=True)):
        mass = math.fsum(math.exp(min(each, 1.0)) for each in law.values())
        if value > 1e-6 or mass > 1.001:
            return Finding(False, f"token {place}: log-probability {value:.4g}, the listed ones sum to {mass:.4g}")
        if token in law and AMBIGUOUS not in token and abs(law[token] - value) > 1e-3:
            return Finding(False, f"token {place} has {value:.4g}, and {law[token]:.4g} among the listed")
    if AMBIGUOUS not in "".join(tokens) and not "".join(tokens).startswith(answer.text):
        return Finding(False, "the tokens that it lists are not the text")
    return Finding(True, f"{len(tokens)} tokens, mean {math.fsum(logprobs) / max(1, len(logprobs)):.3f}")


def stop_strings(probe: Probe, text: str) -> Finding:
    """Stops at pieces of the greedy text: what is left ends before the first match."""
    whole = probe.greedy(probe.server, text).text
    tried = 0
    for start in range(3, max(4, min(len(whole) - 6, 36)), 8):
        stop = whole[start : start + 4]
        if len(stop) < 4 or not stop.strip():
            continue
        answer = probe.server.ask(text, temperature=0, max_tokens=probe.extent.tokens, stop=[stop])
        tried += 1
        if stop in answer.text:
            return Finding(False, f"the stop string {stop!r} was missed: it is in the text")
        if answer.text != whole[: whole.index(stop)]:
            return Finding(False, f"with the stop string {stop!r} the text is not the one before its first match")
        if answer.finish != "stop":
            return Finding(False, f"it stops at {stop!r} and says {answer.finish!r}")
    if not tried:
        raise NotCovered("the text is too short to stop in")
    return Finding(True, f"{tried} stop strings")


def streaming(probe: Probe, text: str) -> Finding:
    """The streamed pieces joined are the text, with one reason for the end."""
    whole = probe.server.ask(text, temperature=0, max_tokens=probe.extent.tokens)
    joined, reasons = probe.server.stream(text, temperature=0, max_tokens=probe.extent.tokens)
    if joined != whole.text:
        return Finding(False, f"the streamed pieces make {joined[:60]!r}, the whole is {whole.text[:60]!r}")
    return Finding(reasons == [whole.finish], f"{len(joined)} characters, ended by {reasons}")


def max_tokens(probe: Probe, text: str) -> Finding:
    """Asks for 1 to 12 tokens: no more come, and they begin the longer text."""
    whole = probe.greedy(probe.server, text, LONGEST + 1).text
    for count in range(1, LONGEST + 1):
        answer = probe.greedy(probe.server, text, count)
        came = answer.usage.completion if answer.usage else len(answer.tokens or ())
        if came > count or (came < count and answer.finish == "length"):
            return Finding(False, f"{came} tokens came for max_tokens {count}, finish {answer.finish!r}")
        if not whole.startswith(answer.text.rstrip(AMBIGUOUS)):
            return Finding(False, f"the text of {count} tokens does not begin the longer one")
    return Finding(True, f"{LONGEST} lengths")


def usage(probe: Probe, texts: Sequence[str]) -> Finding:
    """The counts add up, agree with the log-probabilities, and a prompt has the same count each time."""
    for number, text in enumerate(texts):
        answers = [probe.greedy(probe.server, text, tokens) for tokens in ASKED]
        counts = [answer.usage for answer in answers]
        for asked, answer, found in zip(ASKED, answers, counts, strict=True):
            if found is None:
                raise NotCovered("the server reports no usage")
            if answer.finish == "length" and found.completion != asked:
                return Finding(False, f"prompt {number}: {found.completion} tokens counted, {asked} came")
            if found.prompt < 1 or found.total != found.prompt + found.completion:
                return Finding(False, f"prompt {number}: {found.prompt} + {found.completion} is {found.total}")
            if answer.tokens is not None and answer.finish == "length" and len(answer.tokens) != found.completion:
                return Finding(False, f"prompt {number}: {found.completion} tokens, {len(answer.tokens)} listed")
        if counts[0] and counts[1] and counts[0].prompt != counts[1].prompt:
            return Finding(False, f"prompt {number}: {counts[0].prompt} tokens, then {counts[1].prompt}")
    return Finding(True, f"{2 * len(texts)} answers")


def together(probe: Probe, texts: Sequence[str]) -> Finding:
    """Requests at the same time get the answers that they get alone."""
    near = probe.extent.near_tie
    alone = [probe.greedy(probe.server, text) for text in texts]
    with ThreadPoolExecutor(len(texts)) as pool:
        shared = [*pool.map(lambda text: probe.greedy(probe.server, text), texts)]
    for number, (one, other) in enumerate(zip(alone, shared, strict=True)):
        found = first_difference(other, one)
        if found is not None and not (found.margin is not None and found.margin <= near):
            return Finding(False, f"prompt {number}: {found.described(near)}, alone")
    return Finding(True, f"{len(texts)} texts equal")


def sampled_law(probe: Probe, text: str) -> Finding:
    """Compares how often texts of three tokens come with the log-probabilities that the server reports."""

    def ask(seed: int) -> Answer:
        return probe.server.ask(text, temperature=1, seed=seed, max_tokens=3, logprobs=TOP)

    with ThreadPoolExecutor(TOGETHER) as pool:
        answers = [*pool.map(ask, range(probe.extent.samples))]
    whole = [answer for answer in answers if answer.finish != "stop"]
    if len(whole) < 0.98 * len(answers):
        raise NotCovered("too many texts end within three tokens")
    law = reported_law(whole, len(whole), probe.extent.rounding)
    if law.inconsistent:
        return Finding(False, law.inconsistent)
    found = fit(law.counts, law.outcomes.law, LEVEL)
    return Finding(found.holds, str(found))


def _reported(answer: Answer) -> tuple[tuple[str, ...], tuple[float, ...], tuple[dict[str, float], ...]]:
    """Returns tokens, log-probabilities and alternatives. Raises NotCovered without them."""
    if answer.tokens is None or answer.logprobs is None or answer.top is None:
        raise NotCovered("the server reports no log-probabilities")
    if not len(answer.tokens) == len(answer.logprobs) == len(answer.top):
        raise ValueError(
            f"{len(answer.tokens)} tokens, {len(answer.logprobs)} log-probabilities, {len(answer.top)} lists"
        )
    return answer.tokens, answer.logprobs, tuple(dict(law) for law in answer.top)


def _count(answer: Answer) -> str:
    if answer.tokens is not None:
        return f"{len(answer.tokens)} tokens"
    return f"{answer.usage.completion} tokens" if answer.usage else f"{len(answer.text)} characters"
