//! The texts in French.

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

/// French.
pub struct French;

impl Catalogue for French {
    fn numbers(&self) -> Numbers {
        Numbers { decimal: ',', group: '\u{202f}' }
    }

    #[expect(clippy::too_many_lines, reason = "a table: one arm for each text")]
    fn cause(&self, cause: Cause) -> &'static str {
        match cause {
            Cause::Logits => {
                "Les logits sont trop volumineux : un nombre par token du lot et par ligne du \
                 vocabulaire, en plusieurs exemplaires (l'entropie croisée les copie et calcule \
                 un log-softmax en f32)."
            }
            Cause::StaleLogits => {
                "La variable de la boucle référence encore les logits du lot d'évaluation \
                 précédent pendant le calcul des suivants : deux tampons de cette taille à la \
                 fois. Aucun graphe n'est gardé (l'évaluation tourne sous no_grad)."
            }
            Cause::Activations => {
                "Ce que la propagation avant garde pour la rétropropagation ne tient pas en \
                 mémoire."
            }
            Cause::AttentionScores => {
                "Les scores d'attention, lot x têtes x positions x positions, ne tiennent pas en \
                 mémoire : flash attention n'est pas utilisée."
            }
            Cause::OptimizerState => {
                "Adam alloue ses deux moments à sa première mise à jour : huit octets par \
                 paramètre, en plus des poids et des gradients."
            }
            Cause::OptimizerStep => {
                "La mémoire a manqué pendant la mise à jour de l'optimiseur. Les moments d'Adam \
                 prennent huit octets par paramètre dès la première mise à jour, et sa forme \
                 multi-tenseurs (foreach) crée des copies temporaires de la taille des paramètres."
            }
            Cause::Weights => {
                "Le modèle lui-même ne tient pas en mémoire : poids, gradients ou ce qui est \
                 chargé à côté."
            }
            Cause::State => {
                "Les poids, les gradients et les moments d'Adam remplissent la carte, quel que \
                 soit le lot."
            }
            Cause::LoadedCheckpoint => {
                "Reprendre demande plus de mémoire que démarrer : torch.load place le point de \
                 reprise, poids et moments d'Adam (12 octets par paramètre), sur le GPU, et tant \
                 qu'une variable le référence, il y reste à côté du modèle (le train.py de \
                 nanoGPT garde de telles références). Une exécution qui tient à partir de zéro \
                 peut donc ne pas tenir à la reprise."
            }
            Cause::Request => {
                "Une grande demande n'a pas pu être satisfaite ; sa taille ne dit pas pour quel \
                 tenseur."
            }
            Cause::Full => {
                "C'est ce processus qui remplit la mémoire du GPU : poids, gradients, état de \
                 l'optimiseur et activations réunis. La demande qui échoue n'est que la goutte \
                 d'eau de trop."
            }
            Cause::FullOfInference => {
                "C'est ce processus qui remplit la mémoire du GPU. Sans entraînement, il s'agit \
                 des poids, du cache KV et des activations du lot. La demande qui échoue n'est \
                 que la goutte d'eau de trop."
            }
            Cause::Unsaid => {
                "La demande est petite : la mémoire était donc déjà presque pleine ; le journal \
                 ne dit pas qui l'occupait."
            }
            Cause::Library => {
                "cuBLAS ou cuDNN n'a pas pu allouer de mémoire. En général la carte est pleine à \
                 ce moment ; un noyau qui a échoué avant (un indice hors limites) donne la même \
                 erreur : CUDA_LAUNCH_BLOCKING=1 permet de trancher."
            }
            Cause::FullBefore => {
                "L'échec survient dès la première allocation, avant que le programme n'occupe \
                 quoi que ce soit : la carte était déjà pleine, ou un autre processus l'occupe."
            }
            Cause::Fragmentation => {
                "Assez de mémoire est réservée, mais pas d'un seul tenant : fragmentation."
            }
            Cause::OtherProcess => "D'autres programmes occupent ce qui manque.",
            Cause::HostMemory => {
                "Il s'agit de la mémoire vive (RAM) de la machine, pas de celle du GPU : les \
                 réglages du GPU n'y changent rien."
            }
            Cause::Killed => {
                "Le plus souvent c'est le noyau, quand la mémoire vive (RAM) ou la limite du \
                 conteneur est épuisée ; les réglages du GPU n'y changent rien."
            }
            Cause::Contradiction => {
                "Les chiffres du message se contredisent et ne désignent donc pas de cause. \
                 Possibles : une limite pour ce processus, un autre processus ou rang sur le même \
                 GPU qui occupait la mémoire un instant, ou un chiffre périmé."
            }
            Cause::Unknown => "Le journal ne dit pas ce qui était demandé, ni pour quoi.",
        }
    }

    #[expect(clippy::too_many_lines, reason = "a table: one arm for each text")]
    fn reason(&self, reason: Reason) -> &'static str {
        match reason {
            Reason::LastStraw => {
                "{0}, c'est {1} des {2} que l'exécution occupe : la goutte d'eau de trop, pas la \
                 cause."
            }
            Reason::Block => {
                "{0} est un bloc de l'allocateur de PyTorch : il demande 2 MiB pour les tenseurs \
                 jusqu'à 1 MiB et 20 MiB pour ceux jusqu'à 10 MiB. Cette taille ne désigne aucun \
                 tenseur."
            }
            Reason::StateExceeds => {
                "{0} paramètres : poids, gradients et les deux moments d'Adam prennent 16 octets \
                 chacun en f32, soit {1}. La carte a {2}."
            }
            Reason::StateLeavesNothing => {
                "{0} paramètres : poids, gradients et les deux moments d'Adam prennent 16 octets \
                 chacun en f32, soit {1}. Avec le contexte du GPU, il ne reste rien pour les \
                 activations sur les {2} disponibles."
            }
            Reason::StateOf => {
                "{0} paramètres : poids, gradients et les deux moments d'Adam prennent 16 octets \
                 chacun en f32, soit {1}."
            }
            Reason::WeightsOf => "{0} paramètres : les poids prennent {1} en f32, {2} en 16 bits.",
            Reason::Beyond => {
                "Le reste, {0}, ce sont les activations, les logits et des tenseurs temporaires : \
                 ils diminuent avec le lot."
            }
            Reason::OthersHold => {
                "D'autres occupent {0} des {1} de la carte ; sans eux cette demande aurait tenu."
            }
            Reason::OthersHoldMost => "D'autres occupent {0} des {1} de la carte.",
            Reason::OthersSmall => "D'autres occupent {0} ; ce n'est pas déterminant ici.",
            Reason::Pieces => {
                "{0} sont réservés mais inutilisés, {1} étaient demandés, {2} sont libres : d'un \
                 seul tenant, cela aurait tenu."
            }
            Reason::PiecesToo => {
                "De plus, {0} sont réservés mais inutilisés, plus que les {1} demandés : la \
                 fragmentation s'y ajoute."
            }
            Reason::FreeExceeds => {
                "Le message indique {0} libres, plus que les {1} demandés : la mémoire a manqué \
                 pour une autre raison."
            }
            Reason::HoldsNothing => {
                "Le message dit que ce processus occupe 0 octet, ce qui est impossible avec {0} \
                 dans PyTorch ; les autres chiffres sont utilisés."
            }
            Reason::ReservedBelow => {
                "{0} réservés, c'est moins que {1} alloués : l'un des deux est faux."
            }
            Reason::HeldExceeds => {
                "{0} seraient occupés sur une carte de {1} : les chiffres ne concordent pas."
            }
            Reason::Impossible => {
                "{0} est impossible (un nombre négatif affiché sans signe) : écarté."
            }
            Reason::SharedMemory => {
                "{0} sont occupés sur une carte de {1} : Windows prête de la mémoire vive au GPU \
                 ; c'est donc réel, et lent."
            }
            Reason::ModelFits => {
                "Selon notre estimation cette exécution demande {0} (±7 %) sur {1} et aurait dû \
                 tenir : autre chose occupait la mémoire à ce moment, ou un réglage diffère de ce \
                 qui est connu ici."
            }
            Reason::ModelExceeds => {
                "Selon notre estimation l'exécution entière demande {0} (±7 %), et {1} sont \
                 libres : {2} de trop."
            }
            Reason::ScoresAdd => {
                "Chaque couche garde ses propres scores d'attention pour la rétropropagation : \
                 {0} pour {1} couches."
            }
            Reason::PredictionsKept => {
                "Le Trainer rassemble sur le GPU les logits de tous les lots d'évaluation : ils \
                 s'accumulent à chaque lot."
            }
            Reason::ExceedsCard => {
                "{0}, c'est plus que toute la carte ({1}) : ni un autre programme ni la \
                 fragmentation n'y sont pour rien."
            }
            Reason::CardDiffers => {
                "Le texte parle de {0}, mais le GPU du message a {1} : c'est le message qui \
                 compte."
            }
            Reason::Resident => "Le processus occupait {0} de mémoire vive.",
        }
    }

    fn claim(&self, claim: Claim) -> &'static str {
        match claim {
            Claim::KvCacheInTraining => "un cache KV occupe de la mémoire",
            Claim::GraphKeptInEval => "l'évaluation garde le graphe de ses lots",
            Claim::AdamAtFirstEval => "l'état d'Adam remplit la mémoire dès la première évaluation",
            Claim::EvalIsCulprit => "c'est l'évaluation qui est en cause",
            Claim::EvalBatchSizeAlone => "un eval_batch_size plus petit suffit",
            Claim::EvalBatchSizeKeyExists => "eval_batch_size",
            Claim::EvalBlockSize => "eval_block_size",
            Claim::EvalIters => "moins d'eval_iters",
            Claim::EvalInterval => "eval_interval plus grand",
            Claim::SmallerBatch { .. } => {
                "batch_size plus petit, plus de gradient_accumulation_steps"
            }
            Claim::ShorterContext { .. } => "block_size plus petit",
            Claim::SmallerModel { .. } => "un modèle plus petit (n_embd)",
            Claim::Accumulation { .. } => "plus de gradient_accumulation_steps",
            Claim::Checkpointing => "recalcul des activations (gradient checkpointing)",
            Claim::CheckpointingHalves { .. } => "le recalcul divise les activations par deux",
            Claim::EmptyCache => "torch.cuda.empty_cache()",
            Claim::ExpandableSegments => "expandable_segments:True",
            Claim::MaxSplitSize => "max_split_size_mb",
            Claim::CompileOff => "compile=False",
            Claim::CompileMode => "mode='reduce-overhead'",
            Claim::SuppressErrors => "suppress_errors=True",
            Claim::KillOthers => "fermer les autres programmes sur le GPU",
            Claim::CpuOffload => "évaluer sur le CPU",
            Claim::CpuFallback => "device='cpu'",
            Claim::LowerPrecision => "précision de 16 bits",
            Claim::SmallerOptimizer => "un optimiseur à plus petit état (Adam 8 bits)",
            Claim::LoraOrQuantized => "LoRA ou un modèle quantifié",
            Claim::FlashAttention => "flash attention",
            Claim::DeleteLogits => "libérer les logits dès que la perte est connue",
            Claim::NoGrad => "évaluation sous no_grad",
            Claim::MoreGpus => "plus de GPU (DDP)",
            Claim::LargerGpu => "un GPU avec plus de mémoire",
            Claim::OtherVersion => "une autre version de PyTorch ou CUDA",
            Claim::GradScalerWarning => "l'avertissement de GradScaler",
            Claim::AutotuneWarning => "l'avertissement max_autotune_gemm",
            Claim::ClearCache => "gc.collect()",
            Claim::Restart => "redémarrer la machine ou la session",
            Claim::Fragmentation => "la mémoire est fragmentée",
            Claim::CompileCostsMemory => "torch.compile demande plus de mémoire",
            Claim::DataLoader => "charger les données autrement",
        }
    }

    fn verdict(&self, verdict: Verdict) -> &'static str {
        match verdict {
            Verdict::Suffices => "aide et suffit",
            Verdict::NotAlone { .. } => "aide, mais ne suffit pas",
            Verdict::Helps => "aide",
            Verdict::CostsOnlyTime => "ne coûte que du temps",
            Verdict::DoesNothing => "ne change rien ici",
            Verdict::Worse => "contre-productif",
            Verdict::Impossible => "impossible",
            Verdict::False => "inexact",
            Verdict::True => "exact",
        }
    }

    #[expect(clippy::too_many_lines, reason = "a table: one arm for each text")]
    fn note(&self, note: Note) -> &'static str {
        match note {
            Note::Batch => {
                "batch_size={0}, gradient_accumulation_steps={1} : autant de tokens par mise à \
                 jour"
            }
            Note::BatchIsOne => "il n'y a déjà qu'une seule séquence",
            Note::NoSuchKey => {
                "nanoGPT ne connaît pas cette clé : ignorée dans un fichier, refusée sur la ligne \
                 de commande ; fitGPT la connaît"
            }
            Note::NoSuchKeyAndTrainingDies => {
                "nanoGPT ne connaît pas cette clé (ignorée dans un fichier), et l'entraînement \
                 lui-même demande {0}"
            }
            Note::NoSuchKeyButEvalWouldFit => {
                "nanoGPT ne connaît pas cette clé (ignorée dans un fichier) ; avec une \
                 modification du code l'évaluation tiendrait, l'entraînement tient déjà"
            }
            Note::OneBatchAtATime => {
                "une évaluation calcule un lot après l'autre ; moins de lots ne demandent pas \
                 moins de mémoire"
            }
            Note::OnlyMovesTheMoment => "les évaluations deviennent plus rares, pas plus petites",
            Note::Context => {
                "{0} positions ; les pertes ne se comparent pas à celles de contextes plus longs"
            }
            Note::Width => "n_embd={0}",
            Note::OtherModel => "init_from='{0}'",
            Note::HeadsDoNotDivide => {
                "n_embd={0} n'est pas divisible par n_head={1} : nanoGPT s'arrête sur une \
                 assertion ; n_embd={2} convient"
            }
            Note::NoNarrower => "il n'y a pas de modèle plus étroit avec cette taille de tête",
            Note::NothingToCheckpointInEval => {
                "l'évaluation se fait sans gradients et ne garde rien qu'on puisse recalculer"
            }
            Note::CheckpointLowersActivations => {
                "nanoGPT n'a pas de clé pour cela ; ajouté au code, les activations baissent ici \
                 de {0}, l'entraînement passe de {1} à {2} ; logits et état de l'optimiseur \
                 restent"
            }
            Note::EagerTakesMore => "sans compile il y a plus de copies des logits",
            Note::AlreadyEager => "il tourne déjà sans compile",
            Note::GraphsTakeMore => {
                "les graphes CUDA ont leurs propres réserves : plus de mémoire, pas moins"
            }
            Note::PiecesAreEnough => "autant est réservé mais inutilisé, en fragments",
            Note::NotFragmentation => "la mémoire manque vraiment ; ce n'est pas la fragmentation",
            Note::AlreadyOn => "c'est déjà activé",
            Note::CacheIsEmptied => "PyTorch vide lui-même son cache avant d'abandonner",
            Note::TrainingDiesInstead => {
                "l'évaluation quitterait le GPU, et c'est le premier pas d'entraînement qui \
                 échouerait"
            }
            Note::EvalLeaves => "l'évaluation quitte le GPU et dure bien plus longtemps",
            Note::OthersHold => "d'autres programmes occupent autant de cette carte",
            Note::OthersLittle => "d'autres occupent {0} : trop peu pour compter",
            Note::DesktopHolds => {
                "un bureau graphique occupe 0,3 à 2 GiB d'une carte ; c'est la valeur supposée"
            }
            Note::NoOthers => "aucun autre programme n'est visible sur cette carte",
            Note::SameBytes => {
                "le calcul est déjà en 16 bits ; float16 et bfloat16 prennent deux octets chacun"
            }
            Note::EachHoldsAll => {
                "chaque GPU contient tout le modèle, l'état de l'optimiseur et ses propres logits"
            }
            Note::DataIsNotThere => {
                "les données de nanoGPT sont un fichier sur disque, pas dans la mémoire du GPU"
            }
            Note::SameTensors => "les tenseurs sont les mêmes dans toutes les versions",
            Note::ManyTimesSlower => "cela tournerait, mais des centaines de fois plus lentement",
            Note::StateAlone => "à eux seuls, poids, gradients et Adam ne tiennent pas",
            Note::HalfTheBytes => "activations et logits en 16 bits",
            Note::FlashAttention => "elle ne construit pas de matrice positions x positions",
            Note::AlreadyFlash => "nanoGPT l'utilise déjà avec PyTorch 2",
            Note::NoKvCache => {
                "il n'y a pas de cache KV, ni à l'entraînement ni à l'évaluation de nanoGPT : un \
                 lot est calculé en une passe et rien n'est gardé"
            }
            Note::NoGraph => {
                "estimate_loss() tourne sous torch.no_grad() : aucun graphe n'est gardé ; seuls \
                 restent les logits du dernier lot, {0}"
            }
            Note::AdamComesLater => {
                "les moments d'Adam ({0}) sont alloués à la première mise à jour, après la \
                 première évaluation"
            }
            Note::AdamIsLoaded => {
                "cette exécution reprend, donc les moments d'Adam ({0}) sont chargés dès le début"
            }
            Note::TrainingIsThePeak => {
                "le pic est l'entraînement : il demande {0}, l'évaluation {1}"
            }
            Note::EvalIsThePeak => "l'évaluation demande {0}, l'entraînement {1}",
            Note::TrainingStillNeeds => "l'entraînement demande toujours {0}, et {1} sont libres",
            Note::HidesCompilerErrors => "cela masque les erreurs du compilateur, pas celle-ci",
            Note::AccumulationAlone => {
                "cela conserve les tokens par mise à jour quand le lot rétrécit ; seul, le pic ne \
                 change pas"
            }
            Note::SmallMoments => {
                "des moments d'un octet chacun économisent {0} ; nanoGPT n'a pas de clé pour cela"
            }
            Note::OnlyForFineTuning => {
                "cela affine un modèle déjà entraîné ; on n'entraîne pas ainsi à partir de zéro"
            }
            Note::NeedsThatMuch => "l'exécution demande {0}",
            Note::AlreadyNoGrad => "l'évaluation de nanoGPT l'a déjà",
            Note::LogitsDropped => {
                "deux lignes à changer dans le code de nanoGPT ; la rétropropagation garde ses \
                 propres copies"
            }
            Note::NothingToCollect => {
                "PyTorch libère un tenseur dès que plus rien ne le référence ; il ne reste rien \
                 au ramasse-miettes"
            }
            Note::SameNeed => {
                "le besoin reste le même ensuite ; cela n'aide que si un processus mort occupait \
                 encore de la mémoire"
            }
            Note::CompiledAndEager => "compilé il faut {0}, sans compile {1}",
            Note::UnrelatedWarning => "un avertissement sans rapport avec la mémoire",
        }
    }

    #[expect(clippy::too_many_lines, reason = "a table: one arm for each text")]
    fn remedy(&self, remedy: Remedy) -> &'static str {
        match remedy {
            Remedy::SeeNvidia => {
                "nvidia-smi montre quels processus occupent la carte ; fermez-les, ou choisissez \
                 un autre GPU avec CUDA_VISIBLE_DEVICES"
            }
            Remedy::SeeRocm => {
                "rocm-smi --showpids --showmeminfo vram montre qui occupe la carte ; fermez ces \
                 processus, ou choisissez un autre GPU avec HIP_VISIBLE_DEVICES"
            }
            Remedy::SeeDevices => {
                "fitgpt devices liste les GPU de cette machine et ce qui y est libre"
            }
            Remedy::Expandable => {
                "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True permet à PyTorch de réunir ses \
                 fragments libres"
            }
            Remedy::ExpandableRocm => {
                "PYTORCH_HIP_ALLOC_CONF=expandable_segments:True permet à PyTorch de réunir ses \
                 fragments libres, si sa version ROCm le gère"
            }
            Remedy::TrainerBatch => {
                "un per_device_train_batch_size plus petit avec plus de \
                 gradient_accumulation_steps : autant de tokens par mise à jour"
            }
            Remedy::TrainerCheckpointing => {
                "gradient_checkpointing=True : les activations sont recalculées, pour un tiers de \
                 calcul en plus ; avec use_cache=False"
            }
            Remedy::TrainerPrecision => {
                "bf16=True (ou fp16=True avant Ampere) : les activations prennent moitié moins de \
                 mémoire"
            }
            Remedy::TrainerOptimizer => {
                "optim=\"adafactor\" ou \"adamw_bnb_8bit\" : des moments de 2 octets par \
                 paramètre au plus au lieu de 8"
            }
            Remedy::TrainerEval => {
                "per_device_eval_batch_size plus petit, eval_accumulation_steps, et \
                 preprocess_logits_for_metrics : sinon le Trainer garde les logits de toute \
                 l'évaluation sur le GPU"
            }
            Remedy::NanochatBatch => {
                "device_batch_size deux fois plus petit (--device_batch_size=16, 8, …) : le lot \
                 total reste, nanochat accumule davantage"
            }
            Remedy::LlmcBatch => {
                "un lot plus petit : -b pour train_gpt2cu, --batch_size pour train_gpt2.py ; -r 1 \
                 ou -r 2 recalcule les activations"
            }
            Remedy::LitgptBatch => {
                "un micro_batch_size plus petit (--train.micro_batch_size) : le lot global reste"
            }
            Remedy::LitgptPrecision => {
                "un modèle 7B demande 26 GiB pour ses poids en f32, 13 GiB en 16 bits, et 105 \
                 GiB avec gradients et Adam en f32 : sur une carte plus petite, seuls des \
                 adaptateurs ou LoRA en bf16-true tiennent ; plusieurs cartes peuvent se le \
                 partager (FSDP)"
            }
            Remedy::TensorflowBatch => {
                "un lot plus petit : c'est la première dimension dans le message"
            }
            Remedy::TensorflowGrowth => {
                "set_memory_growth empêche TensorFlow de prendre toute la carte au départ ; le \
                 modèle ne demande pas moins"
            }
            Remedy::Batch => {
                "un lot plus petit par GPU, avec accumulation de gradients pour la même mise à \
                 jour : activations et logits diminuent d'autant"
            }
            Remedy::Checkpointing => {
                "le recalcul des activations (checkpointing), si elles remplissent la carte : un \
                 tiers de calcul en plus"
            }
            Remedy::Precision => {
                "l'autocast 16 bits, si le calcul est en f32 : les activations prennent moitié \
                 moins"
            }
            Remedy::Attention => {
                "une attention sans matrice positions x positions (scaled_dot_product_attention, \
                 flash attention), ou des séquences plus courtes"
            }
            Remedy::SmallerState => {
                "le lot n'y change rien : moins de paramètres, des poids en 16 bits avec un \
                 optimiseur 8 bits, LoRA, ou la répartition sur plusieurs GPU (FSDP, ZeRO-3)"
            }
            Remedy::Foreach => {
                "AdamW(foreach=False) ou fused=True : la voie multi-tenseurs crée des copies \
                 temporaires de la taille de tous les paramètres"
            }
            Remedy::LoadOnHost => {
                "torch.load(path, map_location=\"cpu\"), puis supprimer le point de reprise et \
                 son state_dict après load_state_dict"
            }
            Remedy::ChunkedLoss => {
                "une perte calculée par blocs de tokens, pour que les logits n'existent jamais \
                 tous à la fois"
            }
            Remedy::HostMemory => {
                "lire ou tokeniser les données par morceaux au lieu de tout charger, moins de \
                 workers du DataLoader, plus de RAM ou de swap"
            }
            Remedy::HostKilled => {
                "dmesg | grep -i kill montre ce que le noyau a arrêté et combien il occupait"
            }
            Remedy::PageFile => {
                "un fichier d'échange plus grand : Windows refuse la mémoire quand la RAM et le \
                 fichier d'échange sont épuisés (Système, Avancé, Performances, Mémoire \
                 virtuelle)"
            }
            Remedy::BatchIsOne => {
                "le lot n'est déjà que d'une séquence : des séquences plus courtes, un modèle \
                 plus petit ou moins de paramètres entraînés (LoRA)"
            }
            Remedy::Inference => {
                "des poids en 16 bits, ou quantifiés en 8 ou 4 bits ; un lot plus petit, un \
                 contexte plus court, ou une partie des couches sur le CPU"
            }
            Remedy::JaxPreallocates => {
                "JAX prend 75 % de la carte au départ : XLA_PYTHON_CLIENT_PREALLOCATE=false \
                 montre ce qu'il lui faut vraiment ; le modèle ne demande pas moins"
            }
            Remedy::Watermark => {
                "PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 lève la limite sans réduire le besoin : le \
                 Mac peut swapper ou se figer ; un lot plus petit le réduit"
            }
            Remedy::WindowsShared => {
                "Windows prête de la mémoire vive quand la carte est pleine : lent au lieu d'une \
                 erreur ; « CUDA - Sysmem Fallback Policy » dans le panneau NVIDIA le désactive"
            }
            Remedy::Wsl => {
                "sous WSL2 le bureau de Windows et ses programmes partagent la carte : nvidia-smi \
                 sous Windows les montre, les fermer libère de la mémoire"
            }
            Remedy::Unsupported => {
                "fitGPT demande un GPU NVIDIA de génération Ampere ou plus récent (sm_80) ; cette \
                 carte est plus ancienne"
            }
            Remedy::UseWsl => {
                "fitGPT tourne sous Linux : sous Windows, utilisez WSL2 (wsl --install), qui voit \
                 le même GPU"
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
                "des séquences plus courtes ; les pertes ne se comparent pas à celles de plus \
                 longues"
            }
            FixKind::SmallerModel(_) => "un modèle plus petit",
        }
    }

    fn change(&self, change: Change) -> &'static str {
        match change {
            Change::Evaluation => "évaluation avec sa propre taille de lot, sans garder les logits",
            Change::Checkpointing => "blocs recalculés pendant la rétropropagation",
            Change::Loading => "le point de reprise chargé en mémoire vive",
        }
    }

    fn limit(&self, change: Change) -> &'static str {
        match change {
            Change::Evaluation => {
                "Une autre taille de lot à l'évaluation compile un second graphe, et avec moins \
                 de séquences sa perte est plus bruitée : augmentez eval_iters."
            }
            Change::Checkpointing => {
                "Le recalcul coûte environ un tiers de calcul en plus ; logits et état de \
                 l'optimiseur ne changent pas."
            }
            Change::Loading => {
                "Le chargement est un peu plus long et prend autant de mémoire vive que le point \
                 de reprise."
            }
        }
    }

    fn what(&self, what: What) -> &'static str {
        match what {
            What::Parameters => "paramètres",
            What::Copies => "copies des poids en 16 bits (autocast)",
            What::Gradients => "gradients",
            What::Adam => "moments d'Adam",
            What::Activations => "activations gardées pour la rétropropagation",
            What::Logits => "logits et ce que la perte en calcule",
            What::StaleLogits => "logits du lot précédent, encore référencés",
            What::Workspace => "espace de travail de cuBLAS",
            What::Tokens => "le lot",
            What::Unexplained => "dans des tenseurs que notre estimation n'explique pas",
            What::Tensors => "tenseurs de PyTorch",
            What::Fragments => "réservé par PyTorch mais inutilisé",
            What::Context => "ce processus hors PyTorch : contexte du GPU, bibliothèques",
            What::Process => "ce processus",
            What::Outside => {
                "hors PyTorch : contexte de ce processus (0,3 à 0,8 GiB) et autres programmes"
            }
            What::Unsaid => "occupé par ce processus ou d'autres : le message ne le dit pas",
            What::Others => "autres programmes",
            What::Free => "libre",
        }
    }

    fn tensor(&self, tensor: TensorKind) -> &'static str {
        match tensor {
            TensorKind::Parameter => "le poids {name}",
            TensorKind::Copy => "la copie 16 bits de {name}",
            TensorKind::Gradient => "le gradient de {name}",
            TensorKind::FirstMoment => "exp_avg d'Adam pour {name}",
            TensorKind::SecondMoment => "exp_avg_sq d'Adam pour {name}",
            TensorKind::Moment => "un des moments d'Adam",
            TensorKind::WeightOrGradient => "un poids ou son gradient",
            TensorKind::Tokens => "le lot d'identifiants de tokens",
            TensorKind::Workspace => "l'espace de travail de cuBLAS",
            TensorKind::Logits => "les logits",
            TensorKind::LogitsInF32 => "les logits en f32",
            TensorKind::EvalLogits => "les logits d'un lot d'évaluation",
            TensorKind::NextEvalLogits => "les logits du lot d'évaluation suivant",
            TensorKind::LogitsCopy => "la copie des logits dans l'entropie croisée",
            TensorKind::LogSoftmax => "le log-softmax des logits",
            TensorKind::LogSoftmaxGradient => "le gradient du log-softmax",
            TensorKind::LogitsGradient => "le gradient des logits",
            TensorKind::ZeroGradient => "un gradient nul des logits",
            TensorKind::AttentionScores => "scores d'attention",
            TensorKind::Buffer => "un tampon du code compilé",
            TensorKind::Tensor => "un tenseur",
            TensorKind::Embeddings => "les plongements (embeddings)",
            TensorKind::PositionEmbeddings => "les plongements de position",
            TensorKind::TokenEmbeddings => "les plongements de tokens",
            TensorKind::DropoutMask => "le masque de dropout de {name}",
            TensorKind::Input => "l'entrée du bloc {name}",
            TensorKind::Residual => "le flux résiduel {name}",
            TensorKind::Norm => "la sortie d'une layer norm {name}",
            TensorKind::Qkv => "q, k et v {name}",
            TensorKind::Attention => "la sortie de l'attention {name}",
            TensorKind::BeforeGelu => "le MLP avant GELU {name}",
            TensorKind::AfterGelu => "le MLP après GELU {name}",
            TensorKind::Statistics => "statistiques des normes et de l'attention {name}",
            TensorKind::ResidualGradient => "le gradient du flux résiduel",
            TensorKind::MlpGradient => "le gradient du MLP",
        }
    }

    fn confidence(&self, confidence: Confidence) -> &'static str {
        match confidence {
            Confidence::Possible => "possible",
            Confidence::Likely => "probable",
            Confidence::Certain => "certain",
        }
    }

    fn phase(&self, phase: LogPhase) -> &'static str {
        match phase {
            LogPhase::FirstEval => "pendant la première évaluation, avant la première itération",
            LogPhase::Eval => "pendant une évaluation",
            LogPhase::Forward => "pendant la propagation avant de l'entraînement",
            LogPhase::Backward => "pendant la rétropropagation",
            LogPhase::Optimizer => "pendant la mise à jour de l'optimiseur",
            LogPhase::Resume => "pendant le chargement d'un point de reprise",
            LogPhase::Load => "pendant le transfert du modèle sur le GPU",
            LogPhase::Sample => "pendant la génération de texte",
            LogPhase::Unknown => "à un moment inconnu",
        }
    }

    fn phase_name(&self, phase: Phase) -> &'static str {
        match phase {
            Phase::FirstEval => "première évaluation",
            Phase::Forward => "propagation avant",
            Phase::Backward => "rétropropagation",
            Phase::Optimizer => "optimiseur",
            Phase::Eval => "évaluations suivantes",
        }
    }

    fn program(&self, program: Program) -> &'static str {
        match program {
            Program::NanoGpt => "nanoGPT",
            Program::NanoGptFork => "un fork de nanoGPT",
            Program::Nanochat => "nanochat",
            Program::LlmC => "llm.c",
            Program::LitGpt => "LitGPT",
            Program::HfTransformers => "Hugging Face transformers",
            Program::TensorFlow => "TensorFlow",
            Program::Jax => "JAX",
            Program::Fitgpt => "fitGPT",
            Program::OtherTorch => "un programme PyTorch",
            Program::Unknown => "un programme inconnu",
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
                "les réglages : donnez le fichier de configuration, p. ex. fitgpt doctor log.txt \
                 config/mine.py"
            }
            Unknown::Phase => {
                "ce que faisait le programme : gardez le traceback au-dessus du message"
            }
            Unknown::Model => {
                "le modèle : les réglages affichés donnent un autre nombre de paramètres que le \
                 journal ; donnez le fichier de configuration"
            }
            Unknown::Program => {
                "ce que ce programme alloue, et quand : seule la mémoire de nanoGPT est modélisée \
                 ici"
            }
        }
    }

    fn refusal(&self, refusal: Refusal) -> &'static str {
        match refusal {
            Refusal::NoInput => {
                "donnez un journal (un fichier, ou - pour l'entrée standard), une configuration, \
                 ou les deux ; voir fitgpt doctor --help"
            }
            Refusal::TwoForms => {
                "--json et --markdown sont deux formes du rapport : donnez l'une des deux"
            }
            Refusal::SecondLog => "donnez un seul journal à la fois ; '{name}' en est un second",
            Refusal::BadSize => "{flag} '{name}' : écrivez une taille comme '11.69GiB' ou '8GB'",
        }
    }

    fn labels(&self) -> &'static Labels {
        &LABELS
    }
}
