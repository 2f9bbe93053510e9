//! The texts in Japanese.

use crate::account::What;
use crate::advice::{Advice, Note, Verdict};
use crate::diagnosis::{Cause, Unknown};
use crate::fixes::FixKind;
use crate::log::LogPhase;
use crate::tensor::Confidence;
use crate::words::{Catalogue, Labels};

/// Japanese.
pub struct Japanese;

impl Catalogue for Japanese {
    fn note(&self, note: Note) -> &'static str {
        match note {
            Note::HalfBatch => "バッチを半分、マイクロバッチを2倍に：1回の更新のトークン数は同じ",
            Note::BatchIsOne => "すでに1系列です",
            Note::NoSuchKeyAndTrainingDies => {
                "nanoGPTにこのキーはなく（設定ファイルにあっても無視されます）、学習自体も収まりません"
            }
            Note::NoSuchKeyButEvalWouldFit => {
                "nanoGPTにこのキーはありません（設定ファイルにあっても無視されます）。あれば評価は収まり、学習も収まります"
            }
            Note::OneBatchAtATime => {
                "評価のバッチは1つずつ処理されるので、数を減らしてもメモリは減りません"
            }
            Note::OnlyMovesTheMoment => "評価の回数が減るだけで、大きさは変わりません",
            Note::HalfContext => "文脈が半分になり、損失は長いものと比べられません",
            Note::Narrower => "ヘッドを1つ減らす",
            Note::NoNarrower => "このヘッドサイズでこれより狭いモデルはありません",
            Note::NothingToCheckpointInEval => {
                "評価は勾配なしで動き、再計算できる保存値はありません"
            }
            Note::CheckpointLowersActivations => {
                "nanoGPTにこのキーはありません。実装すれば活性化値は減りますが、ロジットやオプティマイザ状態は減りません"
            }
            Note::EagerTakesMore => "compileなしではロジットのコピーが増えます",
            Note::AlreadyEager => "すでにcompileなしです",
            Note::GraphsTakeMore => "CUDAグラフは専用のメモリプールを持つので、減らずに増えます",
            Note::PiecesAreEnough => "その分が断片として予約済みで未使用です",
            Note::NotFragmentation => "メモリそのものが足りません。断片化ではありません",
            Note::AlreadyOn => "すでに有効です",
            Note::CacheIsEmptied => "PyTorchはあきらめる前に自分でキャッシュを空にします",
            Note::TrainingDiesInstead => "評価はGPUから消えますが、最初の学習ステップで落ちます",
            Note::EvalLeaves => "評価はGPUを使わず、何倍も時間がかかります",
            Note::OthersHold => "他のプログラムがこのカードでその分を使っています",
            Note::NoOthers => "このカードに他のプログラムは見えません",
            Note::SameBytes => "どちらも2バイトです",
            Note::EachHoldsAll => "各GPUがモデル全体、オプティマイザ状態、自分のロジットを持ちます",
            Note::DataIsNotThere => {
                "nanoGPTのデータはディスク上のファイルで、GPUメモリにはありません"
            }
            Note::SameTensors => "どのバージョンでもテンソルは同じです",
            Note::ManyTimesSlower => "動きますが、何百倍も遅くなります",
            Note::FitsAlready => "この実行はそのまま収まります",
            Note::StateAlone => "重み、勾配、Adamの状態だけで収まりません",
            Note::HalfTheBytes => "活性化値とロジットが16ビットになります",
            Note::FlashAttention => "flash attentionは位置×位置を作りません",
        }
    }

    fn advice(&self, advice: Advice) -> &'static str {
        match advice {
            Advice::SmallerBatch => "batch_sizeを小さく、gradient_accumulation_stepsを多く",
            Advice::EvalBatchSize => "eval_batch_size",
            Advice::EvalBlockSize => "eval_block_size",
            Advice::EvalIters => "eval_itersを減らす",
            Advice::EvalInterval => "eval_intervalを大きく",
            Advice::BlockSize => "block_sizeを小さく",
            Advice::SmallerModel => "n_embdを小さく",
            Advice::GradCheckpoint => "勾配チェックポイント",
            Advice::CompileOff => "compile=False",
            Advice::ReduceOverhead => "mode='reduce-overhead'",
            Advice::ExpandableSegments => "expandable_segments:True",
            Advice::EmptyCache => "torch.cuda.empty_cache()",
            Advice::EvalOnCpu => "CPUで評価",
            Advice::OtherPrograms => "GPUの他のプログラムを終了",
            Advice::Float16 => "bfloat16の代わりにfloat16",
            Advice::MoreGpus => "GPUを増やす（DDP）",
            Advice::Preloading => "データの読み込み方を変える",
            Advice::NewerTorch => "新しいPyTorchやCUDA",
            Advice::DeviceCpu => "device='cpu'",
        }
    }

    fn confidence(&self, confidence: Confidence) -> &'static str {
        match confidence {
            Confidence::Possible => "可能性あり",
            Confidence::Likely => "おそらく",
            Confidence::Certain => "確実",
        }
    }

    fn what(&self, what: What) -> &'static str {
        match what {
            What::Parameters => "パラメータ",
            What::Copies => "重みの16ビットコピー（autocast）",
            What::Gradients => "勾配",
            What::Adam => "Adamのモーメント",
            What::Activations => "逆伝播のために保存した活性化値",
            What::Logits => "ロジットと損失計算での派生",
            What::StaleLogits => "前のバッチのロジット（まだ参照中）",
            What::Workspace => "cuBLASの作業領域",
            What::Tokens => "バッチ",
            What::Unexplained => "このモデルで説明できないテンソル",
            What::Fragments => "PyTorchが予約しどのテンソルでもない分",
            What::Context => "CUDAコンテキスト、カーネル、ライブラリ",
            What::Others => "他のプログラム",
            What::Free => "空き",
        }
    }

    fn cause(&self, cause: Cause) -> &'static str {
        match cause {
            Cause::Logits => {
                "原因はロジットです。バッチの各トークンと語彙の各行ごとに1つの数で、それが何重にも存在します（交差エントロピーがコピーし、f32のlog-softmaxも作\
                 ります）。"
            }
            Cause::StaleLogits => {
                "前の評価バッチのロジットがループの変数から参照されたまま、次のバッチのロジットが作られます。同じ大きさのバッファが同時に2つです。グラフは保持されません（n\
                 o_grad）。"
            }
            Cause::Activations => "順伝播が逆伝播のために保存するものが収まりません。",
            Cause::AttentionScores => {
                "位置×位置の注意スコアが収まりません。flash attentionが使われていません。"
            }
            Cause::OptimizerState => {
                "Adamは最初のステップで2つのモーメントを作ります。パラメータ1つにつき8バイトが重みと勾配に加わります。"
            }
            Cause::Weights => {
                "モデル自体が収まりません。重み、勾配、または同時に読み込まれるものです。"
            }
            Cause::Fragmentation => "十分な量が予約されていますが、連続していません。",
            Cause::OtherProcess => "足りない分は他のプログラムが使っています。",
            Cause::Unknown => "どのテンソルかはログからわかりません。",
        }
    }

    fn phase(&self, phase: LogPhase) -> &'static str {
        match phase {
            LogPhase::FirstEval => "最初の評価中（学習ステップの前）に",
            LogPhase::Eval => "評価中に",
            LogPhase::Forward => "学習の順伝播中に",
            LogPhase::Backward => "逆伝播中に",
            LogPhase::Optimizer => "オプティマイザのステップで",
            LogPhase::Load => "モデルをGPUに載せるときに",
            LogPhase::Resume => "チェックポイントの読み込み中に",
            LogPhase::Sample => "文章の生成中に",
            LogPhase::Unknown => "ログからわからない時点で",
        }
    }

    fn verdict(&self, verdict: Verdict) -> &'static str {
        match verdict {
            Verdict::Helps => "有効",
            Verdict::CostsOnlyTime => "時間がかかるだけ",
            Verdict::DoesNothing => "ここでは効果なし",
            Verdict::Wrong => "誤り",
        }
    }

    fn unknown(&self, unknown: Unknown) -> &'static str {
        match unknown {
            Unknown::Requested => "要求量：もう一度実行してメッセージ全体を保存してください",
            Unknown::Budget => {
                "カードのメモリ量：nvidia-smi --query-gpu=name,memory.total,memory.used --format=csv"
            }
            Unknown::Settings => {
                "実行の設定：設定ファイルを指定してください（例：fitgpt doctor log.txt config/mine.py）"
            }
            Unknown::Phase => {
                "プログラムが何をしていたか：メッセージの上のトレースバックを残してください"
            }
            Unknown::Model => {
                "モデル：表示された設定のパラメータ数がログと合いません。設定ファイルを指定してください"
            }
        }
    }

    fn fix(&self, fix: FixKind) -> &'static str {
        match fix {
            FixKind::SmallerBatch => {
                "マイクロバッチを小さく、数を多く：1回の更新のトークン数は同じ"
            }
            FixKind::Compile => "compileするとロジットのコピーが減ります",
            FixKind::ShorterContext => "短い系列：損失は長いものと比べられません",
            FixKind::SmallerModel(_) => "幅の狭いモデル",
        }
    }

    fn labels(&self) -> &'static Labels {
        const LABELS: Labels = Labels {
            did_not_fit: "{phase}{bytes}が収まりませんでした。",
            which: "それは{name} {shape} {dtype}です（{confidence}）。",
            same_size: "同じ大きさ：{others}",
            memory: "メモリの内訳",
            peaks: "PyTorchでのnanoGPTのテンソル（段階別、±7 %）→ コンテキスト込み",
            of_budget: "/ {budget}",
            advice: "よくある助言、この場合の評価",
            fixes: "nanoGPTで変えること",
            nothing: "近い設定でnanoGPTが収まるものはありません",
            unknown: "ログからわからないこと",
            nanogpt: "収まるように変えたnanoGPT",
            fitgpt: "fitGPT（入力のまま）",
            fitgpt_changed: "収まるように変えたfitGPT",
            unrelated: "原因ではありません：{what}",
            foreign: "nanoGPTは{keys}を知らず、無視しました",
            fits: "PyTorchのメモリモデルでは、この実行は収まります。",
            dies: "PyTorchのメモリモデルでは、この実行は{phase}落ちます。",
            no_log: "メモリ不足のメッセージは見つかりませんでした。",
            problem: "問題",
            root: "原因",
            config: "推奨設定",
            expected: "予想されるメモリ",
            nonsense: "メッセージのこれらの数はあり得ません（WSLやWindowsのドライバが出します）：{numbers}",
        };
        &LABELS
    }
}
