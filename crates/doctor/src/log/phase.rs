//! The phase that frames or sentences imply, for any program.

use super::frames::Frame;
use super::text::Line;

/// The phase in which a run failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LogPhase {
    /// `estimate_loss()` before the first step.
    FirstEval,
    /// A later evaluation.
    Eval,
    /// A forward pass of training.
    Forward,
    /// A backward pass.
    Backward,
    /// The optimizer.
    Optimizer,
    /// Moving the model to the device, before any step.
    Load,
    /// Loading a checkpoint.
    Resume,
    /// Generating text.
    Sample,
    /// The log does not say.
    #[default]
    Unknown,
}

impl LogPhase {
    /// Its name in JSON documents.
    pub const fn name(self) -> &'static str {
        match self {
            LogPhase::FirstEval => "first_eval",
            LogPhase::Eval => "eval",
            LogPhase::Forward => "forward",
            LogPhase::Backward => "backward",
            LogPhase::Optimizer => "optimizer",
            LogPhase::Load => "load",
            LogPhase::Resume => "resume",
            LogPhase::Sample => "sample",
            LogPhase::Unknown => "unknown",
        }
    }
}

/// What a frame must have.
#[derive(Clone, Copy)]
enum Sign {
    /// A function of this name, perhaps a method.
    Function(&'static str),
    /// These words in the line of code.
    Code(&'static str),
    /// A file of this name.
    File(&'static str),
}

use Sign::{Code, File, Function};

/// Signs of a phase.
const SIGNS: [(Sign, LogPhase); 57] = [
    (Function("estimate_loss"), LogPhase::Eval),
    (Function("evaluate"), LogPhase::Eval),
    (Function("evaluation_loop"), LogPhase::Eval),
    (Function("prediction_step"), LogPhase::Eval),
    (Function("validate"), LogPhase::Eval),
    (Function("validation_step"), LogPhase::Eval),
    (Function("eval_step"), LogPhase::Eval),
    (Function("evaluate_bpb"), LogPhase::Eval),
    (Function("predict"), LogPhase::Eval),
    (Code("trainer.predict("), LogPhase::Eval),
    (Code("estimate_loss("), LogPhase::Eval),
    (Code("evaluate("), LogPhase::Eval),
    (Code("validate("), LogPhase::Eval),
    (Code("torch.load("), LogPhase::Resume),
    (Code("load_state_dict("), LogPhase::Resume),
    (Code("load_checkpoint("), LogPhase::Resume),
    (Function("load_state_dict"), LogPhase::Resume),
    (Function("load_checkpoint"), LogPhase::Resume),
    (Function("_load_from_checkpoint"), LogPhase::Resume),
    (Code(".generate("), LogPhase::Sample),
    (Function("generate"), LogPhase::Sample),
    (Function("generate_text"), LogPhase::Sample),
    (Code("model.to("), LogPhase::Load),
    (Code("model.cuda("), LogPhase::Load),
    (Code(".from_pretrained("), LogPhase::Load),
    (Function("from_pretrained"), LogPhase::Load),
    (Function("_move_model_to_device"), LogPhase::Load),
    (Function("load_model"), LogPhase::Load),
    (Function("_apply"), LogPhase::Load),
    (Function("_init_group"), LogPhase::Optimizer),
    (Code("scaler.step("), LogPhase::Optimizer),
    (Code("optimizer.step("), LogPhase::Optimizer),
    (Code("optim.step("), LogPhase::Optimizer),
    (Code("opt.step("), LogPhase::Optimizer),
    (Code("clip_grad_norm_("), LogPhase::Optimizer),
    (Function("optimizer_step"), LogPhase::Optimizer),
    (File("adamw.py"), LogPhase::Optimizer),
    (File("adam.py"), LogPhase::Optimizer),
    (File("optimizer.py"), LogPhase::Optimizer),
    (Code(".backward("), LogPhase::Backward),
    (Function("backward"), LogPhase::Backward),
    (Function("_engine_run_backward"), LogPhase::Backward),
    (Code("run_backward("), LogPhase::Backward),
    (Code("tape.gradient("), LogPhase::Backward),
    (Code("model(X, Y)"), LogPhase::Forward),
    (Code("loss = model("), LogPhase::Forward),
    (Code("outputs = model("), LogPhase::Forward),
    (Code("output = model("), LogPhase::Forward),
    (Code("logits = model("), LogPhase::Forward),
    (Code("self.model("), LogPhase::Forward),
    (Function("training_step"), LogPhase::Forward),
    (Function("train_step"), LogPhase::Forward),
    (Function("compute_loss"), LogPhase::Forward),
    (Function("forward"), LogPhase::Forward),
    (Function("cross_entropy"), LogPhase::Forward),
    (Function("train_one_epoch"), LogPhase::Forward),
    (Function("train_epoch"), LogPhase::Forward),
];

fn of_frame(frame: &Frame) -> Option<LogPhase> {
    let method = frame.function.rsplit('.').next().unwrap_or("");
    let fits = |sign: &Sign| match sign {
        Function(name) => method == *name,
        Code(words) => frame.code.contains(words),
        File(name) => frame.file == *name,
    };
    SIGNS.iter().find(|(sign, _)| fits(sign)).map(|(_, phase)| *phase)
}

/// The phase of a stack, outermost frame first. Everything inside an evaluation is evaluation, and
/// a backward pass may recompute a forward pass; but a training step contains all phases, and an
/// optimizer may call the step as a closure.
pub fn of_frames(frames: &[Frame]) -> LogPhase {
    let mut phase = LogPhase::Unknown;
    for found in frames.iter().filter_map(of_frame) {
        phase = match (phase, found) {
            (LogPhase::Unknown | LogPhase::Forward, found) => found,
            (LogPhase::Optimizer, LogPhase::Forward | LogPhase::Backward | LogPhase::Eval) => found,
            // A model is moved to the device inside the code that loads a checkpoint or evaluates.
            (LogPhase::Load, LogPhase::Resume | LogPhase::Sample) => found,
            (phase, _) => phase,
        };
    }
    phase
}

/// The phase that a node of TensorFlow's graph implies.
pub fn of_nodes(lines: &[Line]) -> LogPhase {
    const NODES: [(&str, LogPhase); 3] = [
        ("gradients/", LogPhase::Backward),
        ("gradient_tape/", LogPhase::Backward),
        ("/Adam/", LogPhase::Optimizer),
    ];
    // Errors that only one phase has: a context that cannot be made, a server without a cache.
    const ERRORS: [(&str, LogPhase); 2] = [
        ("cuDevicePrimaryCtxRetain", LogPhase::Load),
        ("memory for the cache blocks", LogPhase::Sample),
    ];
    let of_error = |line: &Line| {
        let found = ERRORS.iter().find(|(words, _)| line.text.contains(words));
        found.map(|(_, phase)| *phase)
    };
    if let Some(phase) = lines.iter().find_map(of_error) {
        return phase;
    }
    let node = lines.iter().rev().find(|line| line.text.contains("[[") && line.text.len() < 4000);
    let found = node.and_then(|line| NODES.iter().find(|(words, _)| line.text.contains(words)));
    found.map_or(LogPhase::Unknown, |(_, phase)| *phase)
}

/// Words of sentences in lower case, in five languages. The first row that fits decides.
const WORDS: [(&str, LogPhase); 56] = [
    ("estimate_loss", LogPhase::Eval),
    ("during eval", LogPhase::Eval),
    ("in evaluation", LogPhase::Eval),
    ("while evaluating", LogPhase::Eval),
    ("during validation", LogPhase::Eval),
    ("at evaluation", LogPhase::Eval),
    ("while running eval", LogPhase::Eval),
    ("when it comes to evaluation", LogPhase::Eval),
    ("während der evaluation", LogPhase::Eval),
    ("während der auswertung", LogPhase::Eval),
    ("bei der auswertung", LogPhase::Eval),
    ("bei der evaluation", LogPhase::Eval),
    ("während der validierung", LogPhase::Eval),
    ("評価中", LogPhase::Eval),
    ("評価時", LogPhase::Eval),
    ("損失推定", LogPhase::Eval),
    ("検証中", LogPhase::Eval),
    ("评估期间", LogPhase::Eval),
    ("评估时", LogPhase::Eval),
    ("评估阶段", LogPhase::Eval),
    ("评估过程", LogPhase::Eval),
    ("验证时", LogPhase::Eval),
    ("pendant l'évaluation", LogPhase::Eval),
    ("lors de l'évaluation", LogPhase::Eval),
    ("durant l'évaluation", LogPhase::Eval),
    ("resume training", LogPhase::Resume),
    ("resuming", LogPhase::Resume),
    ("loading the checkpoint", LogPhase::Resume),
    ("load the checkpoint", LogPhase::Resume),
    ("checkpoint is loaded", LogPhase::Resume),
    ("laden des checkpoints", LogPhase::Resume),
    ("チェックポイントの読み込み", LogPhase::Resume),
    ("加载检查点", LogPhase::Resume),
    ("恢复训练", LogPhase::Resume),
    ("chargement du checkpoint", LogPhase::Resume),
    ("reprise de l'entraînement", LogPhase::Resume),
    ("while generating", LogPhase::Sample),
    ("during inference", LogPhase::Sample),
    ("during generation", LogPhase::Sample),
    ("推理时", LogPhase::Sample),
    ("optimizer.step", LogPhase::Optimizer),
    ("optimizer step", LogPhase::Optimizer),
    ("optimierer", LogPhase::Optimizer),
    ("backward pass", LogPhase::Backward),
    ("backpropagation", LogPhase::Backward),
    (".backward()", LogPhase::Backward),
    ("rückwärts", LogPhase::Backward),
    ("逆伝播中", LogPhase::Backward),
    ("反向传播时", LogPhase::Backward),
    ("rétropropagation", LogPhase::Backward),
    ("forward pass", LogPhase::Forward),
    ("vorwärts", LogPhase::Forward),
    ("順伝播中", LogPhase::Forward),
    ("前向传播时", LogPhase::Forward),
    ("passe avant", LogPhase::Forward),
    ("loading the model", LogPhase::Load),
];

/// Words without which a sentence is not about the failure.
const FAILURE: [&str; 24] = [
    "out of memory",
    "oom",
    "out-of-memory",
    "fail",
    "crash",
    "error",
    "overflow",
    "fehler",
    "speicherüberlauf",
    "bricht ab",
    "abbruch",
    "不足",
    "エラー",
    "失敗",
    "オーバーフロー",
    "クラッシュ",
    "报错",
    "错误",
    "溢出",
    "失败",
    "崩溃",
    "erreur",
    "échoue",
    "mémoire insuffisante",
];

/// Words that say that it is the first one.
const FIRST: [&str; 12] = [
    "first",
    "initial",
    "before training",
    "erste",
    "anfäng",
    "初期",
    "最初",
    "初回",
    "首次",
    "初始",
    "第一次",
    "premi",
];

/// The phase that a sentence about the failure names. Recommendations do not count.
pub fn of_sentences(lines: &[Line]) -> LogPhase {
    let told = lines.iter().filter(|line| line.told && !line.advice && !line.fenced);
    for line in told {
        let lower = line.text.to_lowercase();
        for sentence in lower.split(['。', '!', '?', ';']).flat_map(|part| part.split(". ")) {
            let has = |table: &[&str]| table.iter().any(|words| sentence.contains(words));
            if !has(&FAILURE) {
                continue;
            }
            match WORDS.iter().find(|(words, _)| sentence.contains(words)) {
                Some((_, LogPhase::Eval)) if has(&FIRST) => return LogPhase::FirstEval,
                Some((_, phase)) => return *phase,
                None => {}
            }
        }
    }
    LogPhase::Unknown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(frames: &[(&str, &str)]) -> LogPhase {
        let frame = |(function, code): &(&str, &str)| Frame {
            file: "x.py".to_string(),
            function: function.to_string(),
            code: code.to_string(),
        };
        of_frames(&frames.iter().map(frame).collect::<Vec<_>>())
    }

    #[test]
    fn frames_tell_the_phase() {
        for (frames, want) in [
            (vec![("training_step", "self.accelerator.backward(loss)")], LogPhase::Backward),
            (vec![("f", "loss.backward()"), ("forward", "return x")], LogPhase::Backward),
            (vec![("f", "optimizer.step(closure)"), ("forward", "x")], LogPhase::Forward),
            (vec![("f", "losses = estimate_loss()"), ("forward", "")], LogPhase::Eval),
            (vec![("<module>", "model.to(device)"), ("_apply", "fn(p)")], LogPhase::Load),
            (vec![("Trainer.evaluate", "output = loop()"), ("forward", "")], LogPhase::Eval),
            (vec![("step", "y = model.generate(x)"), ("forward", "")], LogPhase::Sample),
            (vec![("helper", "x = 1")], LogPhase::Unknown),
        ] {
            assert_eq!(stack(&frames), want, "{frames:?}");
        }
    }

    #[test]
    fn sentences_about_the_failure_tell_the_phase() {
        for (text, want) in [
            ("It fails with OOM during evaluation.", LogPhase::Eval),
            ("OOM in the first call of estimate_loss()", LogPhase::FirstEval),
            ("Evaluation works. During evaluation I drink tea.", LogPhase::Unknown),
            ("Der Lauf bricht ab, und zwar bei der Auswertung.", LogPhase::Eval),
            ("评估时显存溢出", LogPhase::Eval),
            ("L'exécution échoue pendant la rétropropagation.", LogPhase::Backward),
            ("最初の評価中にメモリ不足になる", LogPhase::FirstEval),
            ("I cannot resume training: out of memory", LogPhase::Resume),
        ] {
            assert_eq!(of_sentences(&[Line::plain(text)]), want, "{text}");
        }
    }
}
