"""ckpt.pt, both ways, against nanoGPT itself.

nanoGPT trains 20 iterations, fitGPT goes on for 20, nanoGPT for another 20: the losses are those of
nanoGPT alone, stopped and resumed at the same iterations. Once as it is, once with checkpoints of a
compiled model. Then nanoGPT's model.py loads what fitGPT wrote, as sample.py does.
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
    for name in ["train.py", "model.py", "configurator.py"]:
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
    nanogpt(0, 20, *keys)
    if compiled:
        as_compiled("out/ckpt.pt")
    shutil.copytree("out", "first")
    second = nanogpt(20, 40, *keys)
    third = nanogpt(40, 60, *keys)
    shutil.rmtree("out")
    shutil.move("first", "out")
    ok = report(f"{name}: fitGPT after nanoGPT", apart(fitgpt(40, *keys), second))
    if compiled:
        as_compiled("out/ckpt.pt")
    shutil.copy("out/ckpt.pt", "from_fitgpt.pt")
    ok &= report(f"{name}: nanoGPT after fitGPT", apart(nanogpt(40, 60, *keys), third))
    return ok


def loads_like_sample():
    """What sample.py does with the file, and that fitGPT's sample reads nanoGPT's."""
    from model import GPT, GPTConfig

    saved = torch.load("from_fitgpt.pt", map_location="cpu")
    net = GPT(GPTConfig(**saved["model_args"]))
    weights = {k.removeprefix("_orig_mod."): v for k, v in saved["model"].items()}
    net.load_state_dict(weights)
    net.eval()
    torch.manual_seed(1)
    net.generate(torch.zeros((1, 1), dtype=torch.long), 40, temperature=0.8, top_k=5)
    assert saved["config"]["dataset"] == "tiny" and saved["iter_num"] == 40, saved["iter_num"]
    command = [os.environ["FITGPT"], "sample", "--out_dir=out", "--num_samples=1"]
    done = subprocess.run([*command, "--max_new_tokens=20", "--device=cpu"], capture_output=True)
    assert done.returncode == 0, done.stderr.decode()


def main():
    if "FITGPT_NANOGPT" not in os.environ:
        absent("no copy of nanoGPT: give --nanogpt")
    prepare(os.environ["FITGPT_NANOGPT"])
    sys.path.insert(0, os.getcwd())
    ok = all([relay(False, False), relay(True, True)])
    loads_like_sample()
    sys.exit(0 if ok else "the losses differ")


try:
    import numpy
    import torch
except ImportError as error:
    absent(f"no {error.name}")

if __name__ == "__main__":
    main()
