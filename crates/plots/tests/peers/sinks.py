"""TensorBoard's and trackio's own readers, and Python's csv, return what log.jsonl holds.

A run is killed and resumed, extended, stopped, resumed with another batch size, killed and resumed
again. So some iterations are logged twice: the later line counts.
Needs tensorboard and trackio. See xtask/src/interop.rs for how this is run.
"""

import csv
import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
except ImportError:
    print("Python has no tensorboard")
    sys.exit(77)

FITGPT = os.environ["FITGPT"]
TRACKIO = Path("trackio").absolute()
KEYS = [
    "--n_layer=1", "--n_head=1", "--n_embd=16", "--block_size=16", "--batch_size=4",
    "--eval_interval=20", "--eval_iters=2", "--log_interval=1", "--warmup_iters=0",
    "--device=cpu", "--tensorboard=True", "--csv=True", "--trackio=True",
    "--wandb_project=peers", "--wandb_run_name=sinks run", "--out_dir=out",
]  # fmt: skip


def board_files():
    folder = Path("out/tensorboard")
    return len(list(folder.iterdir())) if folder.is_dir() else 0


def train(*more, end_at=None, signal_sent=None):
    before = board_files()
    environment = {**os.environ, "TRACKIO_DIR": str(TRACKIO)}
    command = [FITGPT, "train", *KEYS, *more]
    child = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    for line in child.stdout:
        # A busy console may leave lines out.
        is_iteration = end_at is not None and line.startswith("iter ")
        if is_iteration and int(line.split()[1].rstrip(":")) >= end_at:
            # TensorBoard's points are written beside the console's lines, by another thread.
            give_up = time.monotonic() + 20
            while board_files() == before and time.monotonic() < give_up:
                time.sleep(0.001)
            child.send_signal(signal_sent)
            end_at = None
    child.wait()
    assert signal_sent is not None or child.returncode == 0, command


os.environ["TRACKIO_DIR"] = str(TRACKIO)
try:
    from trackio import fragments
    from trackio.sqlite_storage import SQLiteStorage
except ImportError:
    print("Python has no trackio")
    sys.exit(77)

train("--max_iters=100000", end_at=70, signal_sent=signal.SIGKILL)
# Someone looks at the dashboard: what is imported stays.
assert fragments.import_inbox_dir() > 0
time.sleep(1.1)  # so that the event files have different seconds anyhow
train("--max_iters=100", "--init_from=resume")
train("--max_iters=130", "--init_from=resume")
RARELY = ["--init_from=resume", "--eval_interval=100000", "--batch_size=8"]
train("--max_iters=100000", *RARELY, end_at=143, signal_sent=signal.SIGINT)
train("--max_iters=100000", *RARELY, end_at=180, signal_sent=signal.SIGKILL)
train("--max_iters=100000", *RARELY, end_at=180, signal_sent=signal.SIGINT)

# What the log says: a start takes back the iterations from its own on. An evaluation at its
# iteration stays: if it is repeated, the later line counts.
FROM_LOG = {
    "iter": ["loss", "lr", "grad_norm", "loss_scale", "tokens_per_second", "ms", "resident_bytes"],
    "eval": {"train/loss": "train_loss", "val/loss": "val_loss",
             "train/standard_error": "train_standard_error",
             "val/standard_error": "val_standard_error"},
}  # fmt: skip
log, repeated, batches = {}, 0, {}
for line in open("out/log.jsonl"):
    try:
        event = json.loads(line)
    except json.JSONDecodeError:
        continue  # cut by the kill
    if event["kind"] == "start":
        kept = {key: event["iter"] + (key[0] in FROM_LOG["eval"]) for key in log}
        repeated += sum(key[1] >= kept[key] for key in log)
        log = {key: value for key, value in log.items() if key[1] < kept[key]}
        each = event["tokens_per_iteration"]
    names = FROM_LOG.get(event["kind"])
    if names is None:
        continue
    if event["kind"] == "iter":
        batches[event["iter"]] = each
    pairs = names.items() if isinstance(names, dict) else [(name, name) for name in names]
    for name, field in pairs:
        if event[field] is not None:
            log[name, event["iter"]] = event[field]
assert repeated > 0, "the kills made nothing repeat"
last = max(step for name, step in log if name == "loss")
assert sorted(batches)[: last + 1] == list(range(last + 1)) and len(set(batches.values())) == 2
tokens = {}
for step in range(last + 1):
    tokens["tokens", step] = tokens.get(("tokens", step - 1), 0) + batches[step]
log.update(tokens)
failed = []


def compare(title, found, limit, missing_allowed=0):
    """Every value that the log has, and no other."""
    missing = [key for key in log if key not in found]
    other = [key for key in found if key[0] in {name for name, _ in log} and key not in log]
    worst = max(abs(found[k] - log[k]) / max(abs(log[k]), 1e-30) for k in log if k in found)
    text = f"{len(found)} values, {len(missing)} missing, largest relative difference {worst:.1e}"
    print(f"{title}: {text} ({missing_allowed} missing, {limit:.0e})")
    if other or len(missing) > missing_allowed or worst > limit:
        failed.append((title, missing[:5], other[:5], worst))


files = sorted(Path("out/tensorboard").iterdir())
assert len(files) == 6, files
events = EventAccumulator("out/tensorboard", size_guidance={"scalars": 0}).Reload()
board, points = {}, 0
for tag in events.Tags()["scalars"]:
    for point in events.Scalars(tag):
        board[tag, point.step] = point.value
        points += 1
assert points == len(board), "a step is there twice"
assert "mfu" in events.Tags()["scalars"] and "tokens" in events.Tags()["scalars"]
assert b"| n_embd | 16 |" in events.Tensors("config")[0].tensor_proto.string_val[0]
compare("TensorBoard", board, 1e-7)

table, rows, seconds = {}, [], []
for row in csv.DictReader(open("out/metrics.csv", newline="")):
    rows.append((int(row["iter"]), row["kind"] == "iter"))
    seconds.append(float(row["seconds"]))
    for name, value in row.items():
        if name not in ("kind", "iter", "unix_time", "seconds") and value:
            table[name, int(row["iter"])] = float(value)
assert rows == sorted(set(rows)), "rows are in order, and none is there twice"
compare("CSV", table, 0)
assert seconds == sorted(seconds), "the time of training goes on"

assert fragments.import_inbox_dir() > 0
assert not any((TRACKIO / "inbox").iterdir()), "trackio takes and removes every file"
runs = SQLiteStorage.get_runs("peers")
assert runs == ["sinks run"], runs
# At most a second of points is lost by a kill. The kill's iterations are there once.
imported, seen = {}, []
for entry in SQLiteStorage.get_logs("peers", "sinks run"):
    seen.append((entry["step"], "loss" in entry))
    for name, value in entry.items():
        if name not in ("step", "timestamp") and isinstance(value, (int, float)):
            imported[name, entry["step"]] = value
assert len(seen) == len(set(seen)), "a step is there twice"
# Of an iteration that was trained twice, trackio keeps what it had imported: the losses are the same
# bits. With the other batch size they are not, but nothing of the killed run was imported.
TIMES = ("tokens_per_second", "ms", "resident_bytes")
for key in [key for key in log if key[0] in TIMES]:
    del log[key]
compare("trackio", imported, 0)
assert all(math.isfinite(value) for value in imported.values())
sys.exit(bool(failed) and print(failed) is None)
