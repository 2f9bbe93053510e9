#compdef fitgpt
# Completion of fitgpt for zsh. Save it as _fitgpt in a folder of $fpath, or load it with:
# source <(fitgpt completions zsh)
_fitgpt() {
    local line word shown
    local -a before words_open words_whole shown_open shown_whole
    before=("${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}")
    for line in "${(@f)$(${(Q)words[1]/#\~/$HOME} __complete "${before[@]}" 2>/dev/null)}"; do
        word=${line%%$'\t'*}
        [[ -n $word ]] || continue
        shown=$word
        [[ $line == *$'\t'?* ]] && shown="$word  -- ${line#*$'\t'}"
        # A folder and a key wait for more.
        if [[ $word == *[=/] ]]; then
            words_open+=("$word") shown_open+=("$shown")
        else
            words_whole+=("$word") shown_whole+=("$shown")
        fi
    done
    # Inside a quote zsh knows how to write a name.
    if [[ -n $compstate[quote] ]]; then
        (( $#words_open )) && compadd -S '' -l -d shown_open -a words_open
        (( $#words_whole )) && compadd -l -d shown_whole -a words_whole
        return
    fi
    # A tilde must stay a tilde, so names are quoted here and not by compadd.
    local -a quoted_open=("${(@)${(@q)words_open}/#\\~\//~/}")
    local -a quoted_whole=("${(@)${(@q)words_whole}/#\\~\//~/}")
    (( $#words_open )) && compadd -Q -S '' -l -d shown_open -a quoted_open
    (( $#words_whole )) && compadd -Q -l -d shown_whole -a quoted_whole
}
if [[ ${funcstack[1]-} == _fitgpt ]]; then
    _fitgpt "$@"
else
    compdef _fitgpt fitgpt
fi
