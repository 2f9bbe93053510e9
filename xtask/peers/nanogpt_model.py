"""What both timing scripts need of a nanoGPT checkout: that it is one, and its model.py."""
import importlib.util
import sys


def checked(parser, args):
    """The arguments, or the parser's refusal of what no run can use."""
    if not (args.nanogpt / "model.py").is_file():
        parser.error(f"{args.nanogpt} has no model.py; give a checkout of nanoGPT")
    if args.steps < 1:
        parser.error("--steps must be at least 1")
    return args


def load_model_module(path):
    spec = importlib.util.spec_from_file_location("model", path)
    module = importlib.util.module_from_spec(spec)
    # Its dataclass looks its own module up by name.
    sys.modules["model"] = module
    spec.loader.exec_module(module)
    return module
