//! The texts in German.

use crate::account::What;
use crate::advice::{Advice, Note, Verdict};
use crate::diagnosis::{Cause, Unknown};
use crate::fixes::FixKind;
use crate::log::LogPhase;
use crate::tensor::Confidence;
use crate::words::{Catalogue, Labels};

/// German.
pub struct German;

impl Catalogue for German {
    #[expect(clippy::too_many_lines, reason = "a table: one arm for each note")]
    fn note(&self, note: Note) -> &'static str {
        match note {
            Note::HalfBatch => {
                "halber Batch, doppelt so viele Mikrobatches: gleich viele Token je Schritt"
            }
            Note::BatchIsOne => "es ist schon nur eine Sequenz",
            Note::NoSuchKeyAndTrainingDies => {
                "nanoGPT kennt diesen Schlüssel nicht (in einer Datei wird er ignoriert), und \
                 das Training selbst passt nicht"
            }
            Note::NoSuchKeyButEvalWouldFit => {
                "nanoGPT kennt diesen Schlüssel nicht (in einer Datei wird er ignoriert); mit \
                 ihm passte die Auswertung, das Training passt"
            }
            Note::OneBatchAtATime => {
                "die Batches einer Auswertung kommen nacheinander; weniger davon brauchen nicht \
                 weniger Speicher"
            }
            Note::OnlyMovesTheMoment => "Auswertungen werden seltener, nicht kleiner",
            Note::HalfContext => {
                "halber Kontext; die Verluste sind mit längeren nicht vergleichbar"
            }
            Note::Narrower => "ein Kopf weniger",
            Note::NoNarrower => "es gibt kein schmaleres Modell mit dieser Kopfgröße",
            Note::NothingToCheckpointInEval => {
                "die Auswertung läuft ohne Gradienten und hebt nichts auf, was man neu \
                 berechnen könnte"
            }
            Note::CheckpointLowersActivations => {
                "nanoGPT kennt diesen Schlüssel nicht; eingebaut senkt er Aktivierungen, nie \
                 Logits oder Optimierer-Zustand"
            }
            Note::EagerTakesMore => "ohne compile gibt es mehr Kopien der Logits",
            Note::AlreadyEager => "es läuft schon ohne compile",
            Note::GraphsTakeMore => {
                "CUDA-Graphen haben eigene Speicherbereiche: mehr, nicht weniger"
            }
            Note::PiecesAreEnough => "so viel ist reserviert und unbenutzt, in Stücken",
            Note::NotFragmentation => {
                "der Speicher wird gebraucht; Zerstückelung ist nicht das Problem"
            }
            Note::AlreadyOn => "es ist schon eingeschaltet",
            Note::CacheIsEmptied => {
                "PyTorch leert seinen Zwischenspeicher selbst, bevor es aufgibt"
            }
            Note::TrainingDiesInstead => {
                "die Auswertung verließe die GPU, und der erste Trainingsschritt stürbe \
                 stattdessen"
            }
            Note::EvalLeaves => {
                "die Auswertung verlässt die GPU und dauert um ein Vielfaches länger"
            }
            Note::OthersHold => "so viel halten andere Programme auf dieser Karte",
            Note::NoOthers => "auf dieser Karte ist kein anderes Programm zu sehen",
            Note::SameBytes => "beide haben zwei Byte",
            Note::EachHoldsAll => {
                "jede GPU hält das ganze Modell, den Optimierer-Zustand und ihre eigenen Logits"
            }
            Note::DataIsNotThere => {
                "nanoGPTs Daten liegen in einer Datei, nicht im Speicher der GPU"
            }
            Note::SameTensors => "die Tensoren sind in jeder Version dieselben",
            Note::ManyTimesSlower => "es liefe, hunderte Male langsamer",
            Note::FitsAlready => "der Lauf passt, wie er ist",
            Note::StateAlone => "Gewichte, Gradienten und Adams Zustand passen schon allein nicht",
            Note::HalfTheBytes => "Aktivierungen und Logits in 16 Bit",
            Note::FlashAttention => "Flash Attention braucht kein Positionen x Positionen",
        }
    }

    fn advice(&self, advice: Advice) -> &'static str {
        match advice {
            Advice::SmallerBatch => "kleineres batch_size, mehr gradient_accumulation_steps",
            Advice::EvalBatchSize => "eval_batch_size",
            Advice::EvalBlockSize => "eval_block_size",
            Advice::EvalIters => "weniger eval_iters",
            Advice::EvalInterval => "größeres eval_interval",
            Advice::BlockSize => "kleineres block_size",
            Advice::SmallerModel => "kleineres n_embd",
            Advice::GradCheckpoint => "Gradient Checkpointing",
            Advice::CompileOff => "compile=False",
            Advice::ReduceOverhead => "mode='reduce-overhead'",
            Advice::ExpandableSegments => "expandable_segments:True",
            Advice::EmptyCache => "torch.cuda.empty_cache()",
            Advice::EvalOnCpu => "Auswertung auf der CPU",
            Advice::OtherPrograms => "andere Programme auf der GPU beenden",
            Advice::Float16 => "float16 statt bfloat16",
            Advice::MoreGpus => "mehr GPUs (DDP)",
            Advice::Preloading => "die Daten anders laden",
            Advice::NewerTorch => "neueres PyTorch oder CUDA",
            Advice::DeviceCpu => "device='cpu'",
        }
    }

    fn confidence(&self, confidence: Confidence) -> &'static str {
        match confidence {
            Confidence::Possible => "möglich",
            Confidence::Likely => "wahrscheinlich",
            Confidence::Certain => "sicher",
        }
    }

    fn what(&self, what: What) -> &'static str {
        match what {
            What::Parameters => "Parameter",
            What::Copies => "16-Bit-Kopien der Gewichte (autocast)",
            What::Gradients => "Gradienten",
            What::Adam => "Adams Momente",
            What::Activations => "Aktivierungen für den Rückwärtslauf",
            What::Logits => "Logits und was der Verlust daraus macht",
            What::StaleLogits => "Logits des vorigen Batches, noch referenziert",
            What::Workspace => "Arbeitsspeicher von cuBLAS",
            What::Tokens => "der Batch",
            What::Unexplained => "in Tensoren, die dieses Speichermodell nicht erklärt",
            What::Fragments => "von PyTorch reserviert, in keinem Tensor",
            What::Context => "CUDA-Kontext, Kernel, Bibliotheken",
            What::Others => "andere Programme",
            What::Free => "frei",
        }
    }

    fn cause(&self, cause: Cause) -> &'static str {
        match cause {
            Cause::Logits => {
                "Die Logits sind es: eine Zahl für jedes Token des Batches und jede Zeile des \
                 Vokabulars, mehrfach (Cross-Entropy kopiert sie und bildet einen Log-Softmax \
                 in f32)."
            }
            Cause::StaleLogits => {
                "Die Logits des vorigen Auswertungs-Batches werden noch von der \
                 Schleifenvariable gehalten, während die nächsten entstehen: zwei solche Puffer \
                 zugleich. Ein Graph wird nicht aufgehoben (no_grad)."
            }
            Cause::Activations => {
                "Was der Vorwärtslauf für den Rückwärtslauf aufhebt, passt nicht."
            }
            Cause::AttentionScores => {
                "Aufmerksamkeitswerte, Positionen mal Positionen, passen nicht: Flash Attention \
                 ist nicht in Gebrauch."
            }
            Cause::OptimizerState => {
                "Adam legt seine zwei Momente beim ersten Schritt an: acht Byte je \
                 Parameter, zusätzlich zu Gewichten und Gradienten."
            }
            Cause::Weights => {
                "Das Modell selbst passt nicht: Gewichte, Gradienten oder was daneben geladen \
                 wird."
            }
            Cause::Fragmentation => "Genug Speicher ist reserviert, aber nicht an einem Stück.",
            Cause::OtherProcess => "Andere Programme halten, was fehlt.",
            Cause::Unknown => "Das Protokoll sagt nicht, welcher Tensor es war.",
        }
    }

    fn phase(&self, phase: LogPhase) -> &'static str {
        match phase {
            LogPhase::FirstEval => "in der ersten Auswertung, vor jedem Trainingsschritt",
            LogPhase::Eval => "in einer Auswertung",
            LogPhase::Forward => "im Vorwärtslauf des Trainings",
            LogPhase::Backward => "im Rückwärtslauf",
            LogPhase::Optimizer => "im Schritt des Optimierers",
            LogPhase::Load => "beim Laden des Modells auf die GPU",
            LogPhase::Resume => "beim Laden eines Checkpoints",
            LogPhase::Sample => "beim Erzeugen von Text",
            LogPhase::Unknown => "zu einem Zeitpunkt, den das Protokoll nicht nennt",
        }
    }

    fn verdict(&self, verdict: Verdict) -> &'static str {
        match verdict {
            Verdict::Helps => "hilft",
            Verdict::CostsOnlyTime => "kostet nur Zeit",
            Verdict::DoesNothing => "bewirkt hier nichts",
            Verdict::Wrong => "falsch",
        }
    }

    fn unknown(&self, unknown: Unknown) -> &'static str {
        match unknown {
            Unknown::Requested => {
                "wie viel verlangt wurde: noch einmal laufen lassen und die ganze Meldung behalten"
            }
            Unknown::Budget => {
                "wie viel Speicher die Karte hat: nvidia-smi \
                 --query-gpu=name,memory.total,memory.used --format=csv"
            }
            Unknown::Settings => {
                "die Einstellungen des Laufs: die Konfigurationsdatei angeben, z. B. fitgpt \
                 doctor log.txt config/mine.py"
            }
            Unknown::Phase => {
                "was das Programm gerade tat: den Traceback über der Meldung behalten"
            }
            Unknown::Model => {
                "das Modell: die ausgegebenen Einstellungen ergeben eine andere Parameterzahl; \
                 die Konfigurationsdatei angeben"
            }
        }
    }

    fn fix(&self, fix: FixKind) -> &'static str {
        match fix {
            FixKind::SmallerBatch => {
                "kleinerer Mikrobatch, mehr davon: gleich viele Token je Schritt"
            }
            FixKind::Compile => "kompilierter Code hält weniger Kopien der Logits",
            FixKind::ShorterContext => {
                "kürzere Sequenzen; die Verluste sind mit längeren nicht vergleichbar"
            }
            FixKind::SmallerModel(_) => "ein schmaleres Modell",
        }
    }

    fn labels(&self) -> &'static Labels {
        const LABELS: Labels = Labels {
            did_not_fit: "{bytes} passten nicht {phase}.",
            which: "Es war {name} {shape} in {dtype} ({confidence}).",
            same_size: "dieselbe Größe: {others}",
            memory: "wo der Speicher war",
            peaks: "nanoGPTs Tensoren in PyTorch, je Phase (±7 %) → mit Kontext",
            of_budget: "von {budget}",
            advice: "die üblichen Ratschläge, für diesen Fall",
            fixes: "was in nanoGPT zu ändern ist",
            nothing: "keine Einstellung von nanoGPT in der Nähe passt",
            unknown: "was das Protokoll nicht sagt",
            nanogpt: "nanoGPT, so geändert, dass es passt",
            fitgpt: "fitGPT, wie eingegeben",
            fitgpt_changed: "fitGPT, so geändert, dass es passt",
            unrelated: "nicht die Ursache: {what}",
            foreign: "nanoGPT kennt {keys} nicht und hat es ignoriert",
            fits: "Nach diesem Modell von PyTorchs Speicher passt der Lauf.",
            dies: "Nach diesem Modell von PyTorchs Speicher stirbt der Lauf {phase}.",
            no_log: "Es wurde keine Meldung über fehlenden Speicher gefunden.",
            problem: "Problem",
            root: "Ursache",
            config: "Empfohlene Konfiguration",
            expected: "Erwarteter Speicher",
            nonsense: "Diese Zahlen der Meldung können nicht stimmen (WSL- und \
                       Windows-Treiber drucken solche): {numbers}",
        };
        &LABELS
    }
}
