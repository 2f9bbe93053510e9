//! The texts in Japanese.

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

/// Japanese.
pub struct Japanese;

impl Catalogue for Japanese {
    fn numbers(&self) -> Numbers {
        Numbers { decimal: '.', group: ',' }
    }

    #[expect(clippy::too_many_lines, reason = "a table: one arm for each text")]
    fn cause(&self, cause: Cause) -> &'static str {
        match cause {
            Cause::Logits => {
                "原因はロジットです。バッチの各トークンと語彙の各行ごとに1つの数があり、それが何重にも存在します（交差エントロピーがコピーし、f32のlog-softmaxも作り\
                 ます）。"
            }
            Cause::StaleLogits => {
                "前の評価バッチのロジットがループの変数から参照されたまま、次のロジットが計算されます。同じ大きさのバッファが同時に2つです。グラフは保持されません（no_grad\
                 ）。"
            }
            Cause::Activations => "順伝播が逆伝播のために保存するものが収まりません。",
            Cause::AttentionScores => {
                "バッチ×ヘッド×位置×位置のアテンションスコアが収まりません。flash attentionが使われていません。"
            }
            Cause::OptimizerState => {
                "Adamは最初のステップで2つのモーメントを作ります。パラメータ1つにつき8バイトが重みと勾配に加わります。"
            }
            Cause::OptimizerStep => {
                "オプティマイザのステップで不足しました。Adamのモーメントは最初のステップからパラメータ1つにつき8バイトを使い、multi-tensor（foreach）版は\
                 パラメータと同じ大きさの一時コピーを作ります。"
            }
            Cause::Weights => {
                "モデル自体が収まりません。重み、勾配、または同時に読み込まれるものです。"
            }
            Cause::State => {
                "バッチの大きさに関係なく、重み、勾配、Adamのモーメントがカードを埋めています。"
            }
            Cause::LoadedCheckpoint => {
                "再開は新規の開始より多くのメモリを使います。torch.loadがチェックポイント（重みとAdamのモーメント、パラメータ1つにつき12バイト）をGPUに置き、変\
                 数が参照している限りモデルの隣に残ります（nanoGPTのtrain.pyはそうした参照を持ち続けます）。新規なら収まる実行でも、再開時には収まらないことがありま\
                 す。"
            }
            Cause::Request => {
                "1つの大きな要求を満たせませんでした。どのテンソルかは大きさからはわかりません。"
            }
            Cause::Full => {
                "このプロセス自身がGPUメモリを埋めています（重み、勾配、オプティマイザ状態、活性化値の合計）。失敗した要求は最後の一押しにすぎません。"
            }
            Cause::FullOfInference => {
                "このプロセス自身がGPUメモリを埋めています。学習ではないので、中身は重み、KVキャッシュ、バッチの活性化値です。失敗した要求は最後の一押しにすぎません。"
            }
            Cause::Unsaid => {
                "要求は小さいので、メモリはすでにほぼ埋まっていました。何が使っていたかはログからわかりません。"
            }
            Cause::Library => {
                "cuBLASまたはcuDNNが自身のメモリを確保できませんでした。多くの場合、その時点でカードがいっぱいです。それ以前に失敗したカーネル（範囲外のインデックスな\
                 ど）でも同じエラーになります。CUDA_LAUNCH_BLOCKING=1で見分けられます。"
            }
            Cause::FullBefore => {
                "プログラム自身がまだ何も確保していない、最初の割り当てで失敗しました。カードはすでにいっぱいだったか、他のプロセスが使っています。"
            }
            Cause::Fragmentation => "十分な量が確保済みですが、連続していません（断片化）。",
            Cause::OtherProcess => "足りない分は他のプログラムが使っています。",
            Cause::HostMemory => {
                "これはマシンのメインメモリ（RAM）であり、GPUメモリではありません。GPUの設定を変えても効果はありません。"
            }
            Cause::Killed => {
                "多くの場合、メインメモリ（RAM）またはコンテナの上限を使い切ったときにカーネルが行います。GPUの設定を変えても効果はありません。"
            }
            Cause::Contradiction => {
                "メッセージの数値が互いに矛盾しているため、原因は特定できません。考えられるのは、このプロセスへの制限、同じGPUで一時的にメモリを使った他のプロセスやランク、また\
                 は古い数値です。"
            }
            Cause::Unknown => "何がどれだけ要求されたかはログからわかりません。",
        }
    }

    #[expect(clippy::too_many_lines, reason = "a table: one arm for each text")]
    fn reason(&self, reason: Reason) -> &'static str {
        match reason {
            Reason::LastStraw => {
                "{0}は、この実行が使っている{2}の{1}です。最後の一押しであって原因ではありません。"
            }
            Reason::Block => {
                "{0}はPyTorchのアロケータのブロックです。1 MiBまでのテンソルには2 MiB、10 MiBまでには20 MiBを要求します。この大きさからテンソルはわ\
                 かりません。"
            }
            Reason::StateExceeds => {
                "パラメータは{0}個です。重み、勾配、Adamの2つのモーメントはf32で1個につき16バイト、合計{1}です。カードは{2}です。"
            }
            Reason::StateLeavesNothing => {
                "パラメータは{0}個です。重み、勾配、Adamの2つのモーメントはf32で1個につき16バイト、合計{1}です。GPUコンテキストを加えると、使える{2}のうち\
                 活性化値に残る分はありません。"
            }
            Reason::StateOf => {
                "パラメータは{0}個です。重み、勾配、Adamの2つのモーメントはf32で1個につき16バイト、合計{1}です。"
            }
            Reason::WeightsOf => "パラメータは{0}個です。重みはf32で{1}、16ビットで{2}です。",
            Reason::Beyond => {
                "それ以外の{0}は活性化値、ロジット、一時テンソルで、バッチを小さくすれば減ります。"
            }
            Reason::OthersHold => {
                "他のプログラムがカードの{1}のうち{0}を使っています。なければこの要求は収まりました。"
            }
            Reason::OthersHoldMost => "他のプログラムがカードの{1}のうち{0}を使っています。",
            Reason::OthersSmall => "他のプログラムの使用量は{0}で、ここでは決め手ではありません。",
            Reason::Pieces => {
                "{0}が確保済みで未使用、要求は{1}、空きは{2}です。連続していれば収まりました。"
            }
            Reason::PiecesToo => {
                "さらに{0}が確保済みで未使用で、要求の{1}より多いので、断片化も加わっています。"
            }
            Reason::FreeExceeds => {
                "メッセージでは空きが{0}で、要求の{1}より多くなっています。別の理由で不足しました。"
            }
            Reason::HoldsNothing => {
                "メッセージではこのプロセスの使用量が0バイトですが、PyTorchが{0}を使っている以上あり得ません。他の数値は使います。"
            }
            Reason::ReservedBelow => "確保済み{0}が割り当て済み{1}より少なく、どちらかが誤りです。",
            Reason::HeldExceeds => "{1}のカードで{0}が使用中とされており、数値が合いません。",
            Reason::Impossible => {
                "{0}はあり得ない値（負の数が符号なしで表示されたもの）なので除外します。"
            }
            Reason::SharedMemory => {
                "{1}のカードで{0}が使われています。WindowsはメインメモリをGPUに貸すので、これは実際の値で、遅くなります。"
            }
            Reason::ModelFits => {
                "本ツールの見積もりではこの実行は{1}のうち{0}（±7 %）で、収まるはずでした。その時点で他の何かがメモリを使っていたか、設定がここでわかっているものと違いま\
                 す。"
            }
            Reason::ModelExceeds => {
                "本ツールの見積もりでは実行全体で{0}（±7 %）が必要で、使えるのは{1}です。{2}超過します。"
            }
            Reason::ScoresAdd => {
                "各層が逆伝播のために自分のアテンションスコアを保持し、{1}層で{0}になります。"
            }
            Reason::PredictionsKept => {
                "Trainerは全評価バッチのロジットをGPU上に集めるため、バッチごとに増えていきます。"
            }
            Reason::ExceedsCard => {
                "{0}はカード全体の{1}より大きく、他のプログラムや断片化は関係ありません。"
            }
            Reason::CardDiffers => {
                "文中では{0}とありますが、メッセージのGPUは{1}です。メッセージの値を使います。"
            }
            Reason::Resident => "プロセスはメインメモリを{0}使っていました。",
        }
    }

    fn claim(&self, claim: Claim) -> &'static str {
        match claim {
            Claim::KvCacheInTraining => "KVキャッシュがメモリを使う",
            Claim::GraphKeptInEval => "評価がバッチの計算グラフを保持する",
            Claim::AdamAtFirstEval => "最初の評価でAdamの状態がメモリを埋める",
            Claim::EvalIsCulprit => "原因は評価である",
            Claim::EvalBatchSizeAlone => "eval_batch_sizeを小さくするだけで直る",
            Claim::EvalBatchSizeKeyExists => "eval_batch_size",
            Claim::EvalBlockSize => "eval_block_size",
            Claim::EvalIters => "eval_itersを減らす",
            Claim::EvalInterval => "eval_intervalを大きくする",
            Claim::SmallerBatch { .. } => "batch_sizeを小さく、gradient_accumulation_stepsを多く",
            Claim::ShorterContext { .. } => "block_sizeを小さく",
            Claim::SmallerModel { .. } => "モデルを小さく（n_embd）",
            Claim::Accumulation { .. } => "gradient_accumulation_stepsを増やす",
            Claim::Checkpointing => "勾配チェックポイント",
            Claim::CheckpointingHalves { .. } => "チェックポイントで活性化値が半減する",
            Claim::EmptyCache => "torch.cuda.empty_cache()",
            Claim::ExpandableSegments => "expandable_segments:True",
            Claim::MaxSplitSize => "max_split_size_mb",
            Claim::CompileOff => "compile=False",
            Claim::CompileMode => "mode='reduce-overhead'",
            Claim::SuppressErrors => "suppress_errors=True",
            Claim::KillOthers => "GPU上の他のプログラムを終了する",
            Claim::CpuOffload => "CPUで評価する",
            Claim::CpuFallback => "device='cpu'",
            Claim::LowerPrecision => "16ビット精度",
            Claim::SmallerOptimizer => "状態の小さいオプティマイザ（8ビットAdam）",
            Claim::LoraOrQuantized => "LoRAや量子化モデル",
            Claim::FlashAttention => "flash attention",
            Claim::DeleteLogits => "損失が出たらすぐロジットを解放する",
            Claim::NoGrad => "no_gradでの評価",
            Claim::MoreGpus => "GPUを増やす（DDP）",
            Claim::LargerGpu => "メモリの多いGPU",
            Claim::OtherVersion => "PyTorchやCUDAの別バージョン",
            Claim::GradScalerWarning => "GradScalerの警告",
            Claim::AutotuneWarning => "max_autotune_gemmの警告",
            Claim::ClearCache => "gc.collect()",
            Claim::Restart => "マシンやセッションの再起動",
            Claim::Fragmentation => "メモリが断片化している",
            Claim::CompileCostsMemory => "torch.compileはメモリを多く使う",
            Claim::DataLoader => "データの読み込み方を変える",
        }
    }

    fn verdict(&self, verdict: Verdict) -> &'static str {
        match verdict {
            Verdict::Suffices => "有効（これで足ります）",
            Verdict::NotAlone { .. } => "有効ですが足りません",
            Verdict::Helps => "有効",
            Verdict::CostsOnlyTime => "時間がかかるだけ",
            Verdict::DoesNothing => "ここでは効果なし",
            Verdict::Worse => "逆効果",
            Verdict::Impossible => "動きません",
            Verdict::False => "事実と異なります",
            Verdict::True => "事実です",
        }
    }

    #[expect(clippy::too_many_lines, reason = "a table: one arm for each text")]
    fn note(&self, note: Note) -> &'static str {
        match note {
            Note::Batch => {
                "batch_size={0}、gradient_accumulation_steps={1}：1回の更新のトークン数は同じです"
            }
            Note::BatchIsOne => "すでに1系列です",
            Note::NoSuchKey => {
                "nanoGPTにこのキーはありません（設定ファイルでは無視され、コマンドラインではエラーになります）。fitGPTにはあります"
            }
            Note::NoSuchKeyAndTrainingDies => {
                "nanoGPTにこのキーはなく（設定ファイルにあっても無視されます）、学習自体が{0}を必要とします"
            }
            Note::NoSuchKeyButEvalWouldFit => {
                "nanoGPTにこのキーはありません（設定ファイルにあっても無視されます）。コードを変えれば評価は収まり、学習はもともと収まります"
            }
            Note::OneBatchAtATime => {
                "評価は1バッチずつ処理するので、回数を減らしてもメモリは減りません"
            }
            Note::OnlyMovesTheMoment => "評価の回数が減るだけで、大きさは変わりません",
            Note::Context => "{0}トークンの文脈になります。損失は長い文脈のものと比べられません",
            Note::Width => "n_embd={0}の場合",
            Note::OtherModel => "init_from='{0}'",
            Note::HeadsDoNotDivide => {
                "n_embd={0}はn_head={1}で割り切れず、nanoGPTはassertで止まります。n_embd={2}なら動きます"
            }
            Note::NoNarrower => "このヘッドサイズでこれより狭いモデルはありません",
            Note::NothingToCheckpointInEval => {
                "評価は勾配なしで動き、再計算に回せる保存値がありません"
            }
            Note::CheckpointLowersActivations => {
                "nanoGPTにこのためのキーはありません。コードに加えるとここでは活性化値が{0}減り、学習は{1}から{2}になります。ロジットとオプティマイザ状態は減りませ\
                 ん"
            }
            Note::EagerTakesMore => "compileなしではロジットのコピーが増えます",
            Note::AlreadyEager => "すでにcompileなしです",
            Note::GraphsTakeMore => "CUDAグラフは専用のメモリプールを持つので、減らずに増えます",
            Note::PiecesAreEnough => "その分が確保済みのまま、断片として未使用です",
            Note::NotFragmentation => "メモリそのものが足りません。断片化が問題ではありません",
            Note::AlreadyOn => "すでに有効です",
            Note::CacheIsEmptied => "PyTorchは失敗する前に自分でキャッシュを解放します",
            Note::TrainingDiesInstead => {
                "評価はGPUから離れますが、代わりに最初の学習ステップで失敗します"
            }
            Note::EvalLeaves => "評価はGPUから離れ、何倍も時間がかかります",
            Note::OthersHold => "他のプログラムがこのカードでその分を使っています",
            Note::OthersLittle => "他のプログラムは{0}で、影響するほどではありません",
            Note::DesktopHolds => "デスクトップはカードの0.3～2 GiBを使います。この値は仮定です",
            Note::NoOthers => "このカードに他のプログラムは見えません",
            Note::SameBytes => "すでに16ビットで計算しています。float16もbfloat16も2バイトです",
            Note::EachHoldsAll => "各GPUがモデル全体、オプティマイザ状態、自分のロジットを持ちます",
            Note::DataIsNotThere => {
                "nanoGPTのデータはディスク上のファイルで、GPUメモリにはありません"
            }
            Note::SameTensors => "どのバージョンでもテンソルは同じです",
            Note::ManyTimesSlower => "動きますが、何百倍も遅くなります",
            Note::StateAlone => "重み、勾配、Adamの状態だけで収まりません",
            Note::HalfTheBytes => "活性化値とロジットが16ビットになります",
            Note::FlashAttention => "flash attentionは位置×位置の行列を作りません",
            Note::AlreadyFlash => "PyTorch 2のnanoGPTはすでに使っています",
            Note::NoKvCache => {
                "学習にもnanoGPTの評価にもKVキャッシュはありません。バッチは一度に計算され、何も残りません"
            }
            Note::NoGraph => {
                "estimate_loss()はtorch.no_grad()の中で動き、グラフは保持されません。残るのは最後のバッチのロジット{0}だけです"
            }
            Note::AdamComesLater => {
                "Adamのモーメント（{0}）は最初のオプティマイザステップで、つまり最初の評価の後に作られます"
            }
            Note::AdamIsLoaded => {
                "この実行は再開なので、Adamのモーメント（{0}）は最初から読み込まれています"
            }
            Note::TrainingIsThePeak => "ピークは学習です。学習は{0}、評価は{1}を必要とします",
            Note::EvalIsThePeak => "評価は{0}、学習は{1}を必要とします",
            Note::TrainingStillNeeds => "学習には依然として{0}が必要で、空きは{1}です",
            Note::HidesCompilerErrors => {
                "コンパイラのエラーを隠すだけで、アロケータのエラーは残ります"
            }
            Note::AccumulationAlone => {
                "バッチを小さくしたときに1回の更新のトークン数を保つためのもので、それだけではピークは変わりません"
            }
            Note::SmallMoments => {
                "1バイトのモーメントで{0}節約できます。nanoGPTにそのキーはありません"
            }
            Note::OnlyForFineTuning => "学習済みモデルの微調整用で、一からの学習には使えません",
            Note::NeedsThatMuch => "この実行には{0}が必要です",
            Note::AlreadyNoGrad => "nanoGPTの評価にはすでにあります",
            Note::LogitsDropped => {
                "nanoGPTのコードを2行変えます。逆伝播は自分のコピーを持ち続けます"
            }
            Note::NothingToCollect => {
                "PyTorchは参照がなくなったテンソルをすぐ解放するので、ガベージコレクタが回収するものはありません"
            }
            Note::SameNeed => {
                "その後も必要量は同じです。終了したはずのプロセスがメモリを持っていた場合にだけ有効です"
            }
            Note::CompiledAndEager => "compileありで{0}、なしで{1}です",
            Note::UnrelatedWarning => "メモリとは関係のない警告です",
        }
    }

    #[expect(clippy::too_many_lines, reason = "a table: one arm for each text")]
    fn remedy(&self, remedy: Remedy) -> &'static str {
        match remedy {
            Remedy::SeeNvidia => {
                "nvidia-smiでカードを使っているプロセスがわかります。終了するか、CUDA_VISIBLE_DEVICESで別のGPUを選んでください"
            }
            Remedy::SeeRocm => {
                "rocm-smi --showpids --showmeminfo vramでカードの使用者がわかります。終了するか、HIP_VISIBLE_DEVICESで別の\
                 GPUを選んでください"
            }
            Remedy::SeeDevices => "fitgpt devicesは、このマシンの各GPUの空きを表示します",
            Remedy::Expandable => {
                "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:TrueでPyTorchが空きの断片をつなげられます"
            }
            Remedy::ExpandableRocm => {
                "PYTORCH_HIP_ALLOC_CONF=expandable_segments:Trueで、ROCm版が対応していればPyTorchが空きの断片をつなげられ\
                 ます"
            }
            Remedy::TrainerBatch => {
                "per_device_train_batch_sizeを小さく、gradient_accumulation_stepsを多く：1回の更新のトークン数は同じです"
            }
            Remedy::TrainerCheckpointing => {
                "gradient_checkpointing=True：活性化値を再計算します（計算は約3分の1増）。use_cache=Falseも設定してください"
            }
            Remedy::TrainerPrecision => {
                "bf16=True（Ampereより前のカードはfp16=True）：活性化値のメモリが半分になります"
            }
            Remedy::TrainerOptimizer => {
                "optim=\"adafactor\"または\"adamw_bnb_8bit\"：モーメントがパラメータあたり8バイトから2バイト以下になります"
            }
            Remedy::TrainerEval => {
                "per_device_eval_batch_sizeを小さく、eval_accumulation_stepsと\
                 preprocess_logits_for_metricsを設定してください。しないとTrainerは評価全体のロジットをGPUに保持します"
            }
            Remedy::NanochatBatch => {
                "device_batch_sizeを半分に（--device_batch_size=16、8、…）：全体のバッチは同じで、累積回数が増えます"
            }
            Remedy::LlmcBatch => {
                "バッチを小さく：train_gpt2cuは-b、train_gpt2.pyは--batch_size。-r 1や-r 2で活性化値を再計算します"
            }
            Remedy::LitgptBatch => {
                "micro_batch_sizeを小さく（--train.micro_batch_size）：全体のバッチは同じです"
            }
            Remedy::LitgptPrecision => {
                "7Bモデルの重みはf32で26 GiB、16ビットで13 GiB、f32の勾配とAdamを含めると105 GiBです。それより小さい1枚のカードでは\
                 bf16-trueのアダプタかLoRAだけが収まります。複数枚で分けることもできます（FSDP）"
            }
            Remedy::TensorflowBatch => "バッチを小さく：メッセージの形状の先頭がバッチです",
            Remedy::TensorflowGrowth => {
                "set_memory_growthは起動時にカード全体を確保するのを止めますが、モデルに必要な量は減りません"
            }
            Remedy::Batch => {
                "GPUあたりのバッチを小さくし、勾配累積で更新を同じに：活性化値とロジットがそれだけ減ります"
            }
            Remedy::Checkpointing => {
                "活性化値がカードを埋めているなら、アクティベーションチェックポイント（計算は約3分の1増）"
            }
            Remedy::Precision => {
                "f32で計算しているなら16ビットのautocast：活性化値が半分になります"
            }
            Remedy::Attention => {
                "位置×位置の行列を作らないアテンション（scaled_dot_product_attention、flash attention）、または短い系列"
            }
            Remedy::SmallerState => {
                "バッチを変えても効果はありません。パラメータを減らす、16ビットの重みと8ビットのオプティマイザ、LoRA、または複数GPUへの分割（FSDP、ZeRO-3）"
            }
            Remedy::Foreach => {
                "AdamW(foreach=False)かfused=True：multi-tensor版は全パラメータと同じ大きさの一時コピーを作ります"
            }
            Remedy::LoadOnHost => {
                "torch.load(path, map_location=\"cpu\")とし、load_state_dictの後でチェックポイントとstate_dictを削除\
                 してください"
            }
            Remedy::ChunkedLoss => {
                "損失をトークンの塊ごとに計算し、ロジット全体を同時に持たないようにする"
            }
            Remedy::HostMemory => {
                "データを一度に読み込まず分割して読む・トークン化する、DataLoaderのワーカーを減らす、RAMやスワップを増やす"
            }
            Remedy::HostKilled => {
                "dmesg | grep -i killで、カーネルが終了させたプロセスと使用量がわかります"
            }
            Remedy::PageFile => {
                "ページファイルを大きくする：RAMとページファイルを合わせて使い切るとWindowsは割り当てを拒否します（システム、詳細設定、パフォーマンス、仮想メモリ）"
            }
            Remedy::BatchIsOne => {
                "バッチはすでに1系列です：系列を短くする、モデルを小さくする、または学習するパラメータを減らす（LoRA）"
            }
            Remedy::Inference => {
                "重みを16ビットにする、または8ビットや4ビットに量子化する。バッチを小さくする、文脈を短くする、または一部の層をCPUに置く"
            }
            Remedy::JaxPreallocates => {
                "JAXは起動時にカードの75 %を確保します。XLA_PYTHON_CLIENT_PREALLOCATE=falseで実際の必要量がわかりますが、必要量そのもの\
                 は減りません"
            }
            Remedy::Watermark => {
                "PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0は上限を外すだけで必要量は減りません。Macがスワップしたり固まったりすることがあります。\
                 減らすにはバッチを小さく"
            }
            Remedy::WindowsShared => {
                "Windowsはカードがいっぱいになるとメインメモリを貸すので、エラーの代わりに遅くなります。NVIDIAコントロールパネルの「CUDA - Sysmem \
                 Fallback Policy」で無効にできます"
            }
            Remedy::Wsl => {
                "WSL2ではWindowsのデスクトップやアプリもカードを使います。Windows側のnvidia-smiで確認し、閉じるとメモリが空きます"
            }
            Remedy::Unsupported => {
                "fitGPTにはAmpere世代以降（sm_80）のNVIDIA GPUが必要で、このカードはそれより前のものです"
            }
            Remedy::UseWsl => {
                "fitGPTはLinuxで動きます。WindowsではWSL2（wsl --install）を使えば同じGPUが見えます"
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
            FixKind::SmallerModel(_) => "小さいモデル",
        }
    }

    fn change(&self, change: Change) -> &'static str {
        match change {
            Change::Evaluation => "評価専用のバッチサイズ、ロジットを保持しない",
            Change::Checkpointing => "逆伝播でブロックを再計算",
            Change::Loading => "チェックポイントをメインメモリに読み込む",
        }
    }

    fn limit(&self, change: Change) -> &'static str {
        match change {
            Change::Evaluation => {
                "評価のバッチサイズを変えると2つ目のグラフがコンパイルされ、系列が減るぶん損失のばらつきが増えます。eval_itersを増やしてください。"
            }
            Change::Checkpointing => {
                "再計算で計算量は約3分の1増えます。ロジットとオプティマイザ状態は変わりません。"
            }
            Change::Loading => {
                "読み込みに少し時間がかかり、チェックポイントと同じ量のメインメモリを使います。"
            }
        }
    }

    fn what(&self, what: What) -> &'static str {
        match what {
            What::Parameters => "パラメータ",
            What::Copies => "重みの16ビットコピー（autocast）",
            What::Gradients => "勾配",
            What::Adam => "Adamのモーメント",
            What::Activations => "逆伝播のために保存した活性化値",
            What::Logits => "ロジットと損失計算での派生テンソル",
            What::StaleLogits => "前のバッチのロジット（まだ参照中）",
            What::Workspace => "cuBLASのワークスペース",
            What::Tokens => "バッチ",
            What::Unexplained => "見積もりで説明できないテンソル",
            What::Tensors => "PyTorchのテンソル",
            What::Fragments => "PyTorchが確保済みで未使用の領域",
            What::Context => "このプロセスのPyTorch以外（GPUコンテキスト、ライブラリ）",
            What::Process => "このプロセス",
            What::Outside => {
                "PyTorch以外：このプロセスのコンテキスト（0.3～0.8 GiB）と他のプログラム"
            }
            What::Unsaid => "このプロセスか他のプログラムが使用中（メッセージに記載なし）",
            What::Others => "他のプログラム",
            What::Free => "空き",
        }
    }

    fn tensor(&self, tensor: TensorKind) -> &'static str {
        match tensor {
            TensorKind::Parameter => "重み{name}",
            TensorKind::Copy => "{name}の16ビットコピー",
            TensorKind::Gradient => "{name}の勾配",
            TensorKind::FirstMoment => "{name}のAdam exp_avg",
            TensorKind::SecondMoment => "{name}のAdam exp_avg_sq",
            TensorKind::Moment => "Adamのモーメントの1つ",
            TensorKind::WeightOrGradient => "重みまたはその勾配",
            TensorKind::Tokens => "トークンIDのバッチ",
            TensorKind::Workspace => "cuBLASのワークスペース",
            TensorKind::Logits => "ロジット",
            TensorKind::LogitsInF32 => "f32のロジット",
            TensorKind::EvalLogits => "評価バッチのロジット",
            TensorKind::NextEvalLogits => "次の評価バッチのロジット",
            TensorKind::LogitsCopy => "交差エントロピー内のロジットのコピー",
            TensorKind::LogSoftmax => "ロジットのlog-softmax",
            TensorKind::LogSoftmaxGradient => "log-softmaxの勾配",
            TensorKind::LogitsGradient => "ロジットの勾配",
            TensorKind::ZeroGradient => "ロジットのゼロ勾配",
            TensorKind::AttentionScores => "アテンションスコア",
            TensorKind::Buffer => "コンパイル済みコードのバッファ",
            TensorKind::Tensor => "テンソル",
            TensorKind::Embeddings => "埋め込み",
            TensorKind::PositionEmbeddings => "位置埋め込み",
            TensorKind::TokenEmbeddings => "トークン埋め込み",
            TensorKind::DropoutMask => "{name}のドロップアウトマスク",
            TensorKind::Input => "ブロック{name}の入力",
            TensorKind::Residual => "残差ストリーム{name}",
            TensorKind::Norm => "LayerNormの出力{name}",
            TensorKind::Qkv => "q, k, v {name}",
            TensorKind::Attention => "アテンションの出力{name}",
            TensorKind::BeforeGelu => "GELU前のMLP {name}",
            TensorKind::AfterGelu => "GELU後のMLP {name}",
            TensorKind::Statistics => "LayerNormとアテンションの統計{name}",
            TensorKind::ResidualGradient => "残差ストリームの勾配",
            TensorKind::MlpGradient => "MLPの勾配",
        }
    }

    fn confidence(&self, confidence: Confidence) -> &'static str {
        match confidence {
            Confidence::Possible => "可能性あり",
            Confidence::Likely => "おそらく",
            Confidence::Certain => "確実",
        }
    }

    fn phase(&self, phase: LogPhase) -> &'static str {
        match phase {
            LogPhase::FirstEval => "最初の評価中（学習ステップの前）に",
            LogPhase::Eval => "評価中に",
            LogPhase::Forward => "学習の順伝播中に",
            LogPhase::Backward => "逆伝播中に",
            LogPhase::Optimizer => "オプティマイザのステップで",
            LogPhase::Resume => "チェックポイントの読み込み中に",
            LogPhase::Load => "モデルをGPUに移す際に",
            LogPhase::Sample => "文章の生成中に",
            LogPhase::Unknown => "不明な段階で",
        }
    }

    fn phase_name(&self, phase: Phase) -> &'static str {
        match phase {
            Phase::FirstEval => "最初の評価",
            Phase::Forward => "順伝播",
            Phase::Backward => "逆伝播",
            Phase::Optimizer => "オプティマイザ",
            Phase::Eval => "以降の評価",
        }
    }

    fn program(&self, program: Program) -> &'static str {
        match program {
            Program::NanoGpt => "nanoGPT",
            Program::NanoGptFork => "nanoGPTのフォーク",
            Program::Nanochat => "nanochat",
            Program::LlmC => "llm.c",
            Program::LitGpt => "LitGPT",
            Program::HfTransformers => "Hugging Face transformers",
            Program::TensorFlow => "TensorFlow",
            Program::Jax => "JAX",
            Program::Fitgpt => "fitGPT",
            Program::OtherTorch => "PyTorchのプログラム",
            Program::Unknown => "不明なプログラム",
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
            Unknown::Program => {
                "このプログラムが何をいつ割り当てるか：ここで見積もれるのはnanoGPTのメモリだけです"
            }
        }
    }

    fn refusal(&self, refusal: Refusal) -> &'static str {
        match refusal {
            Refusal::NoInput => {
                "ログ（ファイル、または標準入力なら-）、設定ファイル、またはその両方を指定してください。fitgpt doctor --helpを参照"
            }
            Refusal::TwoForms => "--jsonと--markdownは別の形式です。どちらか一方を指定してください",
            Refusal::SecondLog => "ログは1つずつ指定してください。'{name}'は2つ目です",
            Refusal::BadSize => "{flag} '{name}'：'11.69GiB'や'8GB'のように書いてください",
        }
    }

    fn labels(&self) -> &'static Labels {
        &LABELS
    }
}
