//! Titles and short sentences in French.

use crate::words::Labels;

pub(super) const LABELS: Labels = Labels {
    did_not_fit: "Impossible d'allouer {bytes} {phase}.",
    did_not_fit_ever: "Impossible d'allouer {bytes} ; le journal ne dit pas à quel moment.",
    ran_out: "La mémoire a manqué {phase}.",
    ran_out_ever: "La mémoire a manqué ; le journal ne dit ni quand, ni combien était demandé.",
    host: "Le processus a manqué de mémoire vive.",
    host_asked: "Impossible d'allouer {bytes} de mémoire vive.",
    killed: "Le processus a été tué (SIGKILL).",
    program: "Le journal vient de {program} (« {evidence} »). Nous n'avons pas de modèle de sa \
              mémoire : ce qui suit vaut pour tout programme.",
    no_program: "Le journal ne dit pas de quel programme il vient : ce qui suit vaut pour tout \
                 programme.",
    which: "C'était {name} {shape} en {dtype} ({confidence}).",
    may_be: "D'après sa taille, ce pouvait être {name} {shape} en {dtype}.",
    would_be: "Ce qui est alloué à ce moment : {name} {shape} en {dtype}.",
    same_size: "Même taille : {others}.",
    memory: "ce qui occupait la mémoire",
    total: "total : la mémoire de la carte",
    total_cap: "total : le plafond, et le contexte à côté",
    total_limit: "total : la limite de ce processus",
    peaks: "les tenseurs de nanoGPT dans PyTorch, par phase (±7 %) → avec contexte",
    claims: "ce que dit le texte, jugé pour cette exécution",
    advice: "les conseils habituels, pour ce cas",
    missing: "il manque encore {bytes}",
    suggested_fits: "Les réglages que le texte propose, ensemble ({settings}), demandent {bytes} \
                     : cela tient.",
    suggested_short: "Les réglages que le texte propose, ensemble ({settings}), demandent {bytes} \
                      : {missing} de trop pour tenir sûrement.",
    suggested_heads: "Les réglages que le texte propose, ensemble ({settings}), ne peuvent pas \
                      tourner : n_head={heads} ne divise pas n_embd={width}.",
    remedies: "à essayer",
    fixes: "à changer dans nanoGPT",
    nothing: "aucun réglage de nanoGPT proche de celui-ci ne tient en mémoire",
    unknown: "ce que le journal ne dit pas",
    nanogpt: "nanoGPT, modifié pour tenir en mémoire",
    patch: "le code de nanoGPT : ce diff (patch -p1 dans son dossier), {bytes} attendus",
    patch_with: "avec {settings}",
    patch_limits: "Une estimation, non mesurée sur votre carte.",
    fitgpt: "fitGPT, avec les réglages d'origine",
    fitgpt_changed: "fitGPT, modifié pour tenir en mémoire",
    plan: "{bytes}, {rate} tokens/s, toute l'exécution en {time} sur {card}",
    rate: "{rate} tokens/s",
    guessed: "la carte est devinée d'après sa mémoire ; nommez-la avec --gpu",
    unrelated: "pas la cause : {what}",
    foreign: "nanoGPT ne connaît pas {keys} et l'a ignoré",
    fork_keys: "clés d'un fork, absentes de l'estimation : {keys}",
    heads: "n_head={heads} ne divise pas n_embd={width} : nanoGPT s'arrête sur une assertion. \
            L'estimation prend n_head={nearest}.",
    ranks: "{count} processus se partageaient cette exécution : chacun occupe autant sur son \
            GPU. fitGPT tourne sur un seul GPU.",
    fits: "Selon notre estimation de la mémoire de PyTorch, l'exécution tient en mémoire.",
    tight: "Selon notre estimation de la mémoire de PyTorch, c'est incertain : il faut plus de 93 \
            % de ce qui est libre.",
    dies: "Selon notre estimation de la mémoire de PyTorch, l'exécution échoue {phase}.",
    margin: "Il faut {needs} : {spare} de reste sur une carte vide de {limit}, ±7 %.",
    margin_over: "Il faut {needs}, ±7 % : {spare} de plus qu'une carte vide de {limit}.",
    desktop: "Un bureau graphique occupe 0,3 à 2 GiB d'une carte : {used} est supposé, il reste \
              {free}. --used dit ce qui est occupé, --vram ce qui est libre.",
    in_use: "{used} sont occupés, il reste {free}.",
    no_log: "Aucun message de mémoire insuffisante n'a été trouvé.",
    colon: " : ",
    then: " ; ",
    comma: ", ",
    list: " ; ",
    bracket: " ({text})",
    problem: "Problème",
    root: "Cause",
    config: "Configuration conseillée",
    expected: "Mémoire attendue",
    nonsense: "Ces nombres du message sont impossibles (les pilotes WSL et Windows en affichent) \
               : {numbers}",
};
