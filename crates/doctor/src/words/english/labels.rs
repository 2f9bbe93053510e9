//! Titles and short sentences in English.

use crate::words::Labels;

pub(super) const LABELS: Labels = Labels {
    did_not_fit: "{bytes} did not fit {phase}.",
    did_not_fit_ever: "{bytes} did not fit; the log does not show when.",
    ran_out: "Memory ran out {phase}.",
    ran_out_ever: "Memory ran out; the log shows neither when nor how much was requested.",
    host: "The process ran out of host memory.",
    host_asked: "{bytes} of host memory could not be allocated.",
    killed: "The process was killed (SIGKILL).",
    program: "The log is of {program} (“{evidence}”). We have no model of its memory: what \
              follows holds for any program.",
    no_program: "Which program it was, the log does not say: what follows holds for any program.",
    which: "It was {name} {shape} in {dtype} ({confidence}).",
    may_be: "By its size it may have been {name} {shape} in {dtype}.",
    would_be: "What it allocates at that moment: {name} {shape} in {dtype}.",
    same_size: "The same size: {others}.",
    memory: "what held the memory",
    total: "together: the card's memory",
    total_cap: "together: the cap, and the context beside it",
    total_limit: "together: the limit for this process",
    peaks: "nanoGPT's tensors in PyTorch, by phase (±7 %) → with context",
    claims: "what the text says, judged for this run",
    advice: "the usual advice, for this case",
    missing: "{bytes} still missing",
    suggested_fits: "The settings that the text suggests, together ({settings}), need {bytes}: \
                     that fits.",
    suggested_short: "The settings that the text suggests, together ({settings}), need {bytes}: \
                      {missing} too much for a safe fit.",
    suggested_heads: "The settings that the text suggests, together ({settings}), cannot run: \
                      n_head={heads} does not divide n_embd={width}.",
    remedies: "what to try",
    fixes: "what to change in nanoGPT",
    nothing: "no setting of nanoGPT near this one fits",
    unknown: "what the log does not say",
    nanogpt: "nanoGPT, changed so that it fits",
    patch: "nanoGPT's code: this diff (patch -p1 in its folder), expected {bytes}",
    patch_with: "with {settings}",
    patch_limits: "An estimate, not measured on your card.",
    fitgpt: "fitGPT, with the same settings",
    fitgpt_changed: "fitGPT, changed so that it fits",
    plan: "{bytes}, {rate} tok/s, the whole run in {time} on {card}",
    rate: "{rate} tok/s",
    guessed: "the card is guessed by its memory; name it with --gpu",
    unrelated: "not the cause: {what}",
    foreign: "nanoGPT does not know {keys} and ignored them",
    fork_keys: "keys of a fork, not part of the estimate: {keys}",
    heads: "n_head={heads} does not divide n_embd={width}: nanoGPT stops with an assertion. The \
            estimate uses n_head={nearest}.",
    ranks: "{count} processes shared this run: each of them holds this much on its GPU. fitGPT \
            runs on one GPU.",
    fits: "By our estimate of PyTorch's memory, the run fits.",
    tight: "By our estimate of PyTorch's memory, it may or may not fit: it needs more than 93 % \
            of what is free.",
    dies: "By our estimate of PyTorch's memory, the run fails {phase}.",
    margin: "It needs {needs}: {spare} to spare on an empty card of {limit}, ±7 %.",
    margin_over: "It needs {needs}, ±7 %: {spare} more than an empty card of {limit} has.",
    desktop: "A desktop takes 0.3 to 2 GiB of a card: {used} is assumed, which leaves {free}. Say \
              what is in use with --used, or what is free with --vram.",
    in_use: "{used} are in use, which leaves {free}.",
    no_log: "No out-of-memory message was found.",
    colon: ": ",
    then: "; ",
    comma: ", ",
    list: "; ",
    bracket: " ({text})",
    problem: "Problem",
    root: "Root cause",
    config: "Recommended config",
    expected: "Expected memory",
    nonsense: "These numbers in the message are impossible (WSL and Windows drivers print them): \
               {numbers}",
};
