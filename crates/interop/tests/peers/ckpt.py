"""ckpt.pt, both ways, against nanoGPT itself.

nanoGPT trains 20 iterations, fitGPT goes on for 20, nanoGPT for another 20: the losses are those of
nanoGPT alone, stopped and resumed at the same iterations. Once as it is, once with checkpoints of a
compiled model: with `--compile=True` where there is a C++ compiler, else with the names that
compiling gives. Then nanoGPT's sample.py reads what fitGPT wrote and prints the same greedy text.
"""

import os
import pickle
import re
import shutil
import subprocess
import sys
from pathlib import Path

ABSENT = 77
LIMIT = 5e-4

CONFIG = """
out_dir = 'out'
dataset = 'tiny'
eval_interval = 20
eval_iters = 2
batch_size = 4
gradient_accumulation_steps = 2
block_size = 32
n_layer = 2
n_head = 2
n_embd = 32
dropout = 0.0
learning_rate = 3e-3
lr_decay_iters = 60
warmup_iters = 5
min_lr = 3e-4
beta2 = 0.99
weight_decay = 0.2
device = 'cpu'
dtype = 'float32'
compile = False
"""


def absent(why):
    print(why)
    sys.exit(ABSENT)


def prepare(source):
    for name in ["train.py", "model.py", "sample.py", "configurator.py"]:
        shutil.copy(Path(source) / name, name)
    data = Path("data/tiny")
    data.mkdir(parents=True)
    random = numpy.random.default_rng(7)
    text = random.choice(list("abcdefghij \n"), 20_000, p=[0.2] + [0.08] * 9 + [0.06, 0.02])
    chars = sorted(set(map(str, text)))
    stoi = {c: i for i, c in enumerate(chars)}
    ids = numpy.array([stoi[c] for c in text], dtype=numpy.uint16)
    ids[:18_000].tofile(data / "train.bin")
    ids[18_000:].tofile(data / "val.bin")
    meta = dict(vocab_size=len(chars), itos=dict(enumerate(chars)), stoi=stoi)
    (data / "meta.pkl").write_bytes(pickle.dumps(meta))
    Path("tiny.py").write_text(CONFIG)


def losses(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        print(done.stdout[-3000:], done.stderr[-3000:])
        sys.exit(f"{command} failed")
    found = re.findall(r"^iter (\d+): loss ([0-9.]+)", done.stdout, re.M)
    return {int(i): float(loss) for i, loss in found}


def nanogpt(first, last, *more):
    how = ["--init_from=resume"] if first else []
    command = [sys.executable, "train.py", "tiny.py", f"--max_iters={last}", *how, *more]
    return losses(command)


def fitgpt(last, *more):
    keys = ["--init_from=resume", "--sampler=nanogpt", "--checkpoint_format=ckpt", *more]
    return losses([os.environ["FITGPT"], "train", "tiny.py", f"--max_iters={last}", *keys])


def apart(one, other):
    assert one.keys() == other.keys() and one, (one.keys(), other.keys())
    return max(abs(one[i] - other[i]) for i in one)


def report(name, figure):
    print(f"{name}: largest difference of {figure:.1e} ({LIMIT:.0e})")
    return figure <= LIMIT


def as_compiled(path):
    """Gives a checkpoint the names that torch.compile's wrapper has, without compiling anything."""
    from model import GPT, GPTConfig

    saved = torch.load(path, map_location="cpu")
    net = torch.compile(GPT(GPTConfig(**saved["model_args"])))
    net.load_state_dict({f"_orig_mod.{k}": v for k, v in saved["model"].items()})
    saved["model"] = net.state_dict()
    torch.save(saved, path)


def relay(bias, compiled):
    """20 + 20 + 20 iterations, alone and with fitGPT in the middle."""
    name = f"bias={bias}" + (", compiled" if compiled else "")
    shutil.rmtree("out", ignore_errors=True)
    keys = [f"--bias={bias}"]
    really = compiled and shutil.which("g++") is not None
    nanos = [*keys, f"--compile={really}"]
    nanogpt(0, 20, *nanos)
    if compiled and not really:
        as_compiled("out/ckpt.pt")
    saved = torch.load("out/ckpt.pt", map_location="cpu")["model"]
    assert all(name.startswith("_orig_mod.") == compiled for name in saved), list(saved)
    shutil.copytree("out", "first")
    second = nanogpt(20, 40, *nanos)
    third = nanogpt(40, 60, *nanos)
    shutil.rmtree("out")
    shutil.move("first", "out")
    ok = report(f"{name}: fitGPT after nanoGPT", apart(fitgpt(40, *keys), second))
    if compiled:
        as_compiled("out/ckpt.pt")
    shutil.copytree("out", "from_fitgpt", dirs_exist_ok=True)
    ok &= report(f"{name}: nanoGPT after fitGPT", apart(nanogpt(40, 60, *nanos), third))
    return ok


def greedy(command, folder, *more):
    keys = [f"--out_dir={folder}", "--num_samples=1", "--max_new_tokens=40", "--start=abc"]
    done = subprocess.run([*command, *keys, "--device=cpu", *more], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    # nanoGPT's sample.py tells first what it does.
    return done.stdout.split("meta.pkl...\n")[-1]


def same_text():
    """nanoGPT's sample.py and ours, on what each of the two programs wrote."""
    saved = torch.load("from_fitgpt/ckpt.pt", map_location="cpu")
    assert saved["config"]["dataset"] == "tiny" and saved["iter_num"] == 40, saved["iter_num"]
    ok = True
    for whose, folder in [("fitGPT", "from_fitgpt"), ("nanoGPT", "out")]:
        theirs = greedy([sys.executable, "sample.py"], folder, "--top_k=1", "--dtype=float32")
        ours = greedy([os.environ["FITGPT"], "sample"], folder, "--temperature=0")
        assert theirs.startswith("abc") and len(theirs) == len(ours) > 40, (theirs, ours)
        differ = sum(a != b for a, b in zip(theirs, ours, strict=True))
        print(f"sample.py on a file of {whose}: {differ} characters differ (0)")
        ok &= differ == 0
    return ok


def main():
    if "FITGPT_NANOGPT" not in os.environ:
        absent("no copy of nanoGPT: give --nanogpt")
    prepare(os.environ["FITGPT_NANOGPT"])
    sys.path.insert(0, os.getcwd())
    ok = all([relay(False, False), relay(True, True), same_text()])
    sys.exit(0 if ok else "the losses or texts differ")


try:
    import numpy
    import torch
except ImportError as error:
    absent(f"no {error.name}")

if __name__ == "__main__":
    main()
