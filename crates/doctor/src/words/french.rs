//! The texts in French.

use crate::account::What;
use crate::advice::{Advice, Note, Verdict};
use crate::diagnosis::{Cause, Unknown};
use crate::fixes::FixKind;
use crate::log::LogPhase;
use crate::tensor::Confidence;
use crate::words::{Catalogue, Labels};

/// French.
pub struct French;

impl Catalogue for French {
    #[expect(clippy::too_many_lines, reason = "a table: one arm for each note")]
    fn note(&self, note: Note) -> &'static str {
        match note {
            Note::HalfBatch => {
                "la moitié du lot, deux fois plus de micro-lots : autant de tokens par mise à jour"
            }
            Note::BatchIsOne => "c'est déjà une seule séquence",
            Note::NoSuchKeyAndTrainingDies => {
                "nanoGPT ne connaît pas cette clé (dans un fichier elle est ignorée), et \
                 l'entraînement lui-même ne tiendrait pas"
            }
            Note::NoSuchKeyButEvalWouldFit => {
                "nanoGPT ne connaît pas cette clé (dans un fichier elle est ignorée) ; avec \
                 elle l'évaluation tiendrait, l'entraînement tient"
            }
            Note::OneBatchAtATime => {
                "les lots d'une évaluation viennent l'un après l'autre ; moins de lots ne \
                 demandent pas moins de mémoire"
            }
            Note::OnlyMovesTheMoment => "les évaluations deviennent plus rares, pas plus petites",
            Note::HalfContext => {
                "la moitié du contexte ; les pertes ne se comparent pas à celles de contextes \
                 plus longs"
            }
            Note::Narrower => "une tête de moins",
            Note::NoNarrower => "il n'y a pas de modèle plus étroit avec cette taille de tête",
            Note::NothingToCheckpointInEval => {
                "l'évaluation se fait sans gradients et ne garde rien qu'on puisse recalculer"
            }
            Note::CheckpointLowersActivations => {
                "nanoGPT ne connaît pas cette clé ; ajoutée, elle réduit les activations, \
                 jamais les logits ni l'état de l'optimiseur"
            }
            Note::EagerTakesMore => "sans compile il y a plus de copies des logits",
            Note::AlreadyEager => "il tourne déjà sans compile",
            Note::GraphsTakeMore => "les graphes CUDA ont leurs propres réserves : plus, pas moins",
            Note::PiecesAreEnough => "autant est réservé et inutilisé, en morceaux",
            Note::NotFragmentation => {
                "la mémoire est nécessaire ; la fragmentation n'est pas en cause"
            }
            Note::AlreadyOn => "c'est déjà activé",
            Note::CacheIsEmptied => "PyTorch vide lui-même son cache avant d'abandonner",
            Note::TrainingDiesInstead => {
                "l'évaluation quitterait le GPU, et le premier pas d'entraînement mourrait à sa \
                 place"
            }
            Note::EvalLeaves => "l'évaluation quitte le GPU et dure bien plus longtemps",
            Note::OthersHold => "d'autres programmes tiennent autant de cette carte",
            Note::NoOthers => "aucun autre programme n'est visible sur cette carte",
            Note::SameBytes => "les deux ont deux octets",
            Note::EachHoldsAll => {
                "chaque GPU tient tout le modèle, l'état de l'optimiseur et ses propres logits"
            }
            Note::DataIsNotThere => {
                "les données de nanoGPT sont un fichier sur disque, pas dans la mémoire du GPU"
            }
            Note::SameTensors => "les tenseurs sont les mêmes dans toutes les versions",
            Note::ManyTimesSlower => "cela tournerait, des centaines de fois plus lentement",
            Note::FitsAlready => "cela tient tel quel",
            Note::StateAlone => "les poids, les gradients et l'état d'Adam seuls ne tiennent pas",
            Note::HalfTheBytes => "activations et logits en 16 bits",
            Note::FlashAttention => "flash attention ne fait pas de positions x positions",
        }
    }

    fn advice(&self, advice: Advice) -> &'static str {
        match advice {
            Advice::SmallerBatch => "batch_size plus petit, plus de gradient_accumulation_steps",
            Advice::EvalBatchSize => "eval_batch_size",
            Advice::EvalBlockSize => "eval_block_size",
            Advice::EvalIters => "moins d'eval_iters",
            Advice::EvalInterval => "eval_interval plus grand",
            Advice::BlockSize => "block_size plus petit",
            Advice::SmallerModel => "n_embd plus petit",
            Advice::GradCheckpoint => "recalcul des activations (gradient checkpointing)",
            Advice::CompileOff => "compile=False",
            Advice::ReduceOverhead => "mode='reduce-overhead'",
            Advice::ExpandableSegments => "expandable_segments:True",
            Advice::EmptyCache => "torch.cuda.empty_cache()",
            Advice::EvalOnCpu => "évaluer sur le CPU",
            Advice::OtherPrograms => "fermer d'autres programmes sur le GPU",
            Advice::Float16 => "float16 au lieu de bfloat16",
            Advice::MoreGpus => "plus de GPU (DDP)",
            Advice::Preloading => "charger les données autrement",
            Advice::NewerTorch => "un PyTorch ou CUDA plus récent",
            Advice::DeviceCpu => "device='cpu'",
        }
    }

    fn confidence(&self, confidence: Confidence) -> &'static str {
        match confidence {
            Confidence::Possible => "possible",
            Confidence::Likely => "probable",
            Confidence::Certain => "certain",
        }
    }

    fn what(&self, what: What) -> &'static str {
        match what {
            What::Parameters => "paramètres",
            What::Copies => "copies des poids en 16 bits (autocast)",
            What::Gradients => "gradients",
            What::Adam => "moments d'Adam",
            What::Activations => "activations gardées pour la rétropropagation",
            What::Logits => "logits et ce que la perte en fait",
            What::StaleLogits => "logits du lot précédent, encore référencés",
            What::Workspace => "espace de travail de cuBLAS",
            What::Tokens => "le lot",
            What::Unexplained => "dans des tenseurs que ce modèle n'explique pas",
            What::Fragments => "réservé par PyTorch, dans aucun tenseur",
            What::Context => "contexte CUDA, noyaux, bibliothèques",
            What::Others => "autres programmes",
            What::Free => "libre",
        }
    }

    fn cause(&self, cause: Cause) -> &'static str {
        match cause {
            Cause::Logits => {
                "Ce sont les logits : un nombre par token du lot et par ligne du vocabulaire, \
                 plusieurs fois (l'entropie croisée les copie et fait un log-softmax en f32)."
            }
            Cause::StaleLogits => {
                "Les logits du lot d'évaluation précédent sont encore référencés par la \
                 variable de la boucle pendant que ceux du suivant sont faits : deux tels \
                 tampons à la fois. Aucun graphe n'est gardé (no_grad)."
            }
            Cause::Activations => "Ce que la passe avant garde pour la passe arrière ne tient pas.",
            Cause::AttentionScores => {
                "Les scores d'attention, positions fois positions, ne tiennent pas : flash \
                 attention n'est pas utilisée."
            }
            Cause::OptimizerState => {
                "Adam crée ses deux moments à son premier pas : huit octets par paramètre, en \
                 plus des poids et des gradients."
            }
            Cause::Weights => {
                "Le modèle lui-même ne tient pas : poids, gradients ou ce qui est chargé à côté."
            }
            Cause::Fragmentation => "Assez de mémoire est réservée, mais pas d'un seul tenant.",
            Cause::OtherProcess => "D'autres programmes tiennent ce qui manque.",
            Cause::Unknown => "Le journal ne dit pas quel tenseur c'était.",
        }
    }

    fn phase(&self, phase: LogPhase) -> &'static str {
        match phase {
            LogPhase::FirstEval => "à la première évaluation, avant tout pas d'entraînement",
            LogPhase::Eval => "dans une évaluation",
            LogPhase::Forward => "dans la passe avant de l'entraînement",
            LogPhase::Backward => "dans la passe arrière",
            LogPhase::Optimizer => "au pas de l'optimiseur",
            LogPhase::Load => "pendant le chargement du modèle sur le GPU",
            LogPhase::Resume => "au chargement d'un point de reprise",
            LogPhase::Sample => "pendant la génération de texte",
            LogPhase::Unknown => "à un moment que le journal ne dit pas",
        }
    }

    fn verdict(&self, verdict: Verdict) -> &'static str {
        match verdict {
            Verdict::Helps => "aide",
            Verdict::CostsOnlyTime => "ne coûte que du temps",
            Verdict::DoesNothing => "ne change rien ici",
            Verdict::Wrong => "faux",
        }
    }

    fn unknown(&self, unknown: Unknown) -> &'static str {
        match unknown {
            Unknown::Requested => "combien était demandé : relancez et gardez tout le message",
            Unknown::Budget => {
                "combien de mémoire a la carte : nvidia-smi \
                 --query-gpu=name,memory.total,memory.used --format=csv"
            }
            Unknown::Settings => {
                "les réglages : donnez le fichier de configuration, p. ex. fitgpt doctor \
                 log.txt config/mine.py"
            }
            Unknown::Phase => {
                "ce que faisait le programme : gardez le traceback au-dessus du message"
            }
            Unknown::Model => {
                "le modèle : les réglages affichés font un autre nombre de paramètres ; donnez \
                 le fichier de configuration"
            }
        }
    }

    fn fix(&self, fix: FixKind) -> &'static str {
        match fix {
            FixKind::SmallerBatch => {
                "des micro-lots plus petits et plus nombreux : autant de tokens par mise à jour"
            }
            FixKind::Compile => "le code compilé garde moins de copies des logits",
            FixKind::ShorterContext => {
                "des séquences plus courtes ; les pertes ne se comparent pas"
            }
            FixKind::SmallerModel(_) => "un modèle plus étroit",
        }
    }

    fn labels(&self) -> &'static Labels {
        const LABELS: Labels = Labels {
            did_not_fit: "{bytes} n'ont pas tenu {phase}.",
            which: "C'était {name} {shape} en {dtype} ({confidence}).",
            same_size: "la même taille : {others}",
            memory: "où était la mémoire",
            peaks: "les tenseurs de nanoGPT dans PyTorch, par phase (±7 %) → avec contexte",
            of_budget: "sur {budget}",
            advice: "les conseils habituels, pour ce cas",
            fixes: "ce qu'il faut changer dans nanoGPT",
            nothing: "aucun réglage proche de nanoGPT ne tient",
            unknown: "ce que le journal ne dit pas",
            nanogpt: "nanoGPT, changé pour tenir",
            fitgpt: "fitGPT, tel que tapé",
            fitgpt_changed: "fitGPT, changé pour tenir",
            unrelated: "pas la cause : {what}",
            foreign: "nanoGPT ne connaît pas {keys} et l'a ignoré",
            fits: "D'après ce modèle de la mémoire de PyTorch, cela tient.",
            dies: "D'après ce modèle de la mémoire de PyTorch, cela meurt {phase}.",
            no_log: "Aucun message de mémoire insuffisante n'a été trouvé.",
            problem: "Problème",
            root: "Cause",
            config: "Configuration conseillée",
            expected: "Mémoire attendue",
            nonsense: "Ces nombres du message ne peuvent être vrais (les pilotes WSL et \
                       Windows en impriment) : {numbers}",
        };
        &LABELS
    }
}
