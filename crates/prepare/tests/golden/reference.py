"""What nanoGPT's prepare scripts make of a text, with Python's tiktoken: the goldens of this crate.

    python reference.py r50k_base.tiktoken text.txt [FOLDER]

prints counts and checksums of train.bin and val.bin for both of its shakespeare scripts; with a
FOLDER, a data set in it as `fitgpt prepare` made it is compared (bytes, and meta.pkl as Python
unpickles it). The rank file is the one in the crate tiktoken-rs (assets/), with the checksum that
tiktoken expects; so no network is needed. Written with tiktoken 0.14.0, numpy 2.
"""

import hashlib
import pickle
import sys
from pathlib import Path

import numpy as np
import tiktoken
from tiktoken.load import load_tiktoken_bpe

RANKS_SHA256 = "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930"
PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"


def gpt2(ranks):
    assert hashlib.sha256(Path(ranks).read_bytes()).hexdigest() == RANKS_SHA256, "other ranks"
    table = load_tiktoken_bpe(str(ranks))
    return tiktoken.Encoding(
        "gpt2", pat_str=PATTERN, mergeable_ranks=table, special_tokens={"<|endoftext|>": 50256}
    )


def halves(data):
    n = len(data)
    return data[: int(n * 0.9)], data[int(n * 0.9) :]


def shakespeare(data, encoding):
    return [np.array(encoding.encode_ordinary(half), dtype=np.uint16) for half in halves(data)], None


def shakespeare_char(data):
    chars = sorted(list(set(data)))
    stoi = {ch: i for i, ch in enumerate(chars)}
    itos = {i: ch for i, ch in enumerate(chars)}
    meta = {"vocab_size": len(chars), "itos": itos, "stoi": stoi}
    return [np.array([stoi[c] for c in half], dtype=np.uint16) for half in halves(data)], meta


def main():
    encoding = gpt2(sys.argv[1])
    with open(sys.argv[2], "r", encoding="utf-8", newline="") as file:
        data = file.read()
    for name, (made, meta) in [
        ("shakespeare", shakespeare(data, encoding)),
        ("shakespeare_char", shakespeare_char(data)),
    ]:
        for half, ids in zip(["train", "val"], made):
            print(name, half, len(ids), hashlib.sha256(ids.tobytes()).hexdigest())
            if len(sys.argv) > 3:
                found = (Path(sys.argv[3]) / name / f"{half}.bin").read_bytes()
                assert found == ids.tobytes(), f"{name}/{half}.bin differs"
        if meta and len(sys.argv) > 3:
            found = pickle.loads((Path(sys.argv[3]) / name / "meta.pkl").read_bytes())
            assert found == meta and list(found) == list(meta), "meta.pkl differs"
    if len(sys.argv) > 3:
        print("the same")


main()
