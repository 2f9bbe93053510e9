//! The texts in Chinese.

use crate::account::What;
use crate::advice::{Advice, Note, Verdict};
use crate::diagnosis::{Cause, Unknown};
use crate::fixes::FixKind;
use crate::log::LogPhase;
use crate::tensor::Confidence;
use crate::words::{Catalogue, Labels};

/// Chinese.
pub struct Chinese;

impl Catalogue for Chinese {
    fn note(&self, note: Note) -> &'static str {
        match note {
            Note::HalfBatch => "批量减半，微批数加倍：每次更新的词元数不变",
            Note::BatchIsOne => "已经只有一个序列",
            Note::NoSuchKeyAndTrainingDies => {
                "nanoGPT没有这个键（写在配置文件里会被忽略），而且训练本身也放不下"
            }
            Note::NoSuchKeyButEvalWouldFit => {
                "nanoGPT没有这个键（写在配置文件里会被忽略）；有了它评估就放得下，训练放得下"
            }
            Note::OneBatchAtATime => "评估的批次是逐个处理的，减少批次数不会减少内存",
            Note::OnlyMovesTheMoment => "评估变少，但不会变小",
            Note::HalfContext => "上下文减半；损失不能与更长的比较",
            Note::Narrower => "少一个头",
            Note::NoNarrower => "这个头大小没有更窄的模型",
            Note::NothingToCheckpointInEval => "评估没有梯度，没有可以重算的保存值",
            Note::CheckpointLowersActivations => {
                "nanoGPT没有这个键；加上后只减少激活，不减少logits或优化器状态"
            }
            Note::EagerTakesMore => "不编译时logits的副本更多",
            Note::AlreadyEager => "已经没有编译",
            Note::GraphsTakeMore => "CUDA图有自己的内存池：更多，不是更少",
            Note::PiecesAreEnough => "这么多已保留但未使用，是碎片",
            Note::NotFragmentation => "内存确实需要，问题不在碎片",
            Note::AlreadyOn => "已经打开",
            Note::CacheIsEmptied => "PyTorch在放弃之前会自己清空缓存",
            Note::TrainingDiesInstead => "评估离开GPU后，改为第一个训练步失败",
            Note::EvalLeaves => "评估离开GPU，时间长很多倍",
            Note::OthersHold => "其他程序占用了这张卡的这么多内存",
            Note::NoOthers => "这张卡上看不到其他程序",
            Note::SameBytes => "两者都是两个字节",
            Note::EachHoldsAll => "每个GPU都保存整个模型、优化器状态和自己的logits",
            Note::DataIsNotThere => "nanoGPT的数据是磁盘上的文件，不在GPU内存里",
            Note::SameTensors => "各个版本的张量都一样",
            Note::ManyTimesSlower => "可以运行，但慢几百倍",
            Note::FitsAlready => "此运行照原样放得下",
            Note::StateAlone => "权重、梯度和Adam状态本身就放不下",
            Note::HalfTheBytes => "激活和logits变为16位",
            Note::FlashAttention => "flash attention不产生位置×位置",
        }
    }

    fn advice(&self, advice: Advice) -> &'static str {
        match advice {
            Advice::SmallerBatch => "减小batch_size，增加gradient_accumulation_steps",
            Advice::EvalBatchSize => "eval_batch_size",
            Advice::EvalBlockSize => "eval_block_size",
            Advice::EvalIters => "减少eval_iters",
            Advice::EvalInterval => "增大eval_interval",
            Advice::BlockSize => "减小block_size",
            Advice::SmallerModel => "减小n_embd",
            Advice::GradCheckpoint => "梯度检查点",
            Advice::CompileOff => "compile=False",
            Advice::ReduceOverhead => "mode='reduce-overhead'",
            Advice::ExpandableSegments => "expandable_segments:True",
            Advice::EmptyCache => "torch.cuda.empty_cache()",
            Advice::EvalOnCpu => "在CPU上评估",
            Advice::OtherPrograms => "结束GPU上的其他程序",
            Advice::Float16 => "用float16代替bfloat16",
            Advice::MoreGpus => "更多GPU（DDP）",
            Advice::Preloading => "换一种方式加载数据",
            Advice::NewerTorch => "更新PyTorch或CUDA",
            Advice::DeviceCpu => "device='cpu'",
        }
    }

    fn confidence(&self, confidence: Confidence) -> &'static str {
        match confidence {
            Confidence::Possible => "可能",
            Confidence::Likely => "很可能",
            Confidence::Certain => "确定",
        }
    }

    fn what(&self, what: What) -> &'static str {
        match what {
            What::Parameters => "参数",
            What::Copies => "权重的16位副本（autocast）",
            What::Gradients => "梯度",
            What::Adam => "Adam的一阶矩和二阶矩",
            What::Activations => "为反向传播保存的激活",
            What::Logits => "logits及损失产生的副本",
            What::StaleLogits => "上一批的logits（仍被引用）",
            What::Workspace => "cuBLAS的工作区",
            What::Tokens => "批次",
            What::Unexplained => "此模型无法解释的张量",
            What::Fragments => "PyTorch保留但不属于任何张量",
            What::Context => "CUDA上下文、内核、库",
            What::Others => "其他程序",
            What::Free => "空闲",
        }
    }

    fn cause(&self, cause: Cause) -> &'static str {
        match cause {
            Cause::Logits => {
                "原因是logits：批次的每个词元和词表的每一行各一个数，而且有好几份（交叉熵会复制它们，并产生f32的log-softmax）。"
            }
            Cause::StaleLogits => {
                "上一个评估批次的logits仍被循环变量引用，同时又在生成下一批的logits：同时有两个这样的缓冲区。没有保留计算图（no_grad）。"
            }
            Cause::Activations => "前向传播为反向传播保存的内容放不下。",
            Cause::AttentionScores => "位置×位置的注意力分数放不下：没有使用flash attention。",
            Cause::OptimizerState => {
                "Adam在第一步创建一阶矩和二阶矩：每个参数八个字节，在权重和梯度之外。"
            }
            Cause::Weights => "模型本身放不下：权重、梯度或同时加载的内容。",
            Cause::Fragmentation => "保留的内存足够，但不连续。",
            Cause::OtherProcess => "缺少的部分被其他程序占用。",
            Cause::Unknown => "日志没有说明是哪个张量。",
        }
    }

    fn phase(&self, phase: LogPhase) -> &'static str {
        match phase {
            LogPhase::FirstEval => "在第一次评估中（训练步之前）",
            LogPhase::Eval => "在评估中",
            LogPhase::Forward => "在训练的前向传播中",
            LogPhase::Backward => "在反向传播中",
            LogPhase::Optimizer => "在优化器的步骤中",
            LogPhase::Load => "在把模型移到设备上时",
            LogPhase::Resume => "在加载检查点时",
            LogPhase::Sample => "在生成文本时",
            LogPhase::Unknown => "在日志没有说明的时刻",
        }
    }

    fn verdict(&self, verdict: Verdict) -> &'static str {
        match verdict {
            Verdict::Helps => "有效",
            Verdict::CostsOnlyTime => "只花时间",
            Verdict::DoesNothing => "这里无效",
            Verdict::Wrong => "错误",
        }
    }

    fn unknown(&self, unknown: Unknown) -> &'static str {
        match unknown {
            Unknown::Requested => "请求了多少：请再运行一次并保留完整信息",
            Unknown::Budget => {
                "卡的内存：nvidia-smi --query-gpu=name,memory.total,memory.used --format=csv"
            }
            Unknown::Settings => {
                "运行的设置：请给出配置文件，例如 fitgpt doctor log.txt config/mine.py"
            }
            Unknown::Phase => "程序当时在做什么：请保留信息上方的回溯",
            Unknown::Model => "模型：显示的设置与日志的参数量不符；请给出配置文件",
        }
    }

    fn fix(&self, fix: FixKind) -> &'static str {
        match fix {
            FixKind::SmallerBatch => "更小的微批、更多的次数：每次更新的词元数不变",
            FixKind::Compile => "编译后的代码保存更少的logits副本",
            FixKind::ShorterContext => "更短的序列；损失不能与更长的比较",
            FixKind::SmallerModel(_) => "更窄的模型",
        }
    }

    fn labels(&self) -> &'static Labels {
        const LABELS: Labels = Labels {
            did_not_fit: "{phase}，{bytes}放不下。",
            which: "它是{name} {shape} {dtype}（{confidence}）。",
            same_size: "同样大小：{others}",
            memory: "内存在哪里",
            peaks: "PyTorch中nanoGPT各阶段的张量（±7 %）→ 含上下文",
            of_budget: "共{budget}",
            advice: "常见建议在此例中的效果",
            fixes: "在nanoGPT中要改什么",
            nothing: "附近没有nanoGPT放得下的设置",
            unknown: "日志没有说明的内容",
            nanogpt: "改到放得下的nanoGPT",
            fitgpt: "fitGPT（照原样）",
            fitgpt_changed: "改到放得下的fitGPT",
            unrelated: "不是原因：{what}",
            foreign: "nanoGPT不认识{keys}，忽略了它们",
            fits: "按PyTorch的内存模型，此运行放得下。",
            dies: "按PyTorch的内存模型，此运行{phase}失败。",
            no_log: "没有找到内存不足的信息。",
            problem: "问题",
            root: "根本原因",
            config: "推荐配置",
            expected: "预计内存",
            nonsense: "信息中的这些数字不可能是真的（WSL和Windows驱动会打印）：{numbers}",
        };
        &LABELS
    }
}
