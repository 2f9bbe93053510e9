# Completion of fitgpt for bash 4.4 and newer. Load it with: source <(fitgpt completions bash)
_fitgpt() {
    local program=${COMP_WORDS[0]/#\~/$HOME} previous='' quote='' strip='' word i
    local -a words=()
    # bash takes --key=value for three words.
    for ((i = 1; i <= COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        if [[ ${#words[@]} -gt 0 && ($word == = || $previous == =) ]]; then
            words[${#words[@]} - 1]+=$word
        else
            words+=("$word")
        fi
        previous=$word
    done
    word=${COMP_WORDS[COMP_CWORD]}
    case $word in
        [\'\"]*) quote=${word:0:1} ;;
    esac
    words=("${words[@]//[\'\"\\]/}")
    # It replaces only what follows the equals sign.
    if [[ ${words[-1]} == *=* && $COMP_WORDBREAKS == *=* ]]; then
        strip=${words[-1]%%=*}=
    fi
    COMPREPLY=()
    while IFS=$'\t' read -r word _; do
        word=${word#"$strip"}
        # A name with spaces is quoted, unless a quote is open already.
        if [[ -z $quote && $word == *[!A-Za-z0-9_./=,:@%+~-]* ]]; then
            printf -v word %q "$word"
        fi
        COMPREPLY+=("$word")
    done < <("$program" __complete "${words[@]}" 2>/dev/null)
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[=/] ]]; then
        compopt -o nospace
    fi
}
complete -F _fitgpt fitgpt
