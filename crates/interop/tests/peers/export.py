"""What `fitgpt export` writes, in transformers and llama.cpp; what transformers saves, in fitgpt.

See xtask/src/interop.rs for how this is run. Needs torch, transformers, gguf and xllamacpp.
"""

import array
import json
import os
import random
import subprocess
import sys
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_VERBOSITY"] = "error"
try:
    import gguf
    import torch
    import xllamacpp
    from safetensors.torch import load_file
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2Config, GPT2LMHeadModel
except ImportError as error:
    print(f"no module {error.name}")
    sys.exit(77)

FITGPT = os.environ["FITGPT"]
TINY = [
    "--n_layer=2", "--n_head=2", "--n_embd=32", "--block_size=64", "--batch_size=8",
    "--gradient_accumulation_steps=1", "--max_iters=150", "--eval_interval=150", "--eval_iters=2",
    "--learning_rate=1e-2", "--min_lr=1e-3", "--warmup_iters=10", "--lr_decay_iters=150",
    "--device=cpu", "--dtype=float32", "--log_interval=1000",
]  # fmt: skip
PROMPT = "The girl walked to"
bad = 0


def show(name, figure, limit, ok):
    global bad
    bad += not ok
    print(f"{name}: {figure} ({limit})" if ok else f"FAILED: {name}: {figure}, not {limit}")


def show_tokens(name, found, wanted):
    same = sum(one == other for one, other in zip(found, wanted))
    show(f"{name}: greedy tokens", f"{same} of {len(wanted)}", len(wanted), found == wanted)


def show_logits(name, found, wanted):
    difference = (found - wanted).abs().max().item()
    largest = wanted.abs().max().item()
    figure = f"largest difference {difference:.1e}, largest logit {largest:.1f}"
    show(f"{name}: logits", figure, "1e-4", difference < 1e-4)


def fitgpt(*arguments):
    ended = subprocess.run([FITGPT, *map(str, arguments)], capture_output=True, text=True)
    if ended.returncode:
        sys.exit(f"fitgpt {arguments}: {ended.stdout}{ended.stderr}")
    return ended.stdout


LOGITS = Path(os.environ["FITGPT_EXAMPLES"]) / "logits"


def printed(model, *arguments):
    command = [LOGITS, model, *map(str, arguments)]
    ended = subprocess.run(command, capture_output=True, text=True)
    if ended.returncode:
        sys.exit(f"logits {model}: {ended.stderr}")
    return [json.loads(line) for line in ended.stdout.splitlines()]


def our_logits(model, ids):
    return torch.tensor(printed(model, *ids))


def our_greedy(model, ids, count=20):
    return printed(model, f"--greedy={count}", *ids)[0]


def their_greedy(model, ids, count=20):
    ids = torch.tensor([ids])
    with torch.no_grad():
        for _ in range(count):
            best = model(ids).logits[0, -1].argmax()
            ids = torch.cat([ids, best.view(1, 1)], 1)
    return ids[0, -count:].tolist()


def llama(path, prompt, count=20):
    """The greedy continuation in llama.cpp."""
    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.n_ctx = 64
    params.warmup = False
    params.cpuparams.n_threads = 1
    server = xllamacpp.Server(params)
    asked = {"prompt": prompt, "n_predict": count, "temperature": 0.0, "n_probs": 1}
    found = server.handle_completions(asked)
    found = json.loads(found) if isinstance(found, str) else found
    choice = found["choices"][0]
    return choice["text"], [token["id"] for token in choice["logprobs"]["content"]]


def mixed_text():
    """A text with letters of several scripts, for the tokenizers."""
    rng = random.Random(7)
    words = "don't|  naïve|Straße|日本語|🦀🦀|\n\n|x=1;|\t|the|<<endoftext>>|¿qué?".split("|")
    return " ".join(rng.choice(words) for _ in range(4000))


def stories():
    rng = random.Random(1)
    names = ["girl", "boy", "fox", "old man", "crab"]
    verbs = ["walked to", "looked at", "forgot", "painted"]
    places = ["the sea", "the market", "a quiet house", "the mountain"]
    row = lambda: f"The {rng.choice(names)} {rng.choice(verbs)} {rng.choice(places)}.\n"
    return "".join(row() for _ in range(6000))


def check_hf(name, checkpoint, folder):
    """Logits and greedy tokens of an exported folder."""
    fitgpt("export", checkpoint, "--to", "hf", "--out", folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = tokenizer(PROMPT)["input_ids"]
    with torch.no_grad():
        theirs = model(torch.tensor([ids])).logits[0]
    show_logits(f"{name} in transformers", our_logits(checkpoint, ids), theirs)
    wanted = our_greedy(checkpoint, ids)
    show_tokens(f"{name} in transformers", their_greedy(model, ids), wanted)
    keys = [f"--start={PROMPT}", "--temperature=0", "--num_samples=1", "--max_new_tokens=20"]
    sampled = fitgpt("sample", folder, "--device=cpu", *keys)
    text = PROMPT + tokenizer.decode(wanted)
    show(f"{name}: fitgpt sample on the folder", f"{len(text)} characters", "the same",
         sampled.startswith(text + "\n---"))
    decoded = tokenizer.decode(ids)
    show(f"{name}: prompt through AutoTokenizer", repr(decoded), repr(PROMPT), decoded == PROMPT)
    return tokenizer, model, ids


def check_gguf(name, checkpoint, folder, tokenizer, ids, path):
    """The same model in llama.cpp, and its tensors in gguf's reader."""
    fitgpt("export", checkpoint, "--to", "gguf", "--out", path)
    wanted = our_greedy(checkpoint, ids)
    text, found = llama(path, PROMPT)
    show_tokens(f"{name} in llama.cpp", found, wanted)
    ours = tokenizer.decode(wanted)
    show(f"{name} in llama.cpp: greedy text", repr(text), "the same", text == ours)
    reader = gguf.GGUFReader(path)
    weights = load_file(Path(folder) / "model.safetensors")
    names = {tensor.name: tensor for tensor in reader.tensors}
    pairs = [
        ("blk.1.attn_qkv.weight", weights["transformer.h.1.attn.c_attn.weight"].T),
        ("position_embd.weight", weights["transformer.wpe.weight"]),
    ]
    same = all(torch.tensor(names[key].data).equal(value) for key, value in pairs)
    figure = f"{len(names)} tensors, matrices {'equal' if same else 'differ'}"
    show(f"{name} in gguf's reader", figure, "28, equal", len(names) == 28 and same)


def exported():
    Path("stories.txt").write_text(stories())
    fitgpt("prepare", "stories.txt", "--out", "data/bpe", "--tokenizer", "gpt2")
    fitgpt("prepare", "stories.txt", "--out", "data/char", "--tokenizer", "char")
    for dataset in ["bpe", "char"]:
        for bias in [True, False]:
            name = f"{dataset}, bias={bias}"
            out = f"out-{dataset}-{bias}"
            keys = [f"--dataset={dataset}", f"--out_dir={out}", f"--bias={bias}", "--gelu=tanh"]
            fitgpt("train", *keys, *TINY)
            tokenizer, _, ids = check_hf(name, out, f"hf-{dataset}-{bias}")
            check_gguf(name, out, f"hf-{dataset}-{bias}", tokenizer, ids, f"{dataset}-{bias}.gguf")
    fitgpt("train", "--dataset=char", "--out_dir=out-erf", *TINY)
    check_hf("char, gelu='erf'", "out-erf", "hf-erf")
    for dtype in ["float16", "bfloat16"]:
        fitgpt("export", "out-bpe-True", "--to", "hf", "--out", f"hf-{dtype}", "--dtype", dtype)
        fitgpt("export", "out-bpe-True", "--to", "gguf", "--out", f"{dtype}.gguf", "--dtype", dtype)
        loaded = AutoModelForCausalLM.from_pretrained(f"hf-{dtype}", dtype="auto")
        show(f"{dtype} in transformers", loaded.dtype, dtype, str(loaded.dtype) == f"torch.{dtype}")
        text, found = llama(f"{dtype}.gguf", PROMPT)
        show(f"{dtype} in llama.cpp", f"{len(found)} tokens", "20", len(found) == 20)


def tokenizers():
    text = mixed_text()
    ours = AutoTokenizer.from_pretrained("hf-bpe-True")
    Path("mixed.txt").write_text(text)
    fitgpt("prepare", "mixed.txt", "--out", "data/mixed", "--tokenizer", "gpt2")
    wanted = list(array.array("H", Path("data/mixed/train.bin").read_bytes()))
    ids = ours(text[: int(len(text) * 0.9)])["input_ids"]
    show("AutoTokenizer beside fitgpt prepare", f"{len(ids)} tokens", f"{len(wanted)}, the same",
         ids == wanted)
    back = ours.decode(ours(text)["input_ids"])
    show("AutoTokenizer there and back", f"{len(text)} characters", "the same", back == text)
    letters = "\n !aé—日🦀\"\\bc'"
    Path("letters.txt").write_text((letters * 400)[:5000])
    fitgpt("prepare", "letters.txt", "--out", "data/letters", "--tokenizer", "char")
    fitgpt("train", "--dataset=letters", "--out_dir=out-letters", "--gelu=tanh", *TINY)
    fitgpt("export", "out-letters", "--to", "hf", "--out", "hf-letters")
    fitgpt("export", "out-letters", "--to", "gguf", "--out", "letters.gguf")
    ours = AutoTokenizer.from_pretrained("hf-letters")
    ids = ours(letters)["input_ids"]
    order = sorted(set(letters))
    show("characters one to one", ids, "ids in order", ids == [order.index(c) for c in letters])
    show("characters back", repr(ours.decode(ids)), repr(letters), ours.decode(ids) == letters)
    text, found = llama("letters.gguf", letters)
    wanted = our_greedy("out-letters", ids)
    show("characters outside ASCII in llama.cpp", repr(text), "the same as ours",
         found == wanted and text == ours.decode(wanted))


def own_vocabulary():
    """A data set with a tokenizer.json that the tokenizers library trained."""
    own = Tokenizer(models.BPE())
    own.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    own.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    options = {"vocab_size": 400, "special_tokens": ["<|endoftext|>"], "initial_alphabet": alphabet}
    own.train_from_iterator([stories()], trainers.BpeTrainer(**options, show_progress=False))
    own.save("own.json")
    fitgpt("prepare", "stories.txt", "--out", "data/own", "--tokenizer", "own.json")
    fitgpt("train", "--dataset=own", "--out_dir=out-own", "--gelu=tanh", *TINY)
    name = "tokenizer.json"
    tokenizer, _, ids = check_hf(name, "out-own", "hf-own")
    check_gguf(name, "out-own", "hf-own", tokenizer, ids, "own.gguf")
    text = mixed_text()
    same = tokenizer(text)["input_ids"] == own.encode(text).ids
    show(f"{name} in AutoTokenizer", f"{len(text)} characters", "the same ids", same)


def imported():
    torch.manual_seed(5)
    sizes = {"n_layer": 3, "n_head": 4, "n_embd": 64, "n_positions": 48, "vocab_size": 50257}
    config = GPT2Config(**sizes, initializer_range=0.1)
    model = GPT2LMHeadModel(config).eval()
    for parameter in model.parameters():
        if parameter.dim() == 1:
            parameter.data += 0.05 * torch.randn_like(parameter)
    ids = torch.randint(0, 50257, (1, 40), generator=torch.Generator().manual_seed(3))
    for name, options in [("whole", {}), ("sharded", {"max_shard_size": "4MB"})]:
        folder = f"random-{name}"
        model.save_pretrained(folder, **options)
        with torch.no_grad():
            theirs = model(ids, labels=ids)
        ours = our_logits(folder, ids[0].tolist())
        name = f"{name} folder of transformers"
        show_logits(name, ours, theirs.logits[0])
        loss = torch.nn.functional.cross_entropy(ours[:-1], ids[0, 1:]).item()
        show(f"{name}: loss", f"{loss:.5f}", f"{theirs.loss:.5f}", abs(loss - theirs.loss) < 1e-4)
        prompt = ids[0, :8].tolist()
        show_tokens(name, our_greedy(folder, prompt), their_greedy(model, prompt))
    fitgpt("export", "random-whole", "--to", "native", "--out", "native.safetensors")
    fitgpt("export", "native.safetensors", "--to", "hf", "--out", "again")
    one, two = [load_file(f"{folder}/model.safetensors") for folder in ["random-whole", "again"]]
    same = one.keys() == two.keys() and all(one[key].equal(two[key]) for key in one)
    show("transformers to native to transformers", f"{len(two)} tensors", "bits equal", same)
    half = GPT2LMHeadModel(config).half().eval()
    half.save_pretrained("random-half")
    widened = our_logits("random-half", ids[0, :5].tolist())
    with torch.no_grad():
        theirs = half.float()(ids[:, :5]).logits[0]
    show_logits("float16 folder of transformers", widened, theirs)


exported()
tokenizers()
own_vocabulary()
imported()
sys.exit(1 if bad else 0)
