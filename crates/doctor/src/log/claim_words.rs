//! The words by which claims are recognised, in five languages. A line makes a claim if it has, in
//! lower case, one word of every group of the row.

use super::claims::Claim;

/// Words of a claim: one of each group.
pub struct Row {
    /// What they claim.
    pub claim: Claim,
    /// The groups.
    pub groups: &'static [&'static [&'static str]],
}

const fn row(claim: Claim, groups: &'static [&'static [&'static str]]) -> Row {
    Row { claim, groups }
}

/// Evaluation.
const EVAL: &[&str] =
    &["estimate_loss", "evaluation", "auswertung", "評価", "评估", "évaluation", "验证"];

/// To keep.
const KEEP: &[&str] = &[
    "keep",
    "retain",
    "hold",
    "accumulat",
    "stay",
    "behält",
    "bleib",
    "保持",
    "保留",
    "累积",
    "conserv",
    "garde",
    "reste",
];

/// That something suffices.
const ALONE: &[&str] = &[
    "alone",
    "just this",
    "this is enough",
    "allein",
    "genügt",
    "reicht",
    "これだけ",
    "だけでも",
    "仅此",
    "单独",
    "仅这",
    "suffi",
    "à elle seule",
    "à lui seul",
];

/// That something repairs it.
const REPAIRS: &[&str] =
    &["fix", "solve", "resolve", "beheb", "lös", "修正", "解決", "修复", "解决", "corrig", "résou"];

/// Advice and assertions.
pub const ROWS: [Row; 42] = [
    row(
        Claim::KvCacheInTraining,
        &[&[
            "kv-cache",
            "kv cache",
            "kvキャッシュ",
            "kv キャッシュ",
            "kv缓存",
            "kv 缓存",
            "cache kv",
            "key-value cache",
            "键值缓存",
        ]],
    ),
    row(
        Claim::GraphKeptInEval,
        &[
            &[
                "computation graph",
                "computational graph",
                "autograd graph",
                "berechnungsgraph",
                "計算グラフ",
                "计算图",
                "graphe de calcul",
            ],
            KEEP,
        ],
    ),
    row(
        Claim::EvalIsCulprit,
        &[
            EVAL,
            &[
                "training itself",
                "training works",
                "training is fine",
                "training selbst",
                "トレーニング自体",
                "学習自体",
                "训练本身",
                "l'entraînement lui-même",
                "l'entraînement fonctionne",
            ],
        ],
    ),
    row(
        Claim::EvalIsCulprit,
        &[
            EVAL,
            &["suddenly", "plötzlich", "突然", "soudain", "culprit", "schuld", "罪魁", "coupable"],
        ],
    ),
    row(Claim::EvalBatchSizeAlone, &[&["eval_batch_size"], ALONE]),
    row(
        Claim::EvalBatchSizeAlone,
        &[
            &["eval_batch_size"],
            &["95%", "95 %", "most people", "die meisten", "多くの人", "大多数人", "la plupart"],
        ],
    ),
    row(
        Claim::EvalBatchSizeKeyExists,
        &[
            &["eval_batch_size"],
            &[
                "nanogpt respect",
                "nanogpt support",
                "newer version",
                "recent version",
                "recognize",
                "recognise",
                "honor",
                "honour",
                "berücksichtigt",
                "unterstützt",
                "neuere version",
                "認識",
                "サポート",
                "支持",
                "识别",
                "新版本",
                "prend en compte",
                "prend en charge",
                "reconna",
                "versions récentes",
            ],
        ],
    ),
    row(Claim::EvalBlockSize, &[&["eval_block_size"]]),
    row(Claim::Checkpointing, &[CHECKPOINTING]),
    row(Claim::EmptyCache, &[&["empty_cache"]]),
    row(Claim::ExpandableSegments, &[&["expandable_segments"]]),
    row(Claim::MaxSplitSize, &[&["max_split_size_mb"]]),
    row(
        Claim::CompileOff,
        &[
            &["torch.compile", "compilation", "コンパイル", "编译", "kompilier"],
            &[
                "disable",
                "turn off",
                "turning off",
                "without",
                "無効",
                "禁用",
                "关闭",
                "abschalten",
                "deaktivier",
                "désactiv",
            ],
        ],
    ),
    row(Claim::CompileMode, &[&["reduce-overhead", "max-autotune"]]),
    row(Claim::SuppressErrors, &[&["suppress_errors"]]),
    row(Claim::KillOthers, &[&["kill -9", "fuser -v"]]),
    row(
        Claim::KillOthers,
        &[
            &[
                "other process",
                "other program",
                "other app",
                "other gpu",
                "andere prozesse",
                "anderen prozesse",
                "andere programme",
                "他のプロセス",
                "他のgpu",
                "他のアプリ",
                "其他进程",
                "其它进程",
                "其他程序",
                "autres processus",
                "autres programmes",
                "autres applications",
            ],
            &[
                "kill",
                "close",
                "stop",
                "end ",
                "terminate",
                "beend",
                "schließ",
                "終了",
                "閉じ",
                "关闭",
                "结束",
                "终止",
                "杀",
                "ferme",
                "tue",
                "arrêt",
            ],
        ],
    ),
    row(
        Claim::CpuOffload,
        &[
            &["offload", "オフロード", "卸载", "auslager", "décharg", "déport"],
            &["cpu", "host", "ram", "memory", "メモリ", "内存", "speicher", "mémoire"],
        ],
    ),
    row(Claim::CpuFallback, &[&["device = cpu", "device=cpu", "device='cpu'", "device = 'cpu'"]]),
    row(Claim::CpuFallback, &[&["switch to cpu", "train on cpu", "run on cpu", "auf der cpu"]]),
    row(
        Claim::LowerPrecision,
        &[&[
            "mixed precision",
            "mixed-precision",
            "混合精度",
            "gemischte präzision",
            "précision mixte",
            "half precision",
            "半精度",
        ]],
    ),
    row(
        Claim::SmallerOptimizer,
        &[&["8-bit adam", "8bit adam", "adamw_8bit", "adafactor", "bitsandbytes", "8-bit optim"]],
    ),
    row(
        Claim::LoraOrQuantized,
        &[&[
            "lora",
            "quantiz",
            "quantis",
            "量化",
            "量子化",
            "quantif",
            "load_in_8bit",
            "load_in_4bit",
        ]],
    ),
    row(
        Claim::FlashAttention,
        &[&["flash attention", "flash-attention", "flashattention", "flash_attn", "xformers"]],
    ),
    row(Claim::DeleteLogits, &[&["del logits", "chunked cross", "chunked loss", "chunk the loss"]]),
    row(Claim::NoGrad, &[&["no_grad", "inference_mode"]]),
    row(
        Claim::MoreGpus,
        &[&[
            "multi-gpu",
            "multi gpu",
            "multiple gpus",
            "more gpus",
            "マルチgpu",
            "複数のgpu",
            "多gpu",
            "多卡",
            "mehrere gpus",
            "plusieurs gpu",
            "fsdp",
            "deepspeed",
            "ddp",
        ]],
    ),
    row(
        Claim::LargerGpu,
        &[&[
            "larger gpu",
            "bigger gpu",
            "more vram",
            "gpu with more",
            "größere gpu",
            "mehr vram",
            "更大显存",
            "升级显卡",
            "より大きなgpu",
            "gpu plus grand",
            "plus de vram",
        ]],
    ),
    row(
        Claim::OtherVersion,
        &[&[
            "pip install torch",
            "pip install --upgrade torch",
            "upgrade pytorch",
            "update pytorch",
            "升级pytorch",
            "升级 pytorch",
            "pytorch aktualisieren",
            "mettre à jour pytorch",
        ]],
    ),
    row(
        Claim::GradScalerWarning,
        &[&["gradscaler"], &["警告", "warning", "warnung", "avertissement"]],
    ),
    row(
        Claim::AutotuneWarning,
        &[
            &["max_autotune_gemm", "not enough sms"],
            &["warning", "warnung", "警告", "avertissement", "示唆", "suggest", "表明", "deutet"],
        ],
    ),
    row(Claim::DataLoader, &[&["num_workers", "pin_memory"]]),
    row(
        Claim::EvalIters,
        &[
            &["eval_iters"],
            &[
                "reduc",
                "lower",
                "fewer",
                "verringer",
                "reduzier",
                "減ら",
                "削減",
                "减少",
                "降低",
                "rédui",
            ],
        ],
    ),
    row(
        Claim::EvalInterval,
        &[&["eval_interval"], &["increas", "rais", "erhöh", "増", "增", "augment"]],
    ),
    row(
        Claim::SmallerBatch { batch_size: None },
        &[&[
            "smaller batch",
            "reduce batch",
            "reduce the batch",
            "lower the batch",
            "decrease batch",
            "decrease the batch",
            "batch size reduction",
            "kleinere batch",
            "batch-größe reduzier",
            "バッチサイズ削減",
            "バッチサイズを減ら",
            "バッチサイズを小さく",
            "减小批",
            "降低批",
            "减小batch",
            "减小 batch",
            "降低微批次",
            "减少批",
            "réduire la taille",
            "réduisez la taille",
        ]],
    ),
    row(
        Claim::ShorterContext { block_size: None },
        &[&[
            "shorter context",
            "shorter sequence",
            "reduce the context",
            "reduce block",
            "kürzere sequenz",
            "シーケンス長削減",
            "シーケンス長を",
            "コンテキスト半減",
            "缩短序列",
            "减小序列",
            "缩短上下文",
            "raccourcir",
            "contexte plus court",
        ]],
    ),
    row(
        Claim::SmallerModel { n_embd: None },
        &[&[
            "smaller model",
            "reduce the model",
            "reduce model",
            "modellgröße",
            "kleineres modell",
            "モデルサイズを",
            "減小模型",
            "减小模型",
            "更小的模型",
            "缩小模型",
            "modèle plus petit",
            "taille du modèle",
        ]],
    ),
    row(
        Claim::Accumulation { steps: None },
        &[&[
            "gradient accumulation",
            "accumulate gradients",
            "gradient-accumulation",
            "勾配累積",
            "梯度累积",
            "accumulation de gradient",
        ]],
    ),
    row(Claim::ClearCache, &[&["gc.collect"]]),
    row(
        Claim::Restart,
        &[&["reboot", "restart the", "neu starten", "neustart", "再起動", "重启", "redémarr"]],
    ),
    row(
        Claim::Fragmentation,
        &[&[
            "fragmentation",
            "fragmented",
            "fragmentier",
            "断片化",
            "フラグメンテーション",
            "碎片",
        ]],
    ),
    row(
        Claim::CompileCostsMemory,
        &[
            &["torch.compile", "inductor", "コンパイル", "编译", "kompilier"],
            &[
                "overhead",
                "オーバーヘッド",
                "急増",
                "增加",
                "spike",
                "temporar",
                "開销",
                "开销",
                "surcoût",
                "一時的",
            ],
        ],
    ),
];

/// Gradient checkpointing.
pub const CHECKPOINTING: &[&str] = &[
    "gradient checkpointing",
    "gradient_checkpointing",
    "gradient-checkpointing",
    "grad_checkpoint",
    "activation checkpointing",
    "勾配チェックポイント",
    "梯度检查点",
    "激活检查点",
    "checkpointing",
    "points de contrôle de gradient",
];

/// Activations, whose memory checkpointing reduces.
pub const ACTIVATIONS: &[&str] = &[
    "activation",
    "aktivierung",
    "活性化",
    "激活",
    "memory",
    "speicher",
    "メモリ",
    "显存",
    "mémoire",
];

/// Adam's state.
pub const OPTIMIZER_STATE: &[&str] = &[
    "optimizer state",
    "optimizer-state",
    "optimiererzust",
    "optimierer-zust",
    "optimizer-zust",
    "オプティマイザ状態",
    "オプティマイザの状態",
    "优化器状态",
    "l'optimiseur",
    "adam state",
    "adamw-zust",
];

/// That something suffices to repair it.
pub const SUFFICES: [&[&str]; 2] = [ALONE, REPAIRS];
