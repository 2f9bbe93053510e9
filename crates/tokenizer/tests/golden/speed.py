"""Python's tiktoken on one core, for the example tokenizer_speed to be compared with.

    python speed.py r50k_base.tiktoken text.txt
"""

import sys
import time
from pathlib import Path

import tiktoken
from tiktoken.load import load_tiktoken_bpe

PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
encoding = tiktoken.Encoding(
    "gpt2", pat_str=PATTERN, mergeable_ranks=load_tiktoken_bpe(sys.argv[1]),
    special_tokens={"<|endoftext|>": 50256},
)
text = Path(sys.argv[2]).read_bytes().decode("utf-8")
lines = text.splitlines(keepends=True)
megabytes = len(text.encode()) / 1e6


def best(work):
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        tokens = work()
        seconds.append(time.perf_counter() - start)
    return min(seconds), tokens


for name, work in [
    ("whole", lambda: len(encoding.encode_ordinary(text))),
    ("lines", lambda: sum(len(encoding.encode_ordinary(line)) for line in lines)),
]:
    seconds, tokens = best(work)
    print(f"{name}, 1 core: {megabytes / seconds:.1f} MB/s, {tokens} tokens")
