//! The texts in German.

mod labels;

use crate::account::What;
use crate::advice::{Note, Verdict};
use crate::cause::{Cause, Reason};
use crate::diagnosis::Unknown;
use crate::figure::Numbers;
use crate::fixes::FixKind;
use crate::log::{Claim, LogPhase, Program};
use crate::patch::Change;
use crate::remedies::Remedy;
use crate::tensor::Confidence;
use crate::tensor_name::TensorKind;
use crate::torch::Phase;
use crate::words::{Catalogue, Labels, Refusal};
use labels::LABELS;

/// German.
pub struct German;

impl Catalogue for German {
    fn numbers(&self) -> Numbers {
        Numbers { decimal: ',', group: '.' }
    }

    #[expect(clippy::too_many_lines, reason = "a table: one arm for each text")]
    fn cause(&self, cause: Cause) -> &'static str {
        match cause {
            Cause::Logits => {
                "Die Logits sind zu groß: eine Zahl für jedes Token des Batches und jede Zeile \
                 des Vokabulars, und das mehrfach (Cross-Entropy kopiert sie und berechnet einen \
                 Log-Softmax in f32)."
            }
            Cause::StaleLogits => {
                "Die Schleifenvariable hält noch die Logits des vorigen Auswertungs-Batches, \
                 während die nächsten entstehen: zwei Puffer dieser Größe zugleich. Ein Graph \
                 bleibt nicht (die Auswertung läuft unter no_grad)."
            }
            Cause::Activations => {
                "Was der Vorwärtslauf für den Rückwärtslauf aufhebt, passt nicht."
            }
            Cause::AttentionScores => {
                "Die Attention-Scores, Batch x Köpfe x Positionen x Positionen, passen nicht: \
                 Flash Attention ist nicht in Gebrauch."
            }
            Cause::OptimizerState => {
                "Adam legt seine zwei Momente beim ersten Schritt an: acht Byte je Parameter, \
                 zusätzlich zu Gewichten und Gradienten."
            }
            Cause::OptimizerStep => {
                "Im Schritt des Optimierers reichte der Speicher nicht. Adams Momente brauchen \
                 ab dem ersten Schritt acht Byte je Parameter, und die Multi-Tensor-Form \
                 (foreach) legt temporäre Kopien in der Größe der Parameter an."
            }
            Cause::Weights => {
                "Das Modell selbst passt nicht: Gewichte, Gradienten oder was daneben geladen \
                 wird."
            }
            Cause::State => {
                "Gewichte, Gradienten und Adams Momente füllen die Karte, gleich wie groß der \
                 Batch ist."
            }
            Cause::LoadedCheckpoint => {
                "Fortsetzen braucht mehr Speicher als Starten: torch.load legt den Checkpoint, \
                 Gewichte und Adams Momente (12 Byte je Parameter), auf die GPU, und solange eine \
                 Variable ihn referenziert, bleibt er dort neben dem Modell (nanoGPTs train.py \
                 hält solche Referenzen). Ein Lauf, der von Grund auf passt, passt darum beim \
                 Fortsetzen vielleicht nicht."
            }
            Cause::Request => {
                "Eine einzelne große Anforderung passte nicht; für welchen Tensor, verrät ihre \
                 Größe nicht."
            }
            Cause::Full => {
                "Dieser Prozess selbst füllt den GPU-Speicher: Gewichte, Gradienten, \
                 Optimierer-Zustand und Aktivierungen zusammen. Die gescheiterte Anforderung ist \
                 nur der letzte Tropfen."
            }
            Cause::FullOfInference => {
                "Dieser Prozess selbst füllt den GPU-Speicher. Ohne Training sind das die \
                 Gewichte, der KV-Cache und die Aktivierungen des Batches. Die gescheiterte \
                 Anforderung ist nur der letzte Tropfen."
            }
            Cause::Unsaid => {
                "Die Anforderung ist klein, der Speicher war also schon fast voll; wer ihn \
                 belegte, sagt das Protokoll nicht."
            }
            Cause::Library => {
                "cuBLAS oder cuDNN bekam keinen Speicher. Meist ist die Karte in diesem Moment \
                 voll; ein zuvor gescheiterter Kernel (ein Index außerhalb des Bereichs) zeigt \
                 denselben Fehler: CUDA_LAUNCH_BLOCKING=1 unterscheidet beides."
            }
            Cause::FullBefore => {
                "Schon die erste Anforderung scheiterte, bevor das Programm selbst etwas \
                 belegte: die Karte war bereits voll, oder ein anderer Prozess belegt sie."
            }
            Cause::Fragmentation => {
                "Genug Speicher ist reserviert, aber nicht an einem Stück: Fragmentierung."
            }
            Cause::OtherProcess => "Andere Programme belegen, was fehlt.",
            Cause::HostMemory => {
                "Das ist der Arbeitsspeicher (RAM) des Rechners, nicht der GPU-Speicher: \
                 Einstellungen für die GPU ändern daran nichts."
            }
            Cause::Killed => {
                "Meist tut das der Kernel, wenn der Arbeitsspeicher (RAM) oder das Limit des \
                 Containers erschöpft ist; Einstellungen für die GPU ändern daran nichts."
            }
            Cause::Contradiction => {
                "Die Zahlen der Meldung widersprechen sich und nennen darum keine Ursache. \
                 Möglich sind: ein Limit für diesen Prozess, ein anderer Prozess oder Rank auf \
                 derselben GPU, der den Speicher kurz belegte, oder eine veraltete Zahl."
            }
            Cause::Unknown => "Was verlangt wurde und wofür, sagt das Protokoll nicht.",
        }
    }

    #[expect(clippy::too_many_lines, reason = "a table: one arm for each text")]
    fn reason(&self, reason: Reason) -> &'static str {
        match reason {
            Reason::LastStraw => {
                "{0} sind {1} der {2}, die der Lauf belegt: der letzte Tropfen, nicht die Ursache."
            }
            Reason::Block => {
                "{0} ist ein Block von PyTorchs Allokator: für Tensoren bis 1 MiB fordert er 2 \
                 MiB an, für solche bis 10 MiB 20 MiB. Diese Größe nennt keinen Tensor."
            }
            Reason::StateExceeds => {
                "{0} Parameter: Gewichte, Gradienten und Adams zwei Momente brauchen in f32 je 16 \
                 Byte, zusammen {1}. Die Karte hat {2}."
            }
            Reason::StateLeavesNothing => {
                "{0} Parameter: Gewichte, Gradienten und Adams zwei Momente brauchen in f32 je \
                 16 Byte, zusammen {1}. Mit dem GPU-Kontext bleibt von den verfügbaren {2} \
                 nichts für Aktivierungen."
            }
            Reason::StateOf => {
                "{0} Parameter: Gewichte, Gradienten und Adams zwei Momente brauchen in f32 je 16 \
                 Byte, zusammen {1}."
            }
            Reason::WeightsOf => "{0} Parameter: die Gewichte brauchen {1} in f32, {2} in 16 Bit.",
            Reason::Beyond => {
                "Was es darüber hinaus belegt, {0}, sind Aktivierungen, Logits und temporäre \
                 Tensoren: sie schrumpfen mit dem Batch."
            }
            Reason::OthersHold => {
                "Andere belegen {0} der {1} der Karte; ohne sie hätte diese Anforderung gepasst."
            }
            Reason::OthersHoldMost => "Andere belegen {0} der {1} der Karte.",
            Reason::OthersSmall => "Andere belegen {0}; das ist hier nicht entscheidend.",
            Reason::Pieces => {
                "{0} sind reserviert, aber unbenutzt, {1} wurden verlangt, {2} sind frei: an \
                 einem Stück hätte es gepasst."
            }
            Reason::PiecesToo => {
                "Außerdem sind {0} reserviert, aber unbenutzt, mehr als die verlangten {1}: \
                 Fragmentierung kommt hinzu."
            }
            Reason::FreeExceeds => {
                "Die Meldung zeigt {0} frei, mehr als die verlangten {1}: der Speicher fehlte \
                 aus einem anderen Grund."
            }
            Reason::HoldsNothing => {
                "Die Meldung sagt, dieser Prozess belege 0 Byte; neben {0} in PyTorch ist das \
                 unmöglich. Die übrigen Zahlen werden benutzt."
            }
            Reason::ReservedBelow => {
                "{0} reserviert ist weniger als {1} belegt: eine der beiden Zahlen stimmt nicht."
            }
            Reason::HeldExceeds => {
                "Belegt sein sollen {0} auf einer Karte mit {1}: die Zahlen passen nicht zusammen."
            }
            Reason::Impossible => {
                "{0} kann nicht stimmen (eine negative Zahl, ohne Vorzeichen ausgegeben): nicht \
                 berücksichtigt."
            }
            Reason::SharedMemory => {
                "{0} sind auf einer Karte mit {1} belegt: Windows leiht der GPU Arbeitsspeicher, \
                 das ist also echt, und langsam."
            }
            Reason::ModelFits => {
                "Nach unserer Schätzung braucht dieser Lauf {0} (±7 %) von {1} und hätte passen \
                 sollen: etwas anderes belegte in dem Moment Speicher, oder eine Einstellung ist \
                 anders als hier bekannt."
            }
            Reason::ModelExceeds => {
                "Nach unserer Schätzung braucht der ganze Lauf {0} (±7 %), frei sind {1}: {2} zu \
                 viel."
            }
            Reason::ScoresAdd => {
                "Jede Schicht hebt ihre eigenen Attention-Scores für den Rückwärtslauf auf: {0} \
                 in {1} Schichten."
            }
            Reason::PredictionsKept => {
                "Der Trainer sammelt die Logits aller Auswertungs-Batches auf der GPU: mit jedem \
                 Batch werden es mehr."
            }
            Reason::ExceedsCard => {
                "{0} sind mehr, als die ganze Karte hat ({1}): weder andere Programme noch \
                 Fragmentierung sind schuld."
            }
            Reason::CardDiffers => {
                "Der Text spricht von {0}, die GPU in der Meldung hat aber {1}: die Meldung \
                 zählt."
            }
            Reason::Resident => "Der Prozess belegte {0} Arbeitsspeicher.",
        }
    }

    fn claim(&self, claim: Claim) -> &'static str {
        match claim {
            Claim::KvCacheInTraining => "ein KV-Cache belegt Speicher",
            Claim::GraphKeptInEval => "die Auswertung behält den Graphen ihrer Batches",
            Claim::AdamAtFirstEval => "Adams Zustand füllt den Speicher bei der ersten Auswertung",
            Claim::EvalIsCulprit => "schuld ist die Auswertung",
            Claim::EvalBatchSizeAlone => "ein kleineres eval_batch_size allein behebt es",
            Claim::EvalBatchSizeKeyExists => "eval_batch_size",
            Claim::EvalBlockSize => "eval_block_size",
            Claim::EvalIters => "weniger eval_iters",
            Claim::EvalInterval => "größeres eval_interval",
            Claim::SmallerBatch { .. } => "kleineres batch_size, mehr gradient_accumulation_steps",
            Claim::ShorterContext { .. } => "kleineres block_size",
            Claim::SmallerModel { .. } => "ein kleineres Modell (n_embd)",
            Claim::Accumulation { .. } => "mehr gradient_accumulation_steps",
            Claim::Checkpointing => "Gradient Checkpointing",
            Claim::CheckpointingHalves { .. } => "Checkpointing halbiert die Aktivierungen",
            Claim::EmptyCache => "torch.cuda.empty_cache()",
            Claim::ExpandableSegments => "expandable_segments:True",
            Claim::MaxSplitSize => "max_split_size_mb",
            Claim::CompileOff => "compile=False",
            Claim::CompileMode => "mode='reduce-overhead'",
            Claim::SuppressErrors => "suppress_errors=True",
            Claim::KillOthers => "andere Programme auf der GPU beenden",
            Claim::CpuOffload => "Auswertung auf der CPU",
            Claim::CpuFallback => "device='cpu'",
            Claim::LowerPrecision => "16-Bit-Genauigkeit",
            Claim::SmallerOptimizer => "ein Optimierer mit kleinerem Zustand (8-Bit-Adam)",
            Claim::LoraOrQuantized => "LoRA oder ein quantisiertes Modell",
            Claim::FlashAttention => "Flash Attention",
            Claim::DeleteLogits => "die Logits freigeben, sobald der Verlust feststeht",
            Claim::NoGrad => "Auswertung unter no_grad",
            Claim::MoreGpus => "mehr GPUs (DDP)",
            Claim::LargerGpu => "eine GPU mit mehr Speicher",
            Claim::OtherVersion => "eine andere Version von PyTorch oder CUDA",
            Claim::GradScalerWarning => "die Warnung von GradScaler",
            Claim::AutotuneWarning => "die Warnung max_autotune_gemm",
            Claim::ClearCache => "gc.collect()",
            Claim::Restart => "Rechner oder Sitzung neu starten",
            Claim::Fragmentation => "der Speicher ist fragmentiert",
            Claim::CompileCostsMemory => "torch.compile braucht mehr Speicher",
            Claim::DataLoader => "die Daten anders laden",
        }
    }

    fn verdict(&self, verdict: Verdict) -> &'static str {
        match verdict {
            Verdict::Suffices => "hilft und reicht",
            Verdict::NotAlone { .. } => "hilft, reicht aber nicht",
            Verdict::Helps => "hilft",
            Verdict::CostsOnlyTime => "kostet nur Zeit",
            Verdict::DoesNothing => "bewirkt hier nichts",
            Verdict::Worse => "kontraproduktiv",
            Verdict::Impossible => "geht nicht",
            Verdict::False => "trifft nicht zu",
            Verdict::True => "trifft zu",
        }
    }

    #[expect(clippy::too_many_lines, reason = "a table: one arm for each text")]
    fn note(&self, note: Note) -> &'static str {
        match note {
            Note::Batch => {
                "batch_size={0}, gradient_accumulation_steps={1}: gleich viele Token je Schritt"
            }
            Note::BatchIsOne => "es ist schon nur eine Sequenz",
            Note::NoSuchKey => {
                "nanoGPT kennt diesen Schlüssel nicht: in einer Datei wird er ignoriert, auf der \
                 Kommandozeile ist er ein Fehler; fitGPT kennt ihn"
            }
            Note::NoSuchKeyAndTrainingDies => {
                "nanoGPT kennt diesen Schlüssel nicht (in einer Datei wird er ignoriert), und das \
                 Training selbst braucht {0}"
            }
            Note::NoSuchKeyButEvalWouldFit => {
                "nanoGPT kennt diesen Schlüssel nicht (in einer Datei wird er ignoriert); mit \
                 einer Änderung im Code würde die Auswertung passen, das Training passt"
            }
            Note::OneBatchAtATime => {
                "eine Auswertung rechnet einen Batch nach dem anderen; weniger Batches brauchen \
                 nicht weniger Speicher"
            }
            Note::OnlyMovesTheMoment => "Auswertungen werden seltener, nicht kleiner",
            Note::Context => {
                "{0} Positionen; die Verluste sind mit denen längerer Kontexte nicht vergleichbar"
            }
            Note::Width => "n_embd={0}",
            Note::OtherModel => "init_from='{0}'",
            Note::HeadsDoNotDivide => {
                "n_embd={0} ist nicht durch n_head={1} teilbar: nanoGPT bricht mit einer \
                 Assertion ab; n_embd={2} geht"
            }
            Note::NoNarrower => "es gibt kein schmaleres Modell mit dieser Kopfgröße",
            Note::NothingToCheckpointInEval => {
                "die Auswertung läuft ohne Gradienten und hebt nichts auf, was man neu berechnen \
                 könnte"
            }
            Note::CheckpointLowersActivations => {
                "nanoGPT hat keinen Schlüssel dafür; in den Code eingebaut sinken die \
                 Aktivierungen hier um {0}, das Training von {1} auf {2}; Logits und \
                 Optimierer-Zustand bleiben"
            }
            Note::EagerTakesMore => "ohne compile gibt es mehr Kopien der Logits",
            Note::AlreadyEager => "es läuft schon ohne compile",
            Note::GraphsTakeMore => "CUDA-Graphen haben eigene Speicherpools: mehr, nicht weniger",
            Note::PiecesAreEnough => "so viel ist reserviert, aber unbenutzt und fragmentiert",
            Note::NotFragmentation => {
                "der Speicher wird gebraucht; Fragmentierung ist nicht das Problem"
            }
            Note::AlreadyOn => "es ist schon eingeschaltet",
            Note::CacheIsEmptied => "PyTorch leert seinen Cache selbst, bevor es aufgibt",
            Note::TrainingDiesInstead => {
                "die Auswertung verließe die GPU, und der erste Trainingsschritt würde abbrechen"
            }
            Note::EvalLeaves => {
                "die Auswertung verlässt die GPU und dauert um ein Vielfaches länger"
            }
            Note::OthersHold => "andere Programme belegen so viel von dieser Karte",
            Note::OthersLittle => "andere belegen {0}: zu wenig, um ins Gewicht zu fallen",
            Note::DesktopHolds => {
                "ein Desktop belegt 0,3 bis 2 GiB einer Karte; so viel ist angenommen"
            }
            Note::NoOthers => "kein anderes Programm ist auf dieser Karte zu sehen",
            Note::SameBytes => {
                "der Lauf rechnet schon in 16 Bit; float16 und bfloat16 brauchen je zwei Byte"
            }
            Note::EachHoldsAll => {
                "jede GPU hält das ganze Modell, den Optimierer-Zustand und ihre eigenen Logits"
            }
            Note::DataIsNotThere => {
                "nanoGPTs Daten sind eine Datei auf der Platte, nicht im GPU-Speicher"
            }
            Note::SameTensors => "die Tensoren sind in jeder Version dieselben",
            Note::ManyTimesSlower => "es liefe, aber mehrere hundert Mal langsamer",
            Note::StateAlone => "Gewichte, Gradienten und Adams Zustand passen schon allein nicht",
            Note::HalfTheBytes => "Aktivierungen und Logits in 16 Bit",
            Note::FlashAttention => "Flash Attention baut keine Matrix Positionen x Positionen auf",
            Note::AlreadyFlash => "nanoGPT benutzt sie mit PyTorch 2 schon",
            Note::NoKvCache => {
                "es gibt keinen KV-Cache, weder im Training noch in nanoGPTs Auswertung: ein \
                 Batch wird in einem Durchgang berechnet, nichts bleibt"
            }
            Note::NoGraph => {
                "estimate_loss() läuft unter torch.no_grad(): kein Graph bleibt; es bleiben nur \
                 die Logits des letzten Batches, {0}"
            }
            Note::AdamComesLater => {
                "Adams Momente ({0}) entstehen im ersten Schritt des Optimierers, nach der ersten \
                 Auswertung"
            }
            Note::AdamIsLoaded => {
                "dieser Lauf setzt fort, also sind Adams Momente ({0}) von Anfang an geladen"
            }
            Note::TrainingIsThePeak => {
                "das Training ist die Spitze: es braucht {0}, die Auswertung {1}"
            }
            Note::EvalIsThePeak => "die Auswertung braucht {0}, das Training {1}",
            Note::TrainingStillNeeds => "das Training braucht weiterhin {0}, frei sind {1}",
            Note::HidesCompilerErrors => {
                "es verdeckt Fehler des Compilers; der Fehler des Allokators bleibt"
            }
            Note::AccumulationAlone => {
                "es hält die Token je Schritt, wenn der Batch kleiner wird; allein ändert es \
                 keine Spitze"
            }
            Note::SmallMoments => {
                "Momente von je einem Byte sparen {0}; nanoGPT hat keinen Schlüssel dafür"
            }
            Note::OnlyForFineTuning => {
                "damit verfeinert man ein trainiertes Modell; von Grund auf trainiert man so \
                 keines"
            }
            Note::NeedsThatMuch => "der Lauf braucht {0}",
            Note::AlreadyNoGrad => "nanoGPTs Auswertung hat es schon",
            Note::LogitsDropped => {
                "eine Änderung an zwei Zeilen in nanoGPTs Code; der Rückwärtslauf behält seine \
                 eigenen Kopien"
            }
            Note::NothingToCollect => {
                "PyTorch gibt einen Tensor frei, sobald ihn nichts mehr referenziert; für den \
                 Garbage Collector bleibt nichts"
            }
            Note::SameNeed => {
                "danach braucht der Lauf genauso viel; es hilft nur, wenn ein toter Prozess noch \
                 Speicher belegte"
            }
            Note::CompiledAndEager => "kompiliert braucht er {0}, ohne compile {1}",
            Note::UnrelatedWarning => "eine Warnung, die mit dem Speicher nichts zu tun hat",
        }
    }

    #[expect(clippy::too_many_lines, reason = "a table: one arm for each text")]
    fn remedy(&self, remedy: Remedy) -> &'static str {
        match remedy {
            Remedy::SeeNvidia => {
                "nvidia-smi zeigt, welche Prozesse die Karte belegen; beenden Sie sie, oder \
                 wählen Sie mit CUDA_VISIBLE_DEVICES eine andere GPU"
            }
            Remedy::SeeRocm => {
                "rocm-smi --showpids --showmeminfo vram zeigt, wer die Karte belegt; beenden Sie \
                 diese Prozesse, oder wählen Sie mit HIP_VISIBLE_DEVICES eine andere GPU"
            }
            Remedy::SeeDevices => {
                "fitgpt devices listet die GPUs dieses Rechners und was auf jeder frei ist"
            }
            Remedy::Expandable => {
                "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True lässt PyTorch freie Stücke \
                 zusammenlegen"
            }
            Remedy::ExpandableRocm => {
                "PYTORCH_HIP_ALLOC_CONF=expandable_segments:True lässt PyTorch freie Stücke \
                 zusammenlegen, sofern sein ROCm-Build es kann"
            }
            Remedy::TrainerBatch => {
                "ein kleineres per_device_train_batch_size mit mehr gradient_accumulation_steps: \
                 gleich viele Token je Schritt"
            }
            Remedy::TrainerCheckpointing => {
                "gradient_checkpointing=True: Aktivierungen werden neu berechnet, für etwa ein \
                 Drittel mehr Rechenzeit; dazu use_cache=False"
            }
            Remedy::TrainerPrecision => {
                "bf16=True (fp16=True auf Karten vor Ampere): Aktivierungen brauchen die Hälfte"
            }
            Remedy::TrainerOptimizer => {
                "optim=\"adafactor\" oder \"adamw_bnb_8bit\": Momente mit höchstens 2 statt 8 \
                 Byte je Parameter"
            }
            Remedy::TrainerEval => {
                "per_device_eval_batch_size kleiner, eval_accumulation_steps setzen, und \
                 preprocess_logits_for_metrics: sonst hält der Trainer die Logits der ganzen \
                 Auswertung auf der GPU"
            }
            Remedy::NanochatBatch => {
                "device_batch_size halbieren (--device_batch_size=16, 8, …): der gesamte Batch \
                 bleibt, nanochat akkumuliert mehr"
            }
            Remedy::LlmcBatch => {
                "ein kleinerer Batch: -b bei train_gpt2cu, --batch_size bei train_gpt2.py; -r 1 \
                 oder -r 2 berechnet Aktivierungen neu"
            }
            Remedy::LitgptBatch => {
                "ein kleineres micro_batch_size (--train.micro_batch_size): der globale Batch \
                 bleibt"
            }
            Remedy::LitgptPrecision => {
                "ein 7B-Modell braucht für die Gewichte 26 GiB in f32, 13 GiB in 16 Bit und mit \
                 Gradienten und Adam in f32 105 GiB: auf einer Karte mit weniger passen nur \
                 Adapter oder LoRA mit bf16-true; mehrere können es sich teilen (FSDP)"
            }
            Remedy::TensorflowBatch => {
                "ein kleinerer Batch: mit ihm beginnt die Form in der Meldung"
            }
            Remedy::TensorflowGrowth => {
                "set_memory_growth hindert TensorFlow daran, die ganze Karte beim Start zu \
                 belegen; das Modell braucht nicht weniger"
            }
            Remedy::Batch => {
                "ein kleinerer Batch je GPU, mit Gradient Accumulation für denselben Schritt: \
                 Aktivierungen und Logits schrumpfen mit"
            }
            Remedy::Checkpointing => {
                "Activation Checkpointing, wenn Aktivierungen die Karte füllen: etwa ein Drittel \
                 mehr Rechenzeit"
            }
            Remedy::Precision => {
                "16-Bit-Autocast, wenn der Lauf in f32 rechnet: Aktivierungen brauchen die Hälfte"
            }
            Remedy::Attention => {
                "Attention ohne Matrix Positionen x Positionen (scaled_dot_product_attention, \
                 Flash Attention), oder kürzere Sequenzen"
            }
            Remedy::SmallerState => {
                "der Batch hilft nicht: weniger Parameter, 16-Bit-Gewichte mit 8-Bit-Optimierer, \
                 LoRA oder Aufteilen auf GPUs (FSDP, ZeRO-3)"
            }
            Remedy::Foreach => {
                "AdamW(foreach=False) oder fused=True: der Multi-Tensor-Pfad legt temporäre \
                 Kopien in der Größe aller Parameter an"
            }
            Remedy::LoadOnHost => {
                "torch.load(path, map_location=\"cpu\"), und Checkpoint samt state_dict nach \
                 load_state_dict löschen"
            }
            Remedy::ChunkedLoss => {
                "ein Verlust, der in Token-Blöcken berechnet wird, sodass die Logits nie alle \
                 zugleich existieren"
            }
            Remedy::HostMemory => {
                "die Daten stückweise lesen oder tokenisieren statt ganz zu laden, weniger \
                 DataLoader-Worker, mehr RAM oder Swap"
            }
            Remedy::HostKilled => {
                "dmesg | grep -i kill zeigt, was der Kernel beendet hat und wie viel es belegte"
            }
            Remedy::PageFile => {
                "eine größere Auslagerungsdatei: Windows verweigert Speicher, wenn RAM und \
                 Auslagerungsdatei zusammen erschöpft sind (System, Erweitert, Leistung, \
                 Virtueller Arbeitsspeicher)"
            }
            Remedy::BatchIsOne => {
                "der Batch ist schon eine einzige Sequenz: kürzere Sequenzen, ein kleineres \
                 Modell oder weniger trainierte Parameter (LoRA)"
            }
            Remedy::Inference => {
                "Gewichte in 16 Bit oder auf 8 oder 4 Bit quantisiert; ein kleinerer Batch, ein \
                 kürzerer Kontext oder ein Teil der Schichten auf der CPU"
            }
            Remedy::JaxPreallocates => {
                "JAX belegt beim Start 75 % der Karte: mit XLA_PYTHON_CLIENT_PREALLOCATE=false \
                 sieht man, was es wirklich braucht; das Modell braucht nicht weniger"
            }
            Remedy::Watermark => {
                "PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 hebt die Grenze auf, senkt aber nicht den \
                 Bedarf: der Mac lagert dann vielleicht aus oder friert ein; ein kleinerer Batch \
                 senkt ihn"
            }
            Remedy::WindowsShared => {
                "Windows leiht Arbeitsspeicher, wenn die Karte voll ist: langsam statt ein \
                 Fehler; „CUDA - Sysmem Fallback Policy“ in der NVIDIA-Systemsteuerung schaltet \
                 es ab"
            }
            Remedy::Wsl => {
                "unter WSL2 teilen sich Windows-Desktop und -Programme die Karte: nvidia-smi in \
                 Windows zeigt sie, sie zu schließen gibt Speicher frei"
            }
            Remedy::Unsupported => {
                "fitGPT braucht eine NVIDIA-GPU der Ampere-Generation oder neuer (sm_80); diese \
                 Karte ist älter"
            }
            Remedy::UseWsl => {
                "fitGPT läuft unter Linux: auf Windows in WSL2 (wsl --install), das dieselbe GPU \
                 sieht"
            }
        }
    }

    fn fix(&self, fix: FixKind) -> &'static str {
        match fix {
            FixKind::SmallerBatch => {
                "kleinere Mikrobatches, dafür mehr: gleich viele Token je Schritt"
            }
            FixKind::Compile => "kompilierter Code hält weniger Kopien der Logits",
            FixKind::ShorterContext => {
                "kürzere Sequenzen; die Verluste sind mit denen längerer nicht vergleichbar"
            }
            FixKind::SmallerModel(_) => "ein kleineres Modell",
        }
    }

    fn change(&self, change: Change) -> &'static str {
        match change {
            Change::Evaluation => "Auswertung mit eigener Batchgröße, ohne aufgehobene Logits",
            Change::Checkpointing => "Blöcke werden im Rückwärtslauf neu berechnet",
            Change::Loading => "der Checkpoint wird in den Arbeitsspeicher geladen",
        }
    }

    fn limit(&self, change: Change) -> &'static str {
        match change {
            Change::Evaluation => {
                "Eine eigene Batchgröße der Auswertung kompiliert einen zweiten Graphen, und mit \
                 weniger Sequenzen schwankt ihr Verlust stärker: eval_iters erhöhen."
            }
            Change::Checkpointing => {
                "Neuberechnen kostet etwa ein Drittel mehr Rechenzeit; Logits und \
                 Optimierer-Zustand bleiben."
            }
            Change::Loading => {
                "Das Laden dauert etwas länger und braucht so viel Arbeitsspeicher, wie der \
                 Checkpoint groß ist."
            }
        }
    }

    fn what(&self, what: What) -> &'static str {
        match what {
            What::Parameters => "Parameter",
            What::Copies => "16-Bit-Kopien der Gewichte (autocast)",
            What::Gradients => "Gradienten",
            What::Adam => "Adams Momente",
            What::Activations => "Aktivierungen für den Rückwärtslauf",
            What::Logits => "Logits und was der Verlust daraus berechnet",
            What::StaleLogits => "Logits des vorigen Batches, noch referenziert",
            What::Workspace => "cuBLAS-Workspace",
            What::Tokens => "der Batch",
            What::Unexplained => "in Tensoren, die unsere Schätzung nicht erklärt",
            What::Tensors => "PyTorchs Tensoren",
            What::Fragments => "von PyTorch reserviert, aber unbenutzt",
            What::Context => "dieser Prozess neben PyTorch: GPU-Kontext, Bibliotheken",
            What::Process => "dieser Prozess",
            What::Outside => {
                "außerhalb von PyTorch: Kontext dieses Prozesses (0,3 bis 0,8 GiB) und andere \
                 Programme"
            }
            What::Unsaid => "belegt von diesem oder anderen Prozessen: die Meldung sagt es nicht",
            What::Others => "andere Programme",
            What::Free => "frei",
        }
    }

    fn tensor(&self, tensor: TensorKind) -> &'static str {
        match tensor {
            TensorKind::Parameter => "das Gewicht {name}",
            TensorKind::Copy => "die 16-Bit-Kopie von {name}",
            TensorKind::Gradient => "der Gradient von {name}",
            TensorKind::FirstMoment => "Adams exp_avg von {name}",
            TensorKind::SecondMoment => "Adams exp_avg_sq von {name}",
            TensorKind::Moment => "eines von Adams Momenten",
            TensorKind::WeightOrGradient => "ein Gewicht oder sein Gradient",
            TensorKind::Tokens => "der Batch der Token-IDs",
            TensorKind::Workspace => "der cuBLAS-Workspace",
            TensorKind::Logits => "die Logits",
            TensorKind::LogitsInF32 => "die Logits in f32",
            TensorKind::EvalLogits => "die Logits eines Auswertungs-Batches",
            TensorKind::NextEvalLogits => "die Logits des nächsten Auswertungs-Batches",
            TensorKind::LogitsCopy => "die Kopie der Logits in der Cross-Entropy",
            TensorKind::LogSoftmax => "der Log-Softmax der Logits",
            TensorKind::LogSoftmaxGradient => "der Gradient des Log-Softmax",
            TensorKind::LogitsGradient => "der Gradient der Logits",
            TensorKind::ZeroGradient => "ein Null-Gradient der Logits",
            TensorKind::AttentionScores => "Attention-Scores",
            TensorKind::Buffer => "ein Puffer des kompilierten Codes",
            TensorKind::Tensor => "ein Tensor",
            TensorKind::Embeddings => "die Embeddings",
            TensorKind::PositionEmbeddings => "die Positions-Embeddings",
            TensorKind::TokenEmbeddings => "die Token-Embeddings",
            TensorKind::DropoutMask => "die Dropout-Maske von {name}",
            TensorKind::Input => "die Eingabe von Block {name}",
            TensorKind::Residual => "der Residualstrom {name}",
            TensorKind::Norm => "die Ausgabe einer Layer-Norm {name}",
            TensorKind::Qkv => "q, k und v {name}",
            TensorKind::Attention => "die Ausgabe der Attention {name}",
            TensorKind::BeforeGelu => "das MLP vor GELU {name}",
            TensorKind::AfterGelu => "das MLP nach GELU {name}",
            TensorKind::Statistics => "Statistiken von Normen und Attention {name}",
            TensorKind::ResidualGradient => "der Gradient des Residualstroms",
            TensorKind::MlpGradient => "der Gradient des MLP",
        }
    }

    fn confidence(&self, confidence: Confidence) -> &'static str {
        match confidence {
            Confidence::Possible => "möglich",
            Confidence::Likely => "wahrscheinlich",
            Confidence::Certain => "sicher",
        }
    }

    fn phase(&self, phase: LogPhase) -> &'static str {
        match phase {
            LogPhase::FirstEval => "in der ersten Auswertung (vor dem ersten Trainingsschritt)",
            LogPhase::Eval => "in einer Auswertung",
            LogPhase::Forward => "im Vorwärtslauf des Trainings",
            LogPhase::Backward => "im Rückwärtslauf",
            LogPhase::Optimizer => "im Schritt des Optimierers",
            LogPhase::Resume => "beim Laden eines Checkpoints",
            LogPhase::Load => "beim Laden des Modells auf die GPU",
            LogPhase::Sample => "beim Erzeugen von Text",
            LogPhase::Unknown => "zu einem unbekannten Zeitpunkt",
        }
    }

    fn phase_name(&self, phase: Phase) -> &'static str {
        match phase {
            Phase::FirstEval => "erste Auswertung",
            Phase::Forward => "Vorwärtslauf",
            Phase::Backward => "Rückwärtslauf",
            Phase::Optimizer => "Optimierer",
            Phase::Eval => "spätere Auswertungen",
        }
    }

    fn program(&self, program: Program) -> &'static str {
        match program {
            Program::NanoGpt => "nanoGPT",
            Program::NanoGptFork => "ein Fork von nanoGPT",
            Program::Nanochat => "nanochat",
            Program::LlmC => "llm.c",
            Program::LitGpt => "LitGPT",
            Program::HfTransformers => "Hugging Face transformers",
            Program::TensorFlow => "TensorFlow",
            Program::Jax => "JAX",
            Program::Fitgpt => "fitGPT",
            Program::OtherTorch => "ein PyTorch-Programm",
            Program::Unknown => "ein unbekanntes Programm",
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
                "das Modell: die ausgegebenen Einstellungen ergeben eine andere Parameterzahl als \
                 das Protokoll; die Konfigurationsdatei angeben"
            }
            Unknown::Program => {
                "was dieses Programm wann belegt: nur nanoGPTs Speicher ist hier modelliert"
            }
        }
    }

    fn refusal(&self, refusal: Refusal) -> &'static str {
        match refusal {
            Refusal::NoInput => {
                "geben Sie ein Protokoll an (eine Datei, oder - für die Standardeingabe), eine \
                 Konfiguration oder beides; siehe fitgpt doctor --help"
            }
            Refusal::TwoForms => {
                "--json und --markdown sind zwei Formen des Berichts: geben Sie eine davon an"
            }
            Refusal::SecondLog => "geben Sie ein Protokoll auf einmal an; '{name}' ist ein zweites",
            Refusal::BadSize => {
                "{flag} '{name}': schreiben Sie eine Größe wie '11.69GiB' oder '8GB'"
            }
        }
    }

    fn labels(&self) -> &'static Labels {
        &LABELS
    }
}
