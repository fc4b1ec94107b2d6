"""`outpace audit model`: whatever drafts, the text is plain decoding's, on the real model and its real caches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from outpace.api import Model
from outpace.audit.breaking import controls
from outpace.audit.parameters import parameter_tasks
from outpace.audit.perturbed import Perturbed
from outpace.audit.prompts import PROMPTS
from outpace.audit.report import Finding, Minutes, NotCovered, Progress, Report, Task, perform, try_controls
from outpace.audit.states import cache_tasks, fresh_tasks, self_draft_tasks
from outpace.audit.subject import Subject
from outpace.audit.texts import BATCHES, LENGTHS, batch_tasks, ending_tasks, text_tasks, thread_tasks
from outpace.registry import usable_drafters
from outpace.types import Target

UNTESTED = (
    "the law of sampled text under rejection, block and traversal: `outpace audit law`",
    "prompts other than these, and texts longer than these",
    "whether the model's own arithmetic is right: only that drafts do not change it",
)


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is tried. The default is the whole audit."""

    questions: Sequence[str] = PROMPTS
    max_tokens: int = 40
    lengths: Sequence[int | None] = LENGTHS
    batches: Sequence[int] = BATCHES
    threads: Sequence[int] = (1, 2, 3)
    parameter_lengths: Sequence[int] = (3, 8)
    parameter_tokens: int = 20
    state_lengths: Sequence[int] = (0, 1, 4, 8)


QUICK = Extent(PROMPTS[:2], 12, (3, None), (5,), (1,), (4,), 8, (3,))
"""A fixed subset, for continuous integration."""


def audit_model(
    model: Model,
    *,
    reload: Callable[[int], Model] | None = None,
    wanted: Sequence[str] = (),
    minutes: Minutes | None = None,
    extent: Extent | None = None,
    progress: Progress = lambda what: None,
) -> Report:
    """Returns the audit of a loaded model with every registered drafter, or those `wanted`.

    reload: loads the model anew with so many threads. A model without a draft model drafts for itself as well.
    Raises UsageError for a drafter that is not registered.
    """
    minutes, extent = minutes or Minutes(), extent or Extent()
    itself = model.draft is None
    if itself:
        model = Model(model.target, model.text, model.target, load_seconds=model.load_seconds)
    subject = Subject(model, reload, extent.questions, extent.max_tokens)
    usable, absent = usable_drafters(model.target, model.draft, wanted)
    weaker = Perturbed(model.target, 2.0)
    broken = try_controls(controls(subject, weaker), progress)
    tasks = [*_drafter_tasks(subject, usable, weaker if itself else None, extent)]
    tasks += self_draft_tasks(subject, extent.state_lengths)
    tasks += thread_tasks(subject, usable, extent.threads)
    tasks += [absent_task(name, why) for name, why in absent.items()]
    checks = perform(tasks, minutes, progress)
    facts = {
        "model": model.target.name,
        "engine": model.target.engine,
        "threads": str(model.target.threads),
        "drafters": ", ".join(usable) or "none",
        "draft model": "the target itself, right and perturbed"
        if itself
        else model.draft.name
        if model.draft
        else "",
        "prompts": f"{len(extent.questions)}, {extent.max_tokens} tokens each",
        "bit-exact engine": "yes" if model.target.bit_exact else "no: texts may part where two logits nearly tie",
    }
    return Report("model", model.target.name, checks, broken, UNTESTED, facts).timed(minutes)


def _drafter_tasks(subject: Subject, names: Sequence[str], weaker: Target | None, extent: Extent) -> Iterator[Task]:
    """Yields the checks of every drafter. weaker: beside a target that drafts for itself, one that is often wrong."""
    for name in names:
        if name != "model" or weaker is None:
            yield from _all_of(subject, name, extent)
            continue
        yield from _called("model (itself)", _with_texts(subject, name, extent))
        yield from _called("model (itself)", ending_tasks(subject, name))
        yield from _called("model (perturbed)", _all_of(subject.but(draft=weaker), name, extent))


def _all_of(subject: Subject, name: str, extent: Extent) -> Iterator[Task]:
    yield from _with_texts(subject, name, extent)
    yield from fresh_tasks(subject, name, extent.state_lengths)
    yield from ending_tasks(subject, name)
    yield from parameter_tasks(subject, name, extent.parameter_lengths, extent.parameter_tokens)


def _with_texts(subject: Subject, name: str, extent: Extent) -> Iterator[Task]:
    yield from text_tasks(subject, name, extent.lengths)
    yield from batch_tasks(subject, name, extent.batches)
    yield from cache_tasks(subject, name, extent.state_lengths)


def _called(label: str, tasks: Iterable[Task]) -> Iterator[Task]:
    return (replace(task, name=label + task.name.removeprefix("model")) for task in tasks)


def absent_task(drafter: str, why: str) -> Task:
    """Returns the entry of a registered drafter that cannot draft here."""
    return Task("drafters", drafter, partial(_absent, why))


def _absent(why: str) -> Finding:
    raise NotCovered(why)
