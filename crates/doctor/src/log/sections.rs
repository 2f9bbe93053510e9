//! Which parts of a text describe the run that failed, and which recommend another one. A note's
//! settings after `Option 1` or `Empfohlene Kombination` are not those of the failure.

/// Words in a heading that begin a part with recommendations, in any of the five languages.
const ADVICE: [&str; 52] = [
    "fix",
    "solution",
    "recommend",
    "option",
    "workaround",
    "suggest",
    "what to do",
    "remed",
    "mitigat",
    "how to",
    "try this",
    "try these",
    "next step",
    "improve",
    "what you can do",
    "lösung",
    "abhilfe",
    "empfohlen",
    "empfehl",
    "behebung",
    "beheben",
    "maßnahme",
    "vorschl",
    "was tun",
    "was du tun",
    "schnelle hilfe",
    "tipps",
    "修正",
    "解決",
    "推奨",
    "対策",
    "オプション",
    "クイックフィックス",
    "対処",
    "おすすめ",
    "方法",
    "解决",
    "建议",
    "推荐",
    "修复",
    "方案",
    "选项",
    "怎么办",
    "优化",
    "调整",
    "correctif",
    "corriger",
    "recommand",
    "conseil",
    "remède",
    "que faire",
    "piste",
];

/// Words in a heading that end such a part.
const REPORT: [&str; 27] = [
    "error",
    "log",
    "reproduce",
    "environment",
    "problem",
    "cause",
    "analysis",
    "traceback",
    "diagnos",
    "what happened",
    "describe the bug",
    "your config",
    "current",
    "ursache",
    "fehlermeldung",
    "umgebung",
    "aktuell",
    "原因",
    "問題",
    "分析",
    "現在",
    "环境",
    "问题",
    "当前",
    "erreur",
    "environnement",
    "actuel",
];

/// Marks the lines of parts that recommend changes.
#[derive(Default)]
pub struct Sections {
    advice: bool,
}

impl Sections {
    /// Whether the next line belongs to such a part. `raw` still has its Markdown.
    pub fn is_advice(&mut self, raw: &str, fenced: bool) -> bool {
        if let Some(heading) = heading(raw).filter(|_| !fenced) {
            let heading = heading.to_lowercase();
            let has = |table: &[&str]| table.iter().any(|word| heading.contains(word));
            match () {
                () if has(&ADVICE) => self.advice = true,
                () if has(&REPORT) => self.advice = false,
                () => {}
            }
        }
        self.advice
    }
}

/// The text of a heading: `### …`, a bold line, or a short line that ends with a colon.
fn heading(raw: &str) -> Option<&str> {
    let line = raw.trim();
    if let Some(rest) = line.strip_prefix('#') {
        let rest = rest.trim_start_matches('#');
        return rest.starts_with(' ').then(|| rest.trim());
    }
    let short = line.chars().count() <= 80;
    let bold = line.strip_prefix("**").filter(|rest| rest.trim_end_matches(':').ends_with("**"));
    let label = Some(line).filter(|line| line.ends_with(':') && !line.contains(['=', '"', '/']));
    bold.or(label).filter(|_| short)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recommendations_begin_at_headings() {
        for (text, want) in [
            ("My run fails.\n### Possible fixes\nset it to 4\n### Error log\nCUDA", "01100"),
            ("Text\n**Option 1: a smaller batch**\n4", "011"),
            ("Ursache\n### Ursache\n576\n### Empfohlene Kombination\n512\nmehr", "000111"),
            ("### 根本原因\n64\n### 推奨修正\n4", "0011"),
            ("## 当前设置\n16\n## 最佳解决方案\n8", "0011"),
            ("### Cause\n16\n### Solutions rapides\n8", "0011"),
        ] {
            let mut sections = Sections::default();
            let found: String = text
                .lines()
                .map(|line| if sections.is_advice(line, false) { '1' } else { '0' })
                .collect();
            assert_eq!(found, want, "{text}");
        }
    }
}
