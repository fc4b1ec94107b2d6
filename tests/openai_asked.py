"""How the tests ask a server through the official client."""

from __future__ import annotations

import openai
import pytest

MODEL = "smollm2-135m"
QUESTION = [{"role": "user", "content": "Count from one to ten in words, then again."}]
STORY = [{"role": "system", "content": "You are brief."}, {"role": "user", "content": "Tell me a story of a fox."}]


def chat(client, messages=QUESTION, **options):
    options = {"max_tokens": 24, "temperature": 0, **options}
    return client.chat.completions.create(model=MODEL, messages=messages, **options)


def streamed(client, **options):
    """Returns (chunks, the joined text of each choice)."""
    chunks = list(chat(client, stream=True, **options))
    texts = {}
    for chunk in chunks:
        for choice in chunk.choices:
            texts[choice.index] = texts.get(choice.index, "") + (choice.delta.content or "")
    return chunks, texts


def refused(client, status=400, **options):
    with pytest.raises(openai.APIStatusError) as caught:
        chat(client, **options)
    assert caught.value.status_code == status
    return caught.value.body
