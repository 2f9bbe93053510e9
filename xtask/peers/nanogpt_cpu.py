"""Times nanoGPT's training step on the CPU, for `cargo xtask bench`.

Loads model.py from a nanoGPT checkout and runs what its train.py does in one iteration (forward,
backward, clip to 1.0, AdamW from configure_optimizers): f32, eager, random tokens. Prints one
line of JSON; the time of an iteration is the median over the timed ones.
"""

import argparse
import contextlib
import hashlib
import json
import os
import statistics
import sys
import time
from pathlib import Path

import torch

from nanogpt_model import checked, load_model_module


def arguments():
    parser = argparse.ArgumentParser(description="time nanoGPT's training step on the CPU")
    parser.add_argument("--nanogpt", type=Path, required=True, help="folder of its model.py")
    parser.add_argument("--n_layer", type=int, default=6)
    parser.add_argument("--n_head", type=int, default=6)
    parser.add_argument("--n_embd", type=int, default=384)
    parser.add_argument("--block_size", type=int, default=256)
    parser.add_argument("--vocab", type=int, default=65)
    parser.add_argument("--batch_size", type=int, default=64)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--bias", action="store_true", help="biases in Linear and LayerNorm")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--steps", type=int, default=5, help="timed iterations")
    parser.add_argument("--warmup", type=int, default=1, help="iterations before them")
    return checked(parser, parser.parse_args())


def build(module, args):
    model = module.GPT(module.GPTConfig(
        n_layer=args.n_layer, n_head=args.n_head, n_embd=args.n_embd,
        block_size=args.block_size, vocab_size=args.vocab,
        dropout=args.dropout, bias=args.bias,
    ))
    model.train()
    # The values of its config/train_shakespeare_char.py; none of them changes the time.
    optimizer = model.configure_optimizers(
        weight_decay=0.1, learning_rate=1e-3, betas=(0.9, 0.99), device_type="cpu")
    return model, optimizer


def iteration(model, optimizer, inputs, targets):
    _, loss = model(inputs, targets)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss.item()


def main():
    args = arguments()
    torch.set_num_threads(args.threads)
    torch.manual_seed(1337)
    source = args.nanogpt / "model.py"
    # It reports parameter counts on stdout, which is kept for our one line.
    with contextlib.redirect_stdout(sys.stderr):
        model, optimizer = build(load_model_module(source), args)

    seconds = []
    loss = None
    for step in range(args.warmup + args.steps):
        tokens = torch.randint(args.vocab, (args.batch_size, args.block_size + 1))
        inputs, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
        started = time.perf_counter()
        loss = iteration(model, optimizer, inputs, targets)
        if step >= args.warmup:
            seconds.append(time.perf_counter() - started)

    median = statistics.median(seconds)
    print(json.dumps({
        "who": "nanogpt",
        "tokens_per_second": args.batch_size * args.block_size / median,
        "ms_per_iteration": median * 1e3,
        "ms_each": [round(s * 1e3, 3) for s in seconds],
        "loss": loss,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "model_py_sha256": hashlib.sha256(source.read_bytes()).hexdigest(),
    }))


if __name__ == "__main__":
    main()
