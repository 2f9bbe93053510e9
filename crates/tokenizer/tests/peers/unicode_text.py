"""Our tokenizers against Python's tiktoken and `tokenizers`, on 2 MB of mixed Unicode, both ways.

GPT-2's vocabulary is ours (`cargo xtask peers tiktoken` compares it with OpenAI's rank file); the
second vocabulary is one that `tokenizers` trains here, with added tokens of every supported kind.
"""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

try:
    import numpy as np
    import tiktoken
    import tokenizers
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
except ImportError as missing:
    print(f"needs a Python with numpy, tiktoken and tokenizers: {missing}")
    sys.exit(77)

CONVERT = Path(os.environ["FITGPT_EXAMPLES"]) / "convert"
BYTES = 2_000_000
PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
BLOCKS = [
    (0x20, 0x7F), (0xA0, 0x250), (0x300, 0x370), (0x370, 0x530), (0x590, 0x700), (0x900, 0xA00),
    (0xE00, 0xE80), (0x1F00, 0x2000), (0x2000, 0x2070), (0x2100, 0x2300), (0x3000, 0x3100),
    (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xFE00, 0xFFFD), (0x10000, 0x10100), (0x1D400, 0x1D800),
    (0x1F300, 0x1FAFF), (0x20000, 0x2A6DF), (0xE0000, 0xE0080),
]  # fmt: skip
WORDS = "the of and we're I'll it's don't Zürich naïve Ελλάδα мир 123 4,567.89 0x1f --- ... ''".split()
SPACES = [" ", " ", " ", "  ", "\n", "\n\n", "\t", "\r\n", "   ", "\u3000", "\u00a0", "\u2028", ""]
TOKENS = ["<|endoftext|>", "<pad>", "<pad><pad>", "<mask>", "<left>", "<|endof", "   ", "[new]"]


def mixed_text(seed):
    draw = random.Random(seed)
    parts, size = [], 0
    while size < BYTES:
        kind = draw.random()
        if kind < 0.5:
            part = draw.choice(WORDS)
        elif kind < 0.97:
            first, last = draw.choice(BLOCKS)
            part = "".join(chr(draw.randrange(first, last)) for _ in range(draw.randrange(1, 9)))
        else:
            part = draw.choice(TOKENS)
        part += draw.choice(SPACES)
        parts.append(part)
        size += len(part.encode())
    return "".join(parts)


def convert(vocabulary, action, given):
    command = [CONVERT, vocabulary, action]
    return subprocess.run(command, input=given, stdout=subprocess.PIPE, check=True).stdout


def ids_of(vocabulary, action, text):
    return np.frombuffer(convert(vocabulary, action, text.encode()), dtype="<u2").tolist()


def text_of(vocabulary, ids):
    return convert(vocabulary, "decode", np.array(ids, dtype="<u2").tobytes()).decode()


def same(name, ours, theirs, unit):
    if ours == theirs:
        print(f"{name}: {len(ours)} {unit}, 0 differ (0)")
        return True
    at = next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), min(len(ours), len(theirs)))
    around = slice(max(0, at - 5), at + 5)
    print(f"{name}: {unit} differ at {at}: {ours[around]!r} and {theirs[around]!r} (0)")
    return False


def trained(text, path):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=5000,
        special_tokens=["<|endoftext|>", "<pad>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([text[: len(text) // 4]], trainer)
    tokenizer.add_special_tokens(
        [AddedToken("<mask>", lstrip=True), AddedToken("<left>", rstrip=True), "<pad><pad>"]
    )
    tokenizer.add_tokens([AddedToken("   ", normalized=True), "[new]", "ü", "日本"])
    tokenizer.save(str(path))
    return tokenizer


def main():
    text = mixed_text(17)
    good = True
    # GPT-2's, by tiktoken.
    ours_json = convert("gpt2", "json", b"").decode()
    file = json.loads(ours_json)
    letter = {}
    others = iter(range(0x100, 0x200))
    for byte in range(256):
        printable = 0x21 <= byte <= 0x7E or 0xA1 <= byte <= 0xAC or byte >= 0xAE
        letter[chr(byte) if printable else chr(next(others))] = byte
    ranks = {bytes(letter[c] for c in name): i for name, i in file["model"]["vocab"].items()}
    del ranks[b"<|endoftext|>"]
    peer = tiktoken.Encoding(
        "gpt2", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={"<|endoftext|>": 50256}
    )
    ordinary = peer.encode_ordinary(text)
    good &= same("tiktoken ordinary", ids_of("gpt2", "ordinary", text), ordinary, "ids")
    special = peer.encode(text, allowed_special="all")
    good &= same("tiktoken special", ids_of("gpt2", "encode", text), special, "ids")
    good &= same("tiktoken decode", text_of("gpt2", special), peer.decode(special), "characters")
    draw = random.Random(1)
    shuffled = draw.sample(special, len(special))  # cuts inside characters
    good &= same("tiktoken decode shuffled", text_of("gpt2", shuffled), peer.decode(shuffled), "characters")
    # GPT-2's, by `tokenizers` from the tokenizer.json that we write.
    peer = Tokenizer.from_str(ours_json)
    good &= same("tokenizers reads our GPT-2", ids_of("gpt2", "encode", text), peer.encode(text).ids, "ids")
    # One that `tokenizers` trained, and the same after we wrote it.
    path = Path("trained.json").resolve()
    peer = trained(text, path)
    theirs = peer.encode(text).ids
    good &= same("tokenizers trained", ids_of(str(path), "encode", text), theirs, "ids")
    decoded = peer.decode(theirs, skip_special_tokens=False)
    good &= same("tokenizers decode", text_of(str(path), theirs), decoded, "characters")
    shuffled = draw.sample(theirs, len(theirs))
    decoded = peer.decode(shuffled, skip_special_tokens=False)
    good &= same("tokenizers decode shuffled", text_of(str(path), shuffled), decoded, "characters")
    again = Path("again.json").resolve()
    again.write_bytes(convert(str(path), "json", b""))
    rewritten = Tokenizer.from_file(str(again)).encode(text).ids
    good &= same("tokenizers reads what we wrote", rewritten, theirs, "ids")
    # Special tokens as text.
    peer.encode_special_tokens = True
    theirs = peer.encode(text).ids
    good &= same("tokenizers ordinary", ids_of(str(path), "ordinary", text), theirs, "ids")
    print(f"tiktoken {tiktoken.__version__}, tokenizers {tokenizers.__version__}")
    return 0 if good else 1


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    sys.exit(main())
