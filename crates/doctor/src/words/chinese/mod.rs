//! The texts in Chinese.

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

/// Chinese.
pub struct Chinese;

impl Catalogue for Chinese {
    fn numbers(&self) -> Numbers {
        Numbers { decimal: '.', group: ',' }
    }

    fn cause(&self, cause: Cause) -> &'static str {
        match cause {
            Cause::Logits => {
                "原因是logits太大：批次的每个词元和词表的每一行各一个数，而且有好几份（交叉熵会复制它们，并计算f32的log-softmax）。"
            }
            Cause::StaleLogits => {
                "上一个评估批次的logits仍被循环变量引用，同时又在计算下一批：同时有两个这么大的缓冲区。没有保留计算图（no_grad）。"
            }
            Cause::Activations => "前向传播为反向传播保存的内容放不下。",
            Cause::AttentionScores => {
                "批大小×头数×位置×位置的注意力分数放不下：没有使用flash attention。"
            }
            Cause::OptimizerState => {
                "Adam在第一步分配一阶矩和二阶矩：每个参数八个字节，在权重和梯度之外。"
            }
            Cause::OptimizerStep => {
                "显存在优化器更新时不足。Adam的矩从第一步起每个参数占八个字节，multi-tensor（foreach）形式还会产生与参数一样大的临时副本。"
            }
            Cause::Weights => "模型本身放不下：权重、梯度或同时加载的内容。",
            Cause::State => "无论批大小如何，权重、梯度和Adam的矩已经占满显卡。",
            Cause::LoadedCheckpoint => {
                "恢复训练比从头开始更占显存：torch.load把检查点（权重和Adam的矩，每个参数12字节）放到GPU上，只要有变量引用它，它就一直留在模型旁边（\
                 nanoGPT的train.py就保留着这样的引用）。所以从头训练放得下的运行，恢复时可能放不下。"
            }
            Cause::Request => "一次大的请求无法满足；从大小看不出是哪个张量。",
            Cause::Full => {
                "是本进程自己占满了显存：权重、梯度、优化器状态和激活值加在一起。失败的请求只是最后一根稻草。"
            }
            Cause::FullOfInference => {
                "是本进程自己占满了显存。不训练时，占用的是权重、KV缓存和这一批的激活值。失败的请求只是最后一根稻草。"
            }
            Cause::Unsaid => "请求很小，说明显存当时已经快满了；日志没有说明是谁占用的。",
            Cause::Library => {
                "cuBLAS或cuDNN无法为自己分配显存。通常是此时显卡已满；之前的内核出错（例如索引越界）也会显示同样的错误：用\
                 CUDA_LAUNCH_BLOCKING=1 可以区分。"
            }
            Cause::FullBefore => {
                "第一次分配就失败了，当时程序自己还没有占用任何显存：显卡已经满了，或者被其他进程占用。"
            }
            Cause::Fragmentation => "已保留的显存足够，但不连续（显存碎片）。",
            Cause::OtherProcess => "缺的这部分显存被其他程序占用。",
            Cause::HostMemory => "这是机器的内存（RAM），不是显存：改GPU相关的设置没有用。",
            Cause::Killed => {
                "多半是内核在内存（RAM）或容器的限额用尽时这样做；改GPU相关的设置没有用。"
            }
            Cause::Contradiction => {
                "报错里的数字互相矛盾，因此无法确定原因。可能是：对本进程的限制、同一GPU上另一个进程或rank一时占用了显存，或数字过时。"
            }
            Cause::Unknown => "日志没有说明请求了什么、用于什么。",
        }
    }

    fn reason(&self, reason: Reason) -> &'static str {
        match reason {
            Reason::LastStraw => "{0} 只占本次运行已占用的 {2} 的 {1}：是最后一根稻草，不是原因。",
            Reason::Block => {
                "{0} 是PyTorch分配器的块：不超过 1 MiB 的张量申请 2 MiB，不超过 10 MiB 的申请 20 MiB。这个大小不能说明是哪个张量。"
            }
            Reason::StateExceeds => {
                "{0} 个参数：权重、梯度和Adam的两个矩在f32下每个参数16字节，共 {1}。显卡有 {2}。"
            }
            Reason::StateLeavesNothing => {
                "{0} 个参数：权重、梯度和Adam的两个矩在f32下每个参数16字节，共 {1}。再加上GPU上下文，可用的 {2} 里没有剩给激活值的。"
            }
            Reason::StateOf => {
                "{0} 个参数：权重、梯度和Adam的两个矩在f32下每个参数16字节，共 {1}。"
            }
            Reason::WeightsOf => "{0} 个参数：权重在f32下占 {1}，16位占 {2}。",
            Reason::Beyond => "除此之外占用的 {0} 是激活值、logits和临时张量：随批大小减小。",
            Reason::OthersHold => "其他程序占用了显卡 {1} 中的 {0}；没有它们，这次请求本可以满足。",
            Reason::OthersHoldMost => "其他程序占用了显卡 {1} 中的 {0}。",
            Reason::OthersSmall => "其他程序占用 {0}，在这里不是决定因素。",
            Reason::Pieces => "已保留但未使用 {0}，请求 {1}，空闲 {2}：如果连续就能放下。",
            Reason::PiecesToo => "此外已保留但未使用的有 {0}，比请求的 {1} 还多：碎片也有影响。",
            Reason::FreeExceeds => "报错显示空闲 {0}，比请求的 {1} 多：显存不足另有原因。",
            Reason::HoldsNothing => {
                "报错说本进程占用 0 字节，但PyTorch占用了 {0}，这不可能；其余数字照用。"
            }
            Reason::ReservedBelow => "保留的 {0} 少于已分配的 {1}：其中一个数字有误。",
            Reason::HeldExceeds => "{1} 的显卡上占用了 {0}：数字对不上。",
            Reason::Impossible => "{0} 不可能（负数被当作无符号数打印）：不予采用。",
            Reason::SharedMemory => {
                "{1} 的显卡占用了 {0}：Windows会把内存借给GPU，所以这是真的，但很慢。"
            }
            Reason::ModelFits => {
                "按我们的估算，本次运行需要 {1} 中的 {0}（±7 %），本应放得下：当时有别的东西占用显存，或者某个设置与这里所知的不同。"
            }
            Reason::ModelExceeds => "按我们的估算，整个运行需要 {0}（±7 %），可用 {1}：超出 {2}。",
            Reason::ScoresAdd => "每一层都为反向传播保留自己的注意力分数：{1} 层共 {0}。",
            Reason::PredictionsKept => {
                "Trainer会把所有评估批次的logits都留在GPU上：每一批都在增加。"
            }
            Reason::ExceedsCard => "{0} 超过了整张显卡的 {1}：与其他程序和碎片无关。",
            Reason::CardDiffers => "文中说的是 {0}，但报错中的GPU有 {1}：以报错为准。",
            Reason::Resident => "该进程占用了 {0} 内存。",
        }
    }

    fn claim(&self, claim: Claim) -> &'static str {
        match claim {
            Claim::KvCacheInTraining => "KV缓存占用显存",
            Claim::GraphKeptInEval => "评估保留各批的计算图",
            Claim::AdamAtFirstEval => "第一次评估时Adam状态占满显存",
            Claim::EvalIsCulprit => "罪魁祸首是评估",
            Claim::EvalBatchSizeAlone => "只要减小eval_batch_size就能解决",
            Claim::EvalBatchSizeKeyExists => "eval_batch_size",
            Claim::EvalBlockSize => "eval_block_size",
            Claim::EvalIters => "减少eval_iters",
            Claim::EvalInterval => "增大eval_interval",
            Claim::SmallerBatch { .. } => "减小batch_size，增加gradient_accumulation_steps",
            Claim::ShorterContext { .. } => "减小block_size",
            Claim::SmallerModel { .. } => "减小模型（n_embd）",
            Claim::Accumulation { .. } => "增加gradient_accumulation_steps",
            Claim::Checkpointing => "梯度检查点",
            Claim::CheckpointingHalves { .. } => "梯度检查点使激活值减半",
            Claim::EmptyCache => "torch.cuda.empty_cache()",
            Claim::ExpandableSegments => "expandable_segments:True",
            Claim::MaxSplitSize => "max_split_size_mb",
            Claim::CompileOff => "compile=False",
            Claim::CompileMode => "mode='reduce-overhead'",
            Claim::SuppressErrors => "suppress_errors=True",
            Claim::KillOthers => "结束GPU上的其他程序",
            Claim::CpuOffload => "在CPU上评估",
            Claim::CpuFallback => "device='cpu'",
            Claim::LowerPrecision => "16位精度",
            Claim::SmallerOptimizer => "状态更小的优化器（8位Adam）",
            Claim::LoraOrQuantized => "LoRA或量化模型",
            Claim::FlashAttention => "flash attention",
            Claim::DeleteLogits => "算出损失后立即释放logits",
            Claim::NoGrad => "在no_grad下评估",
            Claim::MoreGpus => "更多GPU（DDP）",
            Claim::LargerGpu => "显存更大的GPU",
            Claim::OtherVersion => "换PyTorch或CUDA的版本",
            Claim::GradScalerWarning => "GradScaler的警告",
            Claim::AutotuneWarning => "max_autotune_gemm的警告",
            Claim::ClearCache => "gc.collect()",
            Claim::Restart => "重启机器或会话",
            Claim::Fragmentation => "显存碎片化",
            Claim::CompileCostsMemory => "torch.compile更占显存",
            Claim::DataLoader => "换一种方式加载数据",
        }
    }

    fn verdict(&self, verdict: Verdict) -> &'static str {
        match verdict {
            Verdict::Suffices => "有效，而且足够",
            Verdict::NotAlone { .. } => "有效，但不够",
            Verdict::Helps => "有效",
            Verdict::CostsOnlyTime => "只是更耗时",
            Verdict::DoesNothing => "这里无效",
            Verdict::Worse => "适得其反",
            Verdict::Impossible => "行不通",
            Verdict::False => "不成立",
            Verdict::True => "成立",
        }
    }

    #[expect(clippy::too_many_lines, reason = "a table: one arm for each text")]
    fn note(&self, note: Note) -> &'static str {
        match note {
            Note::Batch => "batch_size={0}，gradient_accumulation_steps={1}：每次更新的词元数不变",
            Note::BatchIsOne => "已经只有一个序列",
            Note::NoSuchKey => {
                "nanoGPT没有这个配置项：写在配置文件里会被忽略，写在命令行会报错；fitGPT有"
            }
            Note::NoSuchKeyAndTrainingDies => {
                "nanoGPT没有这个配置项（写在配置文件里会被忽略），而且训练本身就需要 {0}"
            }
            Note::NoSuchKeyButEvalWouldFit => {
                "nanoGPT没有这个配置项（写在配置文件里会被忽略）；改代码加上它评估就能放下，训练本来就放得下"
            }
            Note::OneBatchAtATime => "评估是逐批进行的，减少批数不会减少显存",
            Note::OnlyMovesTheMoment => "评估次数变少，但每次占用不变",
            Note::Context => "上下文为 {0}；损失不能与更长上下文的比较",
            Note::Width => "n_embd={0}",
            Note::OtherModel => "init_from='{0}'",
            Note::HeadsDoNotDivide => {
                "n_embd={0} 不能被 n_head={1} 整除：nanoGPT会因断言而退出；n_embd={2} 可以"
            }
            Note::NoNarrower => "这个头大小没有更窄的模型",
            Note::NothingToCheckpointInEval => "评估不算梯度，没有可以重算的保存值",
            Note::CheckpointLowersActivations => {
                "nanoGPT没有对应的配置项；加进代码后，这里激活值减少 {0}，训练从 {1} 降到 {2}；logits和优化器状态不变"
            }
            Note::EagerTakesMore => "不编译时logits的副本更多",
            Note::AlreadyEager => "本来就没有编译",
            Note::GraphsTakeMore => "CUDA图有自己的显存池：更多，不是更少",
            Note::PiecesAreEnough => "这么多已保留但未使用，是碎片",
            Note::NotFragmentation => "显存确实不够，问题不在碎片",
            Note::AlreadyOn => "已经打开",
            Note::CacheIsEmptied => "PyTorch在报错之前会自己清空缓存",
            Note::TrainingDiesInstead => "评估离开GPU后，改为第一个训练步失败",
            Note::EvalLeaves => "评估离开GPU，耗时增加很多倍",
            Note::OthersHold => "其他程序占用了这张卡的这么多显存",
            Note::OthersLittle => "其他程序占用 {0}：太少，没有影响",
            Note::DesktopHolds => "桌面会占用显卡 0.3 到 2 GiB；这里是假定值",
            Note::NoOthers => "这张卡上看不到其他程序",
            Note::SameBytes => "已经用16位计算；float16和bfloat16都是两个字节",
            Note::EachHoldsAll => "每个GPU都保存整个模型、优化器状态和自己的logits",
            Note::DataIsNotThere => "nanoGPT的数据是磁盘上的文件，不在显存里",
            Note::SameTensors => "各个版本的张量都一样",
            Note::ManyTimesSlower => "可以运行，但慢几百倍",
            Note::StateAlone => "权重、梯度和Adam状态本身就放不下",
            Note::HalfTheBytes => "激活值和logits变为16位",
            Note::FlashAttention => "flash attention不产生位置×位置的矩阵",
            Note::AlreadyFlash => "PyTorch 2下的nanoGPT已经在用",
            Note::NoKvCache => "训练和nanoGPT的评估都没有KV缓存：一批一次算完，什么都不保留",
            Note::NoGraph => {
                "estimate_loss() 在 torch.no_grad() 下运行：不保留计算图；留下的只有最后一批的logits，{0}"
            }
            Note::AdamComesLater => {
                "Adam的一阶矩和二阶矩（{0}）在第一次优化器更新时才分配，在第一次评估之后"
            }
            Note::AdamIsLoaded => "这次是恢复训练，Adam的一阶矩和二阶矩（{0}）一开始就加载了",
            Note::TrainingIsThePeak => "峰值在训练：训练需要 {0}，评估需要 {1}",
            Note::EvalIsThePeak => "评估需要 {0}，训练需要 {1}",
            Note::TrainingStillNeeds => "训练仍然需要 {0}，而空闲只有 {1}",
            Note::HidesCompilerErrors => "它只隐藏编译器的错误，分配器的错误还在",
            Note::AccumulationAlone => "批大小减小时它保持每次更新的词元数；单独使用不改变峰值",
            Note::SmallMoments => "每个矩只用一个字节可省 {0}；nanoGPT没有对应的配置项",
            Note::OnlyForFineTuning => "这是微调已训练模型的方法，不能从头训练",
            Note::NeedsThatMuch => "本次运行需要 {0}",
            Note::AlreadyNoGrad => "nanoGPT的评估已经有了",
            Note::LogitsDropped => "改nanoGPT的两行代码；反向传播仍保留自己的副本",
            Note::NothingToCollect => "PyTorch在没有引用时立即释放张量，垃圾回收没有可做的",
            Note::SameNeed => "之后需要的一样多；只有残留进程还占着显存时才有用",
            Note::CompiledAndEager => "编译后需要 {0}，不编译需要 {1}",
            Note::UnrelatedWarning => "这个警告与显存无关",
        }
    }

    #[expect(clippy::too_many_lines, reason = "a table: one arm for each text")]
    fn remedy(&self, remedy: Remedy) -> &'static str {
        match remedy {
            Remedy::SeeNvidia => {
                "nvidia-smi 能看到哪些进程占用显卡；结束它们，或用 CUDA_VISIBLE_DEVICES 选另一块GPU"
            }
            Remedy::SeeRocm => {
                "rocm-smi --showpids --showmeminfo vram 能看到谁占用显卡；结束它们，或用 HIP_VISIBLE_DEVICES 选另一块\
                 GPU"
            }
            Remedy::SeeDevices => "fitgpt devices 列出本机各GPU的空闲显存",
            Remedy::Expandable => {
                "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True 让PyTorch能合并空闲碎片"
            }
            Remedy::ExpandableRocm => {
                "PYTORCH_HIP_ALLOC_CONF=expandable_segments:True 让PyTorch能合并空闲碎片（需ROCm版支持）"
            }
            Remedy::TrainerBatch => {
                "减小 per_device_train_batch_size，增加 gradient_accumulation_steps：每次更新的词元数不变"
            }
            Remedy::TrainerCheckpointing => {
                "gradient_checkpointing=True：重算激活值，计算量约增加三分之一；同时设 use_cache=False"
            }
            Remedy::TrainerPrecision => "bf16=True（Ampere之前的卡用 fp16=True）：激活值占用减半",
            Remedy::TrainerOptimizer => {
                "optim=\"adafactor\" 或 \"adamw_bnb_8bit\"：矩从每参数 8 字节降到 2 字节以下"
            }
            Remedy::TrainerEval => {
                "减小 per_device_eval_batch_size，设置 eval_accumulation_steps 和 \
                 preprocess_logits_for_metrics：否则Trainer会把整个评估的logits留在GPU上"
            }
            Remedy::NanochatBatch => {
                "device_batch_size 减半（--device_batch_size=16、8……）：总批量不变，nanochat会多累积几次"
            }
            Remedy::LlmcBatch => {
                "减小批大小：train_gpt2cu 用 -b，train_gpt2.py 用 --batch_size；-r 1 或 -r 2 重算激活值"
            }
            Remedy::LitgptBatch => {
                "减小 micro_batch_size（--train.micro_batch_size）：全局批量不变"
            }
            Remedy::LitgptPrecision => {
                "7B模型的权重在f32下要 26 GiB，16位 13 GiB，加上f32的梯度和Adam要 105 GiB：单卡显存不足时只有 bf16-true 的\
                 adapter或LoRA放得下；也可以分到多张卡上（FSDP）"
            }
            Remedy::TensorflowBatch => "减小批大小：报错中形状的第一维就是它",
            Remedy::TensorflowGrowth => {
                "set_memory_growth 只是不让TensorFlow一开始就占满显卡；模型需要的并不会减少"
            }
            Remedy::Batch => {
                "减小每个GPU的批大小，用梯度累积保持同样的更新：激活值和logits随之减少"
            }
            Remedy::Checkpointing => "如果是激活值占满显卡，用激活检查点：计算量约增加三分之一",
            Remedy::Precision => "如果用f32计算，改用16位autocast：激活值减半",
            Remedy::Attention => {
                "不产生位置×位置矩阵的注意力（scaled_dot_product_attention、flash attention），或更短的序列"
            }
            Remedy::SmallerState => {
                "减小批大小没有用：减少参数，16位权重加8位优化器，LoRA，或分片到多个GPU（FSDP、ZeRO-3）"
            }
            Remedy::Foreach => {
                "AdamW(foreach=False) 或 fused=True：multi-tensor路径会产生与全部参数一样大的临时副本"
            }
            Remedy::LoadOnHost => {
                "用 torch.load(path, map_location=\"cpu\")，load_state_dict之后删除检查点和state_dict"
            }
            Remedy::ChunkedLoss => "按词元分块计算损失，使logits不必同时存在",
            Remedy::HostMemory => {
                "分块读取或分词而不是整体加载，减少DataLoader的worker，增加内存或swap"
            }
            Remedy::HostKilled => "dmesg | grep -i kill 能看到内核结束了什么、占用多少",
            Remedy::PageFile => {
                "增大页面文件：内存和页面文件合计用尽时Windows会拒绝分配（系统 → 高级 → 性能 → 虚拟内存）"
            }
            Remedy::BatchIsOne => {
                "批大小已经是1：缩短序列、换更小的模型，或减少要训练的参数（LoRA）"
            }
            Remedy::Inference => {
                "权重改用16位，或量化到8位、4位；减小批大小、缩短上下文，或把部分层放到CPU上"
            }
            Remedy::JaxPreallocates => {
                "JAX启动时会占用显卡的75 %：设 XLA_PYTHON_CLIENT_PREALLOCATE=false 可看到实际需要多少；模型需要的并不会减少"
            }
            Remedy::Watermark => {
                "PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 只是取消上限，并不减少需求：Mac可能换页或卡死；减小批大小才能减少"
            }
            Remedy::WindowsShared => {
                "显卡满了Windows会借用内存：不报错但很慢；可在NVIDIA控制面板的“CUDA - Sysmem Fallback Policy”关闭"
            }
            Remedy::Wsl => {
                "WSL2下Windows桌面和程序共用显卡：在Windows里用 nvidia-smi 查看，关闭它们可释放显存"
            }
            Remedy::Unsupported => "fitGPT需要Ampere或更新的NVIDIA GPU（sm_80），这张卡更旧",
            Remedy::UseWsl => {
                "fitGPT运行在Linux上：在Windows里请用WSL2（wsl --install），它能用同一块GPU"
            }
        }
    }

    fn fix(&self, fix: FixKind) -> &'static str {
        match fix {
            FixKind::SmallerBatch => "更小的微批、更多的次数：每次更新的词元数不变",
            FixKind::Compile => "编译后的代码保存更少的logits副本",
            FixKind::ShorterContext => "更短的序列；损失不能与更长的比较",
            FixKind::SmallerModel(_) => "更小的模型",
        }
    }

    fn change(&self, change: Change) -> &'static str {
        match change {
            Change::Evaluation => "评估用单独的批大小，不保留logits",
            Change::Checkpointing => "反向传播时重算各块",
            Change::Loading => "把检查点加载到内存",
        }
    }

    fn limit(&self, change: Change) -> &'static str {
        match change {
            Change::Evaluation => {
                "评估用不同的批大小会编译第二个图，序列少时损失的噪声更大：请增大 eval_iters。"
            }
            Change::Checkpointing => "重算使计算量约增加三分之一；logits和优化器状态不变。",
            Change::Loading => "加载稍慢，并占用与检查点一样大的内存。",
        }
    }

    fn what(&self, what: What) -> &'static str {
        match what {
            What::Parameters => "参数",
            What::Copies => "权重的16位副本（autocast）",
            What::Gradients => "梯度",
            What::Adam => "Adam的一阶矩和二阶矩",
            What::Activations => "为反向传播保存的激活值",
            What::Logits => "logits及损失计算产生的副本",
            What::StaleLogits => "上一批的logits（仍被引用）",
            What::Workspace => "cuBLAS工作区",
            What::Tokens => "批次",
            What::Unexplained => "我们的估算无法解释的张量",
            What::Tensors => "PyTorch的张量",
            What::Fragments => "PyTorch已保留但未使用",
            What::Context => "本进程在PyTorch之外的部分（GPU上下文、库）",
            What::Process => "本进程",
            What::Outside => "PyTorch之外：本进程的上下文（0.3 到 0.8 GiB）和其他程序",
            What::Unsaid => "被本进程或其他程序占用：报错没有说明",
            What::Others => "其他程序",
            What::Free => "空闲",
        }
    }

    fn tensor(&self, tensor: TensorKind) -> &'static str {
        match tensor {
            TensorKind::Parameter => "权重 {name}",
            TensorKind::Copy => "{name} 的16位副本",
            TensorKind::Gradient => "{name} 的梯度",
            TensorKind::FirstMoment => "{name} 的Adam exp_avg",
            TensorKind::SecondMoment => "{name} 的Adam exp_avg_sq",
            TensorKind::Moment => "Adam的一个矩",
            TensorKind::WeightOrGradient => "权重或其梯度",
            TensorKind::Tokens => "词元编号的批次",
            TensorKind::Workspace => "cuBLAS工作区",
            TensorKind::Logits => "logits",
            TensorKind::LogitsInF32 => "f32的logits",
            TensorKind::EvalLogits => "评估批次的logits",
            TensorKind::NextEvalLogits => "下一个评估批次的logits",
            TensorKind::LogitsCopy => "交叉熵中logits的副本",
            TensorKind::LogSoftmax => "logits的log-softmax",
            TensorKind::LogSoftmaxGradient => "log-softmax的梯度",
            TensorKind::LogitsGradient => "logits的梯度",
            TensorKind::ZeroGradient => "logits的零梯度",
            TensorKind::AttentionScores => "注意力分数",
            TensorKind::Buffer => "编译代码的缓冲区",
            TensorKind::Tensor => "一个张量",
            TensorKind::Embeddings => "嵌入",
            TensorKind::PositionEmbeddings => "位置嵌入",
            TensorKind::TokenEmbeddings => "词元嵌入",
            TensorKind::DropoutMask => "{name} 的dropout掩码",
            TensorKind::Input => "块 {name} 的输入",
            TensorKind::Residual => "残差流 {name}",
            TensorKind::Norm => "层归一化的输出 {name}",
            TensorKind::Qkv => "q、k、v {name}",
            TensorKind::Attention => "注意力的输出 {name}",
            TensorKind::BeforeGelu => "GELU之前的MLP {name}",
            TensorKind::AfterGelu => "GELU之后的MLP {name}",
            TensorKind::Statistics => "归一化和注意力的统计量 {name}",
            TensorKind::ResidualGradient => "残差流的梯度",
            TensorKind::MlpGradient => "MLP的梯度",
        }
    }

    fn confidence(&self, confidence: Confidence) -> &'static str {
        match confidence {
            Confidence::Possible => "可能",
            Confidence::Likely => "很可能",
            Confidence::Certain => "确定",
        }
    }

    fn phase(&self, phase: LogPhase) -> &'static str {
        match phase {
            LogPhase::FirstEval => "在第一次评估中（训练开始之前）",
            LogPhase::Eval => "在评估中",
            LogPhase::Forward => "在训练的前向传播中",
            LogPhase::Backward => "在反向传播中",
            LogPhase::Optimizer => "在优化器更新时",
            LogPhase::Resume => "在加载检查点时",
            LogPhase::Load => "在把模型移到GPU时",
            LogPhase::Sample => "在生成文本时",
            LogPhase::Unknown => "在未知阶段",
        }
    }

    fn phase_name(&self, phase: Phase) -> &'static str {
        match phase {
            Phase::FirstEval => "第一次评估",
            Phase::Forward => "前向传播",
            Phase::Backward => "反向传播",
            Phase::Optimizer => "优化器",
            Phase::Eval => "之后的评估",
        }
    }

    fn program(&self, program: Program) -> &'static str {
        match program {
            Program::NanoGpt => "nanoGPT",
            Program::NanoGptFork => "nanoGPT的分支",
            Program::Nanochat => "nanochat",
            Program::LlmC => "llm.c",
            Program::LitGpt => "LitGPT",
            Program::HfTransformers => "Hugging Face transformers",
            Program::TensorFlow => "TensorFlow",
            Program::Jax => "JAX",
            Program::Fitgpt => "fitGPT",
            Program::OtherTorch => "一个PyTorch程序",
            Program::Unknown => "未知程序",
        }
    }

    fn unknown(&self, unknown: Unknown) -> &'static str {
        match unknown {
            Unknown::Requested => "请求了多少：请再运行一次并保留完整报错",
            Unknown::Budget => {
                "显卡有多少显存：nvidia-smi --query-gpu=name,memory.total,memory.used --format=csv"
            }
            Unknown::Settings => {
                "运行的设置：请给出配置文件，例如 fitgpt doctor log.txt config/mine.py"
            }
            Unknown::Phase => "程序当时在做什么：请保留报错上方的traceback",
            Unknown::Model => "模型：显示的设置与日志的参数量不符；请给出配置文件",
            Unknown::Program => "这个程序何时分配什么：这里只对nanoGPT的显存建模",
        }
    }

    fn refusal(&self, refusal: Refusal) -> &'static str {
        match refusal {
            Refusal::NoInput => {
                "请给出日志（文件，或用 - 表示标准输入）、配置文件，或两者；见 fitgpt doctor --help"
            }
            Refusal::TwoForms => "--json 和 --markdown 是报告的两种形式：请只给一个",
            Refusal::SecondLog => "一次只给一个日志；'{name}' 是第二个",
            Refusal::BadSize => "{flag} '{name}'：请写成 '11.69GiB' 或 '8GB' 这样的大小",
        }
    }

    fn labels(&self) -> &'static Labels {
        &LABELS
    }
}
