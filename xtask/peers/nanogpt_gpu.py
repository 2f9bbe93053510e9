"""Times nanoGPT's training iteration on a GPU, for `cargo xtask bench --case`.

Takes model.py from a nanoGPT checkout and the very config file that fitgpt reads, executed over
train.py's defaults as nanoGPT's configurator does it; arguments of the form --key=value come after
the file. An iteration is train.py's: micro-batches under autocast, scaled where the format is
float16, clip, AdamW of configure_optimizers. Tokens are random, as frequent as fitgpt bench draws
them (Zipf's law), and already on the device. Prints one line of JSON; the time is the median of the
timed iterations.
"""

import argparse
import ast
import contextlib
import hashlib
import json
import math
import statistics
import sys
import time
from pathlib import Path

import torch

from nanogpt_model import checked, load_model_module

# train.py's values; a config file changes what it names.
DEFAULTS = {
    "gradient_accumulation_steps": 5 * 8, "batch_size": 12, "block_size": 1024,
    "n_layer": 12, "n_head": 12, "n_embd": 768, "dropout": 0.0, "bias": False,
    "learning_rate": 6e-4, "weight_decay": 1e-1, "beta1": 0.9, "beta2": 0.95, "grad_clip": 1.0,
    "dtype": "bfloat16",
}

# GPT-2's vocabulary, rounded up as train.py does it where a data set has no meta.pkl.
VOCABULARY = 50304

DEVICE = "cuda"


def arguments():
    parser = argparse.ArgumentParser(description="time nanoGPT's training iteration on a GPU",
                                     allow_abbrev=False)
    parser.add_argument("--nanogpt", type=Path, required=True, help="folder of its model.py")
    parser.add_argument("--config", type=Path, required=True, help="a config file of nanoGPT's kind")
    parser.add_argument("--steps", type=int, default=20, help="timed iterations")
    parser.add_argument("--warmup", type=int, default=3, help="iterations before them")
    parser.add_argument("--compile", type=int, choices=(0, 1), default=1, help="torch.compile")
    parser.add_argument("--wait", action="store_true",
                        help="compile, print `ready`, then time once for each line of input")
    args, overrides = parser.parse_known_args()
    return checked(parser, args), overrides


def read_config(path, overrides):
    """What the arguments and the file say, and train.py's defaults for the rest."""
    names = dict(DEFAULTS)
    exec(compile(path.read_text(), str(path), "exec"), names)
    for override in overrides:
        key, _, text = override.removeprefix("--").partition("=")
        if key not in DEFAULTS:
            sys.exit(f"nanogpt_gpu.py has no key {key}")
        try:
            value = ast.literal_eval(text)
        except (SyntaxError, ValueError):
            value = text
        if type(value) is not type(names[key]):
            sys.exit(f"{override}: {key} is like {names[key]!r}")
        names[key] = value
    return argparse.Namespace(**{key: names[key] for key in DEFAULTS})


def random_batches(config):
    generator = torch.Generator().manual_seed(1337)
    shape = (config.batch_size, config.block_size + 1)
    for _ in range(config.gradient_accumulation_steps):
        uniform = torch.rand(shape, generator=generator, dtype=torch.float64)
        tokens = torch.expm1(uniform * math.log(VOCABULARY + 1)).long().clamp(max=VOCABULARY - 1)
        yield tokens[:, :-1].contiguous().to(DEVICE), tokens[:, 1:].contiguous().to(DEVICE)


class Trainer:
    """Model, optimizer and scaler as train.py sets them up."""

    def __init__(self, module, config, compiled):
        torch.manual_seed(1337)
        torch.backends.cuda.matmul.allow_tf32 = True
        torch.backends.cudnn.allow_tf32 = True
        self.config = config
        # Initialised there, which is quicker for a billion parameters than on the CPU.
        with torch.device(DEVICE):
            model = module.GPT(module.GPTConfig(
                n_layer=config.n_layer, n_head=config.n_head, n_embd=config.n_embd,
                block_size=config.block_size, vocab_size=VOCABULARY,
                dropout=config.dropout, bias=config.bias,
            ))
        self.scaler = torch.amp.GradScaler(DEVICE, enabled=config.dtype == "float16")
        self.optimizer = model.configure_optimizers(
            config.weight_decay, config.learning_rate, (config.beta1, config.beta2), DEVICE)
        self.model = torch.compile(model) if compiled else model
        self.batches = list(random_batches(config))

    def autocast(self):
        if self.config.dtype == "float32":
            return contextlib.nullcontext()
        return torch.amp.autocast(device_type=DEVICE, dtype=getattr(torch, self.config.dtype))

    def iteration(self, batches):
        """One update. Reading the loss waits for the device, as train.py's log line does."""
        for inputs, targets in batches:
            with self.autocast():
                _, loss = self.model(inputs, targets)
                loss = loss / len(batches)
            self.scaler.scale(loss).backward()
        if self.config.grad_clip != 0.0:
            self.scaler.unscale_(self.optimizer)
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.grad_clip)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        return loss.item() * len(batches)


def measure(trainer, args):
    torch.cuda.reset_peak_memory_stats()
    seconds, loss = [], None
    for step in range(args.warmup + args.steps):
        started = time.perf_counter()
        loss = trainer.iteration(trainer.batches)
        if step >= args.warmup:
            seconds.append(time.perf_counter() - started)
    free, total = torch.cuda.mem_get_info()
    config = trainer.config
    tokens = config.batch_size * config.block_size * config.gradient_accumulation_steps
    median = statistics.median(seconds)
    return {
        "who": "nanogpt",
        "device": torch.cuda.get_device_name(0),
        "torch": torch.__version__,
        "compile": args.compile == 1,
        "dtype": config.dtype,
        "tokens_per_second": tokens / median,
        "ms_per_iteration": median * 1e3,
        "ms_each": [round(each * 1e3, 3) for each in seconds],
        "tokens_per_iteration": tokens,
        "loss": loss,
        "allocated_peak_bytes": torch.cuda.max_memory_allocated(),
        "reserved_peak_bytes": torch.cuda.max_memory_reserved(),
        "device_bytes_used": total - free,
        "model_py_sha256": hashlib.sha256((args.nanogpt / "model.py").read_bytes()).hexdigest(),
    }


def run(args, config):
    """Gives the reports: one, or one for each line of input."""
    # The model reports parameter counts on stdout, which is kept for ours.
    with contextlib.redirect_stdout(sys.stderr):
        module = load_model_module(args.nanogpt / "model.py")
        trainer = Trainer(module, config, args.compile == 1)
    if not args.wait:
        yield measure(trainer, args)
        return
    trainer.iteration(trainer.batches[:1])
    # Others take their turn meanwhile: keep weights and moments only.
    torch.cuda.empty_cache()
    print("ready", flush=True)
    while sys.stdin.readline():
        yield measure(trainer, args)
        torch.cuda.empty_cache()


def main():
    args, overrides = arguments()
    config = read_config(args.config, overrides)
    try:
        for report in run(args, config):
            print(json.dumps(report), flush=True)
    except torch.OutOfMemoryError as error:
        sys.exit(f"nanoGPT ran out of memory: {error}")


if __name__ == "__main__":
    main()
