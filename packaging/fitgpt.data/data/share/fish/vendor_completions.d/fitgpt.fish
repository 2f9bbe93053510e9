# Completion of fitgpt for fish 3.4 and newer. Save it as ~/.config/fish/completions/fitgpt.fish,
# or load it with: fitgpt completions fish | source
function __fitgpt_offers
    set --local before (commandline --tokenize --current-process --cut-at-cursor)
    # As it was typed, with quotes that may still be open.
    set --local current (commandline --current-token --cut-at-cursor)
    set current (string replace --all --regex -- '[\\\\\'"]' '' "$current")
    set --local program (string replace --regex '^~' "$HOME" -- $before[1])
    $program __complete $before[2..] "$current" 2>/dev/null
end
complete --command fitgpt --no-files --keep-order --arguments '(__fitgpt_offers)'
