"""Folders of transformers with tiny random encoder-decoders, for the commands. Needs the extra 'torch'."""

from __future__ import annotations

import json

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

from outpace.targets.torch_loading import quiet
from tiny_torch import V, seq2seq_model


def saved(folder, name, tokenizer, seed=0, **settings):
    """Returns the folder of a tiny model and a tokenizer."""
    with quiet():
        seq2seq_model(name, seed).save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


def pieces():
    """Returns a Unigram tokenizer of T5's kind: words, letters, and </s> after each text."""
    words = ["▁the", "▁sea", "▁is", "▁deep", "▁", *"abcdefghijklmnopqrstuvwxyz"]
    vocab = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), *((word, -len(word) * 0.1 - 1) for word in words)]
    tokenizer = Tokenizer(models.Unigram(vocab, unk_id=2))
    tokenizer.add_special_tokens(["<pad>", "</s>", "<unk>"])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    return tokenizer


def byte_level():
    """Returns a tokenizer of bytes without merges, for Whisper."""
    vocab = {char: i + 4 for i, char in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet())[: V - 4])}
    tokenizer = Tokenizer(models.BPE({"<pad>": 0, "<end>": 1, "<s>": 2, "<start>": 3} | vocab, []))
    tokenizer.add_special_tokens(["<pad>", "<end>", "<s>", "<start>"])
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer
