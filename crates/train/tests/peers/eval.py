"""`fitgpt eval` against torch and transformers: the loss of a text, strided perplexity, HellaSwag,
and nanoGPT's own `estimate_loss` if FITGPT_NANOGPT names a copy of it.
"""

import json
import math
import os
import random
import re
import subprocess
import sys
from pathlib import Path

try:
    import numpy as np
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel
except ImportError as missing:
    print(f"needs a Python with numpy, torch and transformers: {missing}")
    sys.exit(77)

FITGPT = os.environ["FITGPT"]
CONTEXT = 32
IDS = 50257
WORDS = "the model reads a text and guesses what comes next; it was small, and it learned slowly".split()


def evaluated(*arguments):
    command = [FITGPT, "eval", *map(str, arguments), "--json", "--device=cpu", "--dtype=float32"]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


def close(name, ours, theirs, limit):
    print(f"{name}: {ours:.6f} and {theirs:.6f}, difference {abs(ours - theirs):.1e} ({limit:g})")
    return abs(ours - theirs) <= limit


def made_model(folder):
    torch.manual_seed(5)
    config = GPT2Config(n_layer=2, n_head=2, n_embd=32, n_positions=CONTEXT, vocab_size=IDS)
    config.activation_function = "gelu_new"
    model = GPT2LMHeadModel(config).eval()
    with torch.no_grad():  # far from uniform, so that mistakes show
        for weight in model.parameters():
            weight.mul_(4)
    model.save_pretrained(folder)
    return model


def text_tokens(text):
    Path("text.txt").write_text(text)
    out = subprocess.run(
        [FITGPT, "prepare", "text.txt", "--out", "tokens", "--tokenizer", "gpt2", "--val", "0.5"],
        stdout=subprocess.PIPE,
    )
    assert out.returncode == 0, out
    halves = [np.fromfile(f"tokens/{half}.bin", dtype="<u2") for half in ("train", "val")]
    return [torch.tensor(half.astype(np.int64)) for half in halves]


def losses(model, window):
    """The loss of each token but the first."""
    with torch.no_grad():
        logits = model(window[None]).logits[0, :-1]
    return torch.nn.functional.cross_entropy(logits, window[1:], reduction="none").double()


def strided(model, ids, stride):
    """transformers' strided perplexity: each window scores only new tokens."""
    nats, count, before = 0.0, 0, 0
    for begin in range(0, len(ids), stride):
        end = min(begin + CONTEXT, len(ids))
        new = end - before
        scored = losses(model, ids[begin:end])[-new:]
        nats, count, before = nats + scored.sum().item(), count + len(scored), end
        if end == len(ids):
            return nats / count, count


def whole(model, ids):
    nats, count = 0.0, 0
    for begin in range(0, len(ids) - 1, CONTEXT):
        # The last target needs a position more than the model has: feed the inputs alone.
        window = ids[begin : begin + CONTEXT + 1]
        with torch.no_grad():
            logits = model(window[None, :-1]).logits[0]
        nats += torch.nn.functional.cross_entropy(logits, window[1:], reduction="sum").item()
        count += len(window) - 1
    return nats / count, count


def check_text(model, folder):
    draw = random.Random(3)
    text = "".join(draw.choice(WORDS) + draw.choice([" ", " ", "\n", "é "]) for _ in range(500))
    _, val = text_tokens(text)
    good = True
    loss, count = whole(model, val)
    ours = evaluated(folder, "--data", "tokens/val.bin")
    good &= close("whole split", ours["loss"], loss, 2e-5) and ours["tokens"] == count
    for stride in (5, CONTEXT):
        loss, count = strided(model, val, stride)
        ours = evaluated(folder, "--data", "tokens", "--stride", stride)
        good &= close(f"perplexity, stride {stride}", math.log(ours["perplexity"]), loss, 2e-5)
        good &= ours["tokens"] == count
    # Bits per byte of a text: all bytes but those of the first token.
    ours = evaluated(folder, "--data", "text.txt")
    first = len(b"".join(bytes_of_first_token(text)))
    bits = ours["loss"] * ours["tokens"] / math.log(2) / (len(text.encode()) - first)
    good &= close("bits per byte", ours["bits_per_byte"], bits, 1e-9)
    return good


def bytes_of_first_token(text):
    return [re.match(r"\w+", text).group().encode()] if text[0].isalpha() else [text[0].encode()]


def check_hellaswag(model, folder):

    draw = random.Random(11)
    phrase = lambda n: " ".join(draw.choice(WORDS) for _ in range(n))
    rows = [
        {
            "ind": i,
            "ctx": phrase(draw.randrange(2, 20)),
            "endings": [phrase(draw.randrange(1, 9)) for _ in range(4)],
            "label": draw.randrange(4) if i % 2 else str(draw.randrange(4)),
        }
        for i in range(20)
    ]
    Path("questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    encode = tokenizer_of(folder)
    right = right_mean = 0
    for row in rows:
        sums, means = [], []
        for ending in row["endings"]:
            context, end = encode(row["ctx"]), encode(" " + ending)
            scored = losses(model, torch.tensor((context + end)[-CONTEXT:]))[-len(end) :]
            sums.append(scored.sum().item())
            means.append(scored.mean().item())
        label = int(row["label"])
        right += sums.index(min(sums)) == label
        right_mean += means.index(min(means)) == label
    ours = evaluated(folder, "--hellaswag", "questions.jsonl")
    good = close("hellaswag acc", ours["acc"], right / len(rows), 0)
    return close("hellaswag acc_norm", ours["acc_norm"], right_mean / len(rows), 0) and good


def tokenizer_of(folder):
    """GPT-2's tokens by `tokenizers`, from the file that `fitgpt export` writes."""
    from tokenizers import Tokenizer

    export = [FITGPT, "export", folder, "--to", "hf", "--out", "exported"]
    subprocess.run(export, stdout=subprocess.PIPE, check=True)
    peer = Tokenizer.from_file("exported/tokenizer.json")
    return lambda text: peer.encode(text).ids


def check_nanogpt(nanogpt):
    """nanoGPT trains, then evaluates its checkpoint; we evaluate the same one."""
    folder = Path("data/letters").resolve()
    folder.mkdir(parents=True)
    draw = np.random.default_rng(2)
    for half, count in (("train", 20000), ("val", 5000)):
        (np.cumsum(draw.integers(0, 3, count)) % 60).astype(np.uint16).tofile(folder / f"{half}.bin")
    import pickle

    table = {i: chr(33 + i) for i in range(60)}
    meta = {"vocab_size": 60, "itos": table, "stoi": {c: i for i, c in table.items()}}
    (folder / "meta.pkl").write_bytes(pickle.dumps(meta))
    out = Path("out-nanogpt").resolve()
    keys = [
        f"--out_dir={out}", f"--dataset={folder}", "--device=cpu", "--compile=False",
        "--dtype=float32", "--n_layer=2", "--n_head=2", "--n_embd=32", "--block_size=32",
        "--batch_size=8", "--eval_iters=10", "--log_interval=100",
        "--gradient_accumulation_steps=1",
    ]  # fmt: skip
    train = lambda *more: subprocess.run(
        [sys.executable, "train.py", *keys, *more],
        cwd=nanogpt, stdout=subprocess.PIPE, text=True, check=True,
    ).stdout  # fmt: skip
    train("--max_iters=20", "--eval_interval=20", "--learning_rate=3e-3")
    said = train("--init_from=resume", "--eval_interval=20", "--max_iters=20")
    theirs = re.search(r"train loss ([\d.]+), val loss ([\d.]+)", said)
    good = True
    for split, number in (("train", 1), ("val", 2)):
        ours = evaluated(
            out, f"--data={folder}", "--split", split, "--eval_iters=10", "--sampler=nanogpt",
            "--batch_size=8",
        )  # fmt: skip
        # nanoGPT prints four decimals.
        good &= close(f"nanoGPT {split} loss", round(ours["loss"], 4), float(theirs[number]), 1.01e-4)
    return good


def main():
    folder = Path("model").resolve()
    model = made_model(folder)
    good = check_text(model, folder)
    good &= check_hellaswag(model, folder)
    if nanogpt := os.environ.get("FITGPT_NANOGPT"):
        good &= check_nanogpt(nanogpt)
    else:
        print("nanoGPT was not compared: give --nanogpt DIR")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
