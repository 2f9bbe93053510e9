"""PyTorch's answers to the conformance cases: `reference.py <questions> <answers>`.

`cargo xtask golden` lets Rust write the questions (`<case>.json`, `<case>.bin`) and runs this file,
which writes `<case>.bin` for every case and one `manifest.txt`. Everything is computed in float64
by plain functions and autograd, so an answer is the truth to float32; nothing is drawn here. One
function answers each kind of case: it gets a Question and returns its readings by label.
"""

import json
import math
import sys
from pathlib import Path

import numpy
import torch
import torch.nn.functional as F

PRECISION = torch.float64
NUMPY_TYPES = {"f32": "<f4", "i32": "<i4", "u32": "<u4"}


class Question:
    """One case: `q["x"]` is an input, `q.heads` an attribute."""

    def __init__(self, path):
        asked = json.loads(path.read_text())
        self.name, self.kind = asked["name"], asked["kind"]
        self.seed, self.fingerprint = asked["seed"], asked["fingerprint"]
        self.readings = [(r["label"], tuple(r["shape"])) for r in asked["readings"]]
        vars(self).update(asked["attributes"])
        data, at = path.with_suffix(".bin").read_bytes(), 0
        self.inputs = {}
        for entry in asked["inputs"]:
            count = math.prod(entry["shape"])
            values = numpy.frombuffer(data, NUMPY_TYPES[entry["dtype"]], count, at)
            at += values.nbytes
            dtype = PRECISION if entry["dtype"] == "f32" else torch.int64
            tensor = torch.tensor(values.astype("f8" if entry["dtype"] == "f32" else "i8"))
            self.inputs[entry["name"]] = tensor.to(dtype).reshape(entry["shape"])
        assert at == len(data), f"{self.name}: {len(data) - at} bytes are left over"

    def __contains__(self, name):
        return name in self.inputs

    def __getitem__(self, name):
        return self.inputs[name]

    def get(self, name):
        return self.inputs.get(name)

    def leaf(self, name):
        """The input as something to differentiate by; None if there is none."""
        return self[name].clone().requires_grad_() if name in self else None


def gradients(loss, leaves):
    """Gradients of the leaves that exist, by name."""
    leaves = {name: leaf for name, leaf in leaves.items() if leaf is not None}
    found = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
    empty = zip(leaves.values(), found)
    return dict(zip(leaves, [torch.zeros_like(x) if g is None else g for x, g in empty]))


# Ops


def linear(q):
    x, w, bias = q.leaf("x"), q.leaf("w"), q.leaf("bias")
    out = F.linear(x, w, bias)
    d = gradients((out * q["d_out"]).sum(), {"x": x, "w": w, "bias": bias})
    answer = {"out": out, "d_x": d["x"], "d_w": q["d_w"] + d["w"]}
    if bias is not None:
        answer["d_bias"] = q["d_bias"] + d["bias"]
    return answer


def linear_add(q):
    return {"out": q["residual"] + F.linear(q["x"], q["w"], q.get("bias"))}


def layer_norm(x, gain, bias, eps):
    return F.layer_norm(x, x.shape[-1:], gain, bias, eps=eps)


def layernorm(q):
    x, gain, bias, branch = (q.leaf(name) for name in ("x", "gain", "bias", "branch"))
    total = x
    if branch is not None:
        total = x + (branch * q["mask"] if "mask" in q else branch)
    out = layer_norm(total, gain, bias, q.eps)
    loss = (out * q["d_out"]).sum()
    if q.residual:
        loss = loss + (total * q["d_sum"]).sum()
    d = gradients(loss, {"x": x, "gain": gain, "bias": bias, "branch": branch})
    rows = total.flatten(0, 1)
    rstd = (rows.var(dim=1, unbiased=False) + q.eps).rsqrt()
    # "again": what the gradient leaves where it makes the output a second time.
    answer = {"out": out, "again": out, "mean": rows.mean(dim=1), "rstd": rstd}
    answer |= {"d_x": d["x"], "d_gain": q["d_gain"] + d["gain"]}
    if bias is not None:
        answer["d_bias"] = q["d_bias"] + d["bias"]
    if branch is not None:
        answer["sum"] = total
    if "mask" in q:
        answer["d_branch"] = d["branch"]
    return answer


def gelu_of(x, form):
    return F.gelu(x, approximate={"erf": "none", "tanh": "tanh"}[form])


def gelu(q):
    x = q.leaf("x")
    out = gelu_of(x, q.form)
    d = gradients((out * q["d_out"]).sum(), {"x": x})
    return {"out": out, "again": out, "d_x": d["x"]}


def causal_attention(qkv, heads, mask=None):
    """The output, and the logarithm of each softmax's denominator."""
    rows, positions, _ = qkv.shape
    query, key, value = (
        part.reshape(rows, positions, heads, -1).transpose(1, 2) for part in qkv.chunk(3, dim=-1)
    )
    scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
    ahead = torch.ones(positions, positions, dtype=torch.bool).triu(1)
    scores = scores.masked_fill(ahead, -math.inf)
    weights = scores.softmax(dim=-1)
    if mask is not None:
        weights = weights * mask
    out = (weights @ value).transpose(1, 2).reshape(rows, positions, -1)
    return out, scores.logsumexp(dim=-1)


def attention(q):
    qkv = q.leaf("qkv")
    out, lse = causal_attention(qkv, q.heads, q.get("mask"))
    d = gradients((out * q["d_out"]).sum(), {"qkv": qkv})
    return {"out": out, "lse": lse, "d_qkv": d["qkv"]}


def embed(q):
    tables, tokens = {"wte": q.leaf("wte")}, q["tokens"]
    out = tables["wte"][tokens]
    if "wpe" in q:
        tables["wpe"] = q.leaf("wpe")
        out = out + tables["wpe"][q.position : q.position + tokens.shape[1]]
    if "mask" in q:
        out = out * q["mask"]
    if "d_out" not in q:
        return {"out": out}
    d = gradients((out * q["d_out"]).sum(), tables)
    return {"out": out} | {f"d_{name}": q[f"d_{name}"] + d[name] for name in tables}


def token_losses(logits, targets):
    """Cross-entropy of each token, in the shape of the targets; 0 without a target."""
    logits, flat = logits.flatten(0, -2), targets.flatten()
    losses = F.cross_entropy(logits, flat, ignore_index=-1, reduction="none")
    return losses.reshape(targets.shape)


def head_losses(q, x, w):
    """The last rows of the weight may be padding, not tokens."""
    tokens = w[: len(w) - vars(q).get("padding", 0)]
    return token_losses(F.linear(x, tokens), q["targets"])


def head_eval(q):
    losses = head_losses(q, q["x"], q["w"])
    row_loss = q["row_loss"].clone()
    row_loss[q.first_row : q.first_row + len(losses)] = losses.sum(dim=1)
    return {"token_loss": losses.flatten(), "row_loss": row_loss}


def head_train(q):
    x, w = q.leaf("x"), q.leaf("w")
    losses = head_losses(q, x, w)
    d = gradients(losses.sum() * q.inverse_tokens * q.loss_scale, {"x": x, "w": w})
    return head_eval(q) | {"d_x": d["x"], "d_w": q["d_w"] + d["w"]}


def decode(q):
    """Decoding one token at a time is attention over the whole sequence."""
    names = [name for name in q.inputs if name.startswith("token.")]
    tokens = sorted((int(name.split(".")[1]), name) for name in names)
    context = q["prefill"][:, : q.context]
    whole = torch.cat([context] + [q[name] for _, name in tokens], dim=1)
    out, _ = causal_attention(whole, q.heads)
    answer = {"last": out[:, q.context - 1 : q.context]}
    answer |= {f"out.{at}": out[:, at : at + 1] for at, _ in tokens}
    cache = q["cache"].clone()
    for source in (q["prefill"], whole):
        rows, positions, _ = source.shape
        _, key, value = source.reshape(rows, positions, 3, q.heads, -1).unbind(dim=2)
        cache[0, :, :, :positions] = key.transpose(1, 2)
        cache[1, :, :, :positions] = value.transpose(1, 2)
    return answer | {"cache": cache}


# The update


def clip_gradients(parameters, limit):
    """PyTorch's clipping, and the factor that it applied."""
    if limit > 0:
        norm = torch.nn.utils.clip_grad_norm_(parameters, limit)
        return norm, torch.clamp(limit / (norm + 1e-6), max=1.0)
    norm = torch.nn.utils.get_total_norm([p.grad for p in parameters])
    return norm, torch.ones_like(norm)


def state_fields(t, scale, growth, norm, multiplier, skipped):
    found = not math.isfinite(norm)
    multiplier = 0.0 if skipped else float(multiplier)
    return torch.tensor([t, scale, growth, found, norm, multiplier, skipped], dtype=PRECISION)


def grad_norm(q):
    norm = q["gradients"].norm() / q.loss_scale
    clip = min(1.0, q.grad_clip / (float(norm) + 1e-6))
    return {"state": state_fields(1, q.loss_scale, 0, float(norm), clip / q.loss_scale, False)}


def adamw(groups, q):
    """nanoGPT's optimizer: the first group decays, the second does not."""
    decays = [q.weight_decay, 0.0]
    groups = [{"params": group, "weight_decay": wd} for group, wd in zip(groups, decays)]
    return torch.optim.AdamW(groups, lr=0.0, betas=tuple(q.betas), eps=q.eps, foreach=False)


def set_learning_rate(optimizer, lr):
    for group in optimizer.param_groups:
        group["lr"] = lr


def update(q):
    """Steps of torch.optim.AdamW, behind torch.amp.GradScaler where the loss is scaled."""
    parts = [slice(0, q.decayed), slice(q.decayed, None)]
    parameters = [q["weights"][part].clone().requires_grad_() for part in parts]
    optimizer = adamw([[p] for p in parameters], q)
    for parameter, part in zip(parameters, parts):
        optimizer.state[parameter] = {
            "step": torch.tensor(float(q.adam_t)),
            "exp_avg": q["m"][part].clone(),
            "exp_avg_sq": q["v"][part].clone(),
        }
    scaled = q.growth_interval > 0
    scaler = torch.amp.GradScaler(
        "cpu", init_scale=q.loss_scale, growth_interval=max(1, q.growth_interval), enabled=scaled
    )
    scaler.scale(torch.zeros(1))  # it makes its scale when it is first used
    answer = {}
    for index, lr in enumerate(q.lrs):
        for parameter, part in zip(parameters, parts):
            parameter.grad = q[f"gradients.{index}"][part].clone()
        set_learning_rate(optimizer, lr)
        scale = scaler.get_scale() if scaled else q.loss_scale
        scaler.unscale_(optimizer)
        norm, clip = clip_gradients(parameters, q.grad_clip)
        skipped = scaled and not math.isfinite(norm)
        scaler.step(optimizer)
        scaler.update()
        t = int(optimizer.state[parameters[0]]["step"])
        growth = scaler._get_growth_tracker() if scaled else 0
        now = scaler.get_scale() if scaled else q.loss_scale
        state = state_fields(t, now, growth, float(norm), clip / scale, skipped)
        answer[f"state.{index}"] = state
        answer[f"weights.{index}"] = torch.cat(parameters).detach().clone()
        answer[f"gradients_after.{index}"] = torch.zeros_like(q["weights"])
    for label, key in (("m", "exp_avg"), ("v", "exp_avg_sq")):
        answer[label] = torch.cat([optimizer.state[p][key] for p in parameters])
    return answer | {"gradients_after": torch.zeros_like(q["weights"])}


# Models


def parameter_names(q):
    """In nanoGPT's order."""

    def pair(name):
        return [f"{name}.weight"] + ([f"{name}.bias"] if q.bias else [])

    names = ["wte.weight", "wpe.weight"]
    for layer in range(q.n_layer):
        for part in ("ln_1", "attn.c_attn", "attn.c_proj", "ln_2", "mlp.c_fc", "mlp.c_proj"):
            names += pair(f"h.{layer}.{part}")
    return names + pair("ln_f")


def gpt2(q, p, tokens, training=False):
    """Logits of GPT-2 as nanoGPT defines it, from parameters by name. In training, the masks that
    the case gives are its dropout."""

    def dropped(x, site):
        mask = q.get(f"mask.{site}") if training else None
        return x if mask is None else x * mask

    def norm(x, name):
        return layer_norm(x, p[f"{name}.weight"], p.get(f"{name}.bias"), q.norm_eps)

    def dense(x, name):
        return F.linear(x, p[f"{name}.weight"], p.get(f"{name}.bias"))

    x = p["wte.weight"][tokens] + p["wpe.weight"][: tokens.shape[1]]
    x = dropped(x, "embedding")
    for layer in range(q.n_layer):
        block = f"h.{layer}"
        qkv = dense(norm(x, f"{block}.ln_1"), f"{block}.attn.c_attn")
        mask = q.get(f"mask.{layer}.attention") if training else None
        att, _ = causal_attention(qkv, q.n_head, mask)
        branch = dense(att, f"{block}.attn.c_proj")
        x = x + dropped(branch, f"{layer}.attention_projection")
        hidden = gelu_of(dense(norm(x, f"{block}.ln_2"), f"{block}.mlp.c_fc"), q.form)
        x = x + dropped(dense(hidden, f"{block}.mlp.c_proj"), f"{layer}.mlp_projection")
    return norm(x, "ln_f") @ p["wte.weight"].T


def slices(q, prefix=""):
    """Tokens and targets of an iteration, all slices together."""

    def whole(what):
        return torch.cat([q[f"{prefix}{what}.{index}"] for index in range(len(q.slices))])

    return whole("tokens"), whole("targets")


def model_gradients(q):
    p = {name: q.leaf(name) for name in parameter_names(q)}
    tokens, targets = slices(q)
    losses = token_losses(gpt2(q, p, tokens, training=True), targets)
    d = gradients(losses.sum() * q.inverse_tokens, p)
    return {"row_loss": losses.sum(dim=1)} | {f"d_{name}": d[name] for name in p}


def model_eval(q):
    tokens, targets = slices(q)
    return {"row_loss": token_losses(gpt2(q, q.inputs, tokens), targets).sum(dim=1)}


def model_generate(q):
    """The last logits behind so many tokens, of which a full context sees the newest only."""
    answer = {}
    for label, _ in q.readings:
        tokens = int(label.split(".")[2])
        context = q["sequence"][:, max(0, tokens - q.block_size) : tokens]
        answer[label] = gpt2(q, q.inputs, context)[:, -1:]
    return answer


def model_curve(q):
    p = {name: q.leaf(name) for name in parameter_names(q)}
    decayed = [x for x in p.values() if x.dim() >= 2]
    other = [x for x in p.values() if x.dim() < 2]
    optimizer = adamw([decayed, other], q)
    answer = {}
    for index, lr in enumerate(q.lrs):
        set_learning_rate(optimizer, lr)
        tokens, targets = slices(q, f"{index}.")
        loss = token_losses(gpt2(q, p, tokens, training=True), targets).sum()
        loss = loss * q.inverse_tokens[index]
        loss.backward()
        norm, clip = clip_gradients(list(p.values()), q.grad_clip)
        optimizer.step()
        optimizer.zero_grad()
        answer[f"loss.{index}"] = loss.reshape(1)
        answer[f"state.{index}"] = state_fields(index + 1, 1.0, 0, float(norm), clip, False)
    for name in [name for name in p if name.endswith("c_attn.bias")]:
        query, _, value = p[name].chunk(3)
        answer |= {f"{name}.query": query, f"{name}.value": value}
    return answer | p


KINDS = [
    linear, linear_add, layernorm, gelu, attention, embed, head_train, head_eval, decode,
    grad_norm, update,
    model_gradients, model_curve, model_eval, model_generate,
]  # fmt: skip


def answer(q):
    """The readings of a case as float32, in its order and shapes."""
    found = {kind.__name__: kind for kind in KINDS}[q.kind](q)
    values = []
    for label, shape in q.readings:
        value = found[label].detach().to(torch.float32)
        assert tuple(value.shape) == shape, f"{q.name} {label}: {tuple(value.shape)}, not {shape}"
        values.append((label, shape, value.contiguous().numpy().astype("<f4")))
    return values


def main(questions, answers):
    torch.set_num_threads(1)
    asked = [Question(path) for path in sorted(questions.glob("*.json"))]
    assert asked, f"no questions in {questions}"
    answers.mkdir(parents=True, exist_ok=True)
    for old in answers.iterdir():
        if old.suffix in (".bin", ".txt"):
            old.unlink()
    version = torch.__version__.split("+")[0]
    precision = str(PRECISION).removeprefix("torch.")
    lines = ["fitgpt golden 1", f"torch {version}", f"seed {asked[0].seed}"]
    lines.append(f"precision {precision}")
    for q in asked:
        lines += ["", f"case {q.name} {q.fingerprint}"]
        values = answer(q)
        for label, shape, value in values:
            lines.append(f"value {label} {'x'.join(map(str, shape))} {value.size}")
        data = b"".join(value.tobytes() for _, _, value in values)
        (answers / f"{q.name}.bin").write_bytes(data)
    (answers / "manifest.txt").write_text("\n".join(lines) + "\n")
    print(f"{len(asked)} cases answered by torch {version}")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: reference.py <folder of questions> <folder for answers>")
    main(Path(sys.argv[1]), Path(sys.argv[2]))
