"""Times nanoGPT's training iteration on a GPU, for `cargo xtask bench --case`.

Takes model.py from a nanoGPT checkout and the very config file that fitgpt reads, executed over
train.py's defaults as nanoGPT's configurator does it. An iteration is train.py's: micro-batches
under autocast, scaled where the format is float16, clip, AdamW of configure_optimizers. Tokens are
random and already on the device. Prints one line of JSON; the time is the median of the timed
iterations.
"""

import argparse
import contextlib
import hashlib
import json
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
    parser = argparse.ArgumentParser(description="time nanoGPT's training iteration on a GPU")
    parser.add_argument("--nanogpt", type=Path, required=True, help="folder of its model.py")
    parser.add_argument("--config", type=Path, required=True, help="a config file of nanoGPT's kind")
    parser.add_argument("--steps", type=int, default=20, help="timed iterations")
    parser.add_argument("--warmup", type=int, default=3, help="iterations before them")
    parser.add_argument("--compile", type=int, choices=(0, 1), default=1, help="torch.compile")
    return checked(parser)


def read_config(path):
    """What the file says, and train.py's defaults for the rest."""
    names = dict(DEFAULTS)
    exec(compile(path.read_text(), str(path), "exec"), names)
    return argparse.Namespace(**{key: names[key] for key in DEFAULTS})


def random_batches(config):
    generator = torch.Generator().manual_seed(1337)
    shape = (config.batch_size, config.block_size + 1)
    for _ in range(config.gradient_accumulation_steps):
        tokens = torch.randint(VOCABULARY, shape, generator=generator)
        yield tokens[:, :-1].contiguous().to(DEVICE), tokens[:, 1:].contiguous().to(DEVICE)


class Trainer:
    """Model, optimizer and scaler as train.py sets them up."""

    def __init__(self, module, config, compiled):
        torch.manual_seed(1337)
        torch.backends.cuda.matmul.allow_tf32 = True
        torch.backends.cudnn.allow_tf32 = True
        self.config = config
        model = module.GPT(module.GPTConfig(
            n_layer=config.n_layer, n_head=config.n_head, n_embd=config.n_embd,
            block_size=config.block_size, vocab_size=VOCABULARY,
            dropout=config.dropout, bias=config.bias,
        )).to(DEVICE)
        self.scaler = torch.amp.GradScaler(DEVICE, enabled=config.dtype == "float16")
        self.optimizer = model.configure_optimizers(
            config.weight_decay, config.learning_rate, (config.beta1, config.beta2), DEVICE)
        self.model = torch.compile(model) if compiled else model
        self.batches = list(random_batches(config))

    def autocast(self):
        if self.config.dtype == "float32":
            return contextlib.nullcontext()
        return torch.amp.autocast(device_type=DEVICE, dtype=getattr(torch, self.config.dtype))

    def iteration(self):
        """One update. Reading the loss waits for the device, as train.py's log line does."""
        for inputs, targets in self.batches:
            with self.autocast():
                _, loss = self.model(inputs, targets)
                loss = loss / len(self.batches)
            self.scaler.scale(loss).backward()
        if self.config.grad_clip != 0.0:
            self.scaler.unscale_(self.optimizer)
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.grad_clip)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        return loss.item() * len(self.batches)


def measure(args, config):
    source = args.nanogpt / "model.py"
    # It reports parameter counts on stdout, which is kept for our one line.
    with contextlib.redirect_stdout(sys.stderr):
        trainer = Trainer(load_model_module(source), config, args.compile == 1)
        seconds, loss = [], None
        for step in range(args.warmup + args.steps):
            started = time.perf_counter()
            loss = trainer.iteration()
            if step >= args.warmup:
                seconds.append(time.perf_counter() - started)
    free, total = torch.cuda.mem_get_info()
    tokens = config.batch_size * config.block_size * config.gradient_accumulation_steps
    median = statistics.median(seconds)
    return {
        "tokens_per_second": tokens / median,
        "ms_per_iteration": median * 1e3,
        "ms_each": [round(each * 1e3, 3) for each in seconds],
        "tokens_per_iteration": tokens,
        "loss": loss,
        "allocated_peak_bytes": torch.cuda.max_memory_allocated(),
        "reserved_peak_bytes": torch.cuda.max_memory_reserved(),
        "device_bytes_used": total - free,
        "model_py_sha256": hashlib.sha256(source.read_bytes()).hexdigest(),
    }


def main():
    args = arguments()
    config = read_config(args.config)
    report = {
        "who": "nanogpt", "device": torch.cuda.get_device_name(0), "torch": torch.__version__,
        "compile": args.compile == 1, "dtype": config.dtype,
    }
    try:
        report |= measure(args, config)
    except torch.OutOfMemoryError as error:
        sys.exit(f"nanoGPT ran out of memory: {error}")
    print(json.dumps(report))


if __name__ == "__main__":
    main()
