//! Titles and short sentences in German.

use crate::words::Labels;

pub(super) const LABELS: Labels = Labels {
    did_not_fit: "Kein Platz für {bytes} {phase}.",
    did_not_fit_ever: "Für {bytes} war kein Platz; wann, sagt das Protokoll nicht.",
    ran_out: "Zu wenig Speicher {phase}.",
    ran_out_ever: "Der Speicher reichte nicht; wann und wie viel verlangt wurde, sagt das \
                   Protokoll nicht.",
    host: "Dem Prozess fehlte Arbeitsspeicher.",
    host_asked: "Für {bytes} war im Arbeitsspeicher kein Platz.",
    killed: "Der Prozess wurde abgebrochen (SIGKILL).",
    program: "Das Protokoll stammt von {program} („{evidence}“). Für dessen Speicher haben wir \
              kein Modell: was folgt, gilt für jedes Programm.",
    no_program: "Welches Programm es war, sagt das Protokoll nicht: was folgt, gilt für jedes \
                 Programm.",
    which: "Es war: {name} {shape} in {dtype} ({confidence}).",
    may_be: "Der Größe nach könnte es gewesen sein: {name} {shape} in {dtype}.",
    would_be: "Was in diesem Moment angelegt wird: {name} {shape} in {dtype}.",
    same_size: "Dieselbe Größe: {others}.",
    memory: "wer den Speicher belegte",
    total: "zusammen: der Speicher der Karte",
    total_cap: "zusammen: die Obergrenze und der Kontext daneben",
    total_limit: "zusammen: das Limit für diesen Prozess",
    peaks: "nanoGPTs Tensoren in PyTorch, je Phase (±7 %) → mit Kontext",
    claims: "was der Text sagt, für diesen Lauf beurteilt",
    advice: "die üblichen Ratschläge, für diesen Fall",
    missing: "es fehlen noch {bytes}",
    suggested_fits: "Die Einstellungen, die der Text vorschlägt, zusammen ({settings}): {bytes}, \
                     das passt.",
    suggested_short: "Die Einstellungen, die der Text vorschlägt, zusammen ({settings}): {bytes}, \
                      für einen sicheren Lauf {missing} zu viel.",
    suggested_heads: "Die Einstellungen, die der Text vorschlägt, zusammen ({settings}), laufen \
                      nicht: n_head={heads} teilt n_embd={width} nicht.",
    remedies: "was Sie versuchen können",
    fixes: "was in nanoGPT zu ändern ist",
    nothing: "keine ähnliche Einstellung von nanoGPT passt",
    unknown: "was das Protokoll nicht sagt",
    nanogpt: "nanoGPT, so geändert, dass es passt",
    patch: "nanoGPTs Code: dieser Diff (patch -p1 in seinem Ordner), erwartet {bytes}",
    patch_with: "mit {settings}",
    patch_limits: "Eine Schätzung, nicht auf Ihrer Karte gemessen.",
    fitgpt: "fitGPT, mit denselben Einstellungen",
    fitgpt_changed: "fitGPT, so geändert, dass es passt",
    plan: "{bytes}, {rate} Token/s, der ganze Lauf in {time} auf {card}",
    rate: "{rate} Token/s",
    guessed: "die Karte ist anhand ihres Speichers geraten; --gpu legt sie fest",
    unrelated: "nicht die Ursache: {what}",
    foreign: "nanoGPT kennt {keys} nicht und hat es ignoriert",
    fork_keys: "Schlüssel eines Forks, nicht in der Schätzung: {keys}",
    heads: "n_head={heads} teilt n_embd={width} nicht: nanoGPT bricht mit einer Assertion ab. Die \
            Schätzung nimmt n_head={nearest}.",
    ranks: "Diesen Lauf teilten sich {count} Prozesse: jeder belegt so viel auf seiner GPU. \
            fitGPT läuft auf einer GPU.",
    fits: "Nach unserer Schätzung von PyTorchs Speicher passt der Lauf.",
    tight: "Nach unserer Schätzung von PyTorchs Speicher ist es ungewiss: der Lauf braucht mehr \
            als 93 % des freien Speichers.",
    dies: "Nach unserer Schätzung von PyTorchs Speicher würde der Lauf {phase} abbrechen.",
    margin: "Er braucht {needs}: auf einer leeren Karte mit {limit} blieben {spare}, ±7 %.",
    margin_over: "Er braucht {needs}, ±7 %: {spare} mehr, als eine leere Karte mit {limit} hat.",
    desktop: "Ein Desktop belegt 0,3 bis 2 GiB einer Karte: angenommen ist {used}, es bleiben \
              {free}. --used sagt, was belegt ist, --vram, was frei ist.",
    in_use: "{used} sind belegt, es bleiben {free}.",
    no_log: "Es wurde keine Meldung über fehlenden Speicher gefunden.",
    colon: ": ",
    then: "; ",
    comma: ", ",
    list: "; ",
    bracket: " ({text})",
    problem: "Problem",
    root: "Ursache",
    config: "Empfohlene Konfiguration",
    expected: "Erwarteter Speicher",
    nonsense: "Diese Zahlen der Meldung können nicht stimmen (WSL- und Windows-Treiber geben \
               solche aus): {numbers}",
};
