"""Models from the hub: our program and Hugging Face's libraries use the same cache.

A server in this process speaks the hub's paths. `hub.py serve FOLDER PORT` runs it alone: it
serves FOLDER/<repository>/<file>; `hub.py make FOLDER SIZE` makes a random GPT-2 there first.
"""

import hashlib
import http.server
import os
import subprocess
import sys
import threading
import urllib.parse
from pathlib import Path

COMMIT = "607a30d783dfa663caf39e06633721c8d4cfcd7e"
SIZES = {  # layers, heads, width
    "tiny": (2, 2, 32),
    "gpt2": (12, 12, 768),
    "gpt2-medium": (24, 16, 1024),
    "gpt2-large": (36, 20, 1280),
    "gpt2-xl": (48, 25, 1600),
}


class Hub(http.server.BaseHTTPRequestHandler):
    """Answers like the hub; large files are on another host, here another name of this one."""

    root = Path()
    sums = {}
    asked = []
    protocol_version = "HTTP/1.1"

    def do_HEAD(self):
        self.answer(body=False)

    def do_GET(self):
        self.answer(body=True)

    def log_message(self, *_):
        pass

    def etag(self, path):
        if path not in self.sums:
            hash = hashlib.sha256()
            if path.suffix != ".safetensors":
                hash = hashlib.sha1(b"blob %d\0" % path.stat().st_size)
            with path.open("rb") as file:
                while chunk := file.read(1 << 20):
                    hash.update(chunk)
            self.sums[path] = hash.hexdigest()
        return self.sums[path]

    def answer(self, body):
        url = urllib.parse.urlparse(self.path).path
        self.asked.append((self.command, url, self.headers.get("Authorization")))
        if url.startswith("/storage/"):
            return self.content(self.root / url.removeprefix("/storage/"), {}, body)
        repository, _, rest = url.strip("/").partition("/resolve/")
        revision, _, file = rest.partition("/")
        path = self.root / repository / file
        if revision not in ("main", COMMIT) or not (self.root / repository).is_dir():
            return self.reply(404, {"X-Error-Code": "RepoNotFound"})
        if not path.is_file():
            return self.reply(404, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT})
        headers = {"X-Repo-Commit": COMMIT, "ETag": f'"{self.etag(path)}"'}
        if path.suffix != ".safetensors":
            return self.content(path, headers, body)
        headers["X-Linked-Etag"] = headers.pop("ETag")
        headers["X-Linked-Size"] = str(path.stat().st_size)
        port = self.server.server_address[1]
        headers["Location"] = f"http://localhost:{port}/storage/{repository}/{file}"
        return self.reply(302, headers)

    def content(self, path, headers, body):
        size = path.stat().st_size
        start = 0
        if wanted := self.headers.get("Range"):
            start = int(wanted.removeprefix("bytes=").split("-")[0])
            headers["Content-Range"] = f"bytes {start}-{size - 1}/{size}"
        self.reply(206 if start else 200, headers, size - start)
        if body:
            with path.open("rb") as file:
                file.seek(start)
                while chunk := file.read(1 << 20):
                    self.wfile.write(chunk)

    def reply(self, status, headers, length=0):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(length))
        self.end_headers()


def serve(root, port=0):
    Hub.root = Path(root).resolve()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_address[1]}"


def make(folder, size):
    """Saves a random model as transformers does, with all its values large enough to matter."""
    import torch
    import transformers

    layers, heads, width = SIZES[size]
    torch.manual_seed(1)
    config = transformers.GPT2Config(n_layer=layers, n_head=heads, n_embd=width)
    model = transformers.GPT2LMHeadModel(config)
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            if name.endswith("bias"):
                tensor.normal_(0, 0.02)
    model.save_pretrained(folder, max_shard_size="20GB")


def run(command, home, endpoint, offline):
    environment = dict(os.environ, HF_HOME=str(home), HF_ENDPOINT=endpoint, HF_HUB_OFFLINE=offline)
    for name in ["HF_HUB_CACHE", "HF_TOKEN_PATH"]:
        environment.pop(name, None)
    environment["HF_TOKEN"] = "secret"
    return subprocess.run(command, env=environment, capture_output=True, text=True)


def fitgpt(arguments, home, endpoint, offline):
    done = run([os.environ["FITGPT"], *arguments], home, endpoint, offline)
    if done.returncode != 0:
        sys.exit(f"{arguments}: {done.stderr[-800:]}")
    return done.stdout


def transformers_load(name, home, endpoint, offline):
    """Loads a model with Hugging Face's libraries, in a process of its own: they read the
    environment when they are imported."""
    script = f"import transformers; transformers.AutoModelForCausalLM.from_pretrained({name!r})"
    done = run([sys.executable, "-c", script], home, endpoint, offline)
    print(f"transformers loads {name}: exit code {done.returncode} (0)")
    if done.returncode != 0:
        sys.exit(done.stderr[-800:])


def main():
    try:
        import huggingface_hub  # noqa: F401
        import torch  # noqa: F401
        import transformers  # noqa: F401
    except ImportError as error:
        print(error)
        sys.exit(77)
    for name in ["gpt2", "gpt2-medium"]:
        make(f"models/{name}", "tiny")
    endpoint, nowhere = serve("models"), "http://127.0.0.1:1"
    sample = ["--start=The world is", "--num_samples=1", "--max_new_tokens=12", "--top_k=1",
              "--device=cpu"]

    ours = fitgpt(["sample", "--init_from=gpt2", *sample], "ours", endpoint, "0")
    tokens = [token for method, url, token in Hub.asked if url.startswith("/storage/")]
    transformers_load("gpt2", "ours", nowhere, "1")
    again = fitgpt(["sample", "--init_from=gpt2", *sample], "ours", nowhere, "1")
    leaked = sum(token is not None for token in tokens)
    print(f"tokens sent to the storage: {leaked} of {len(tokens)} requests (0)")
    print(f"second use offline: {int(ours != again)} differences (0)")

    transformers_load("gpt2-medium", "theirs", endpoint, "0")
    found = fitgpt(["sample", "--init_from=gpt2-medium", *sample], "theirs", nowhere, "1")
    # The two models have the same weights.
    print(f"what transformers downloaded: {int(found != ours)} differences (0)")
    wrong = leaked + int(ours != again) + int(found != ours)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["serve", folder, port]:
            print(serve(folder, int(port)), flush=True)
            threading.Event().wait()
        case ["make", folder, size]:
            make(folder, size)
        case _:
            main()
