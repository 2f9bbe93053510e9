//! Evaluates nanoGPT's `.py` config files without running Python: assignments of literals,
//! arithmetic, earlier names, joined strings, f-strings, `str`, `int`, `float` and `time.time()`.
//! Everything else is an error that names the file, the line and the construct.

use crate::error::{SpecError, shown};
use crate::py_format::{Piece, formatted, pieces};
use crate::py_tokens::{Fault, PlacedToken, Token, TokenList, tokens};
use crate::value::Value;
use std::collections::BTreeMap;

/// The variables outside a file: keys that it reads and sets.
pub trait Names {
    /// The current value of a key.
    fn get(&self, name: &str) -> Option<Value>;
    /// Handles an assignment.
    fn set(&mut self, name: &str, value: Value, line: u32) -> Result<(), SpecError>;
}

/// How deep brackets, signs and powers may be nested.
const DEEPEST: u32 = 50;

/// Bytes of a string; a prompt in a config file is far shorter.
const LONGEST_STRING: usize = 64 * 1024;

/// The end of every message about a construct that is not supported.
const ADVICE: &str = "is not supported (Python is never run); write the value itself";

/// Evaluates a file, statement by statement.
pub fn evaluate(
    path: &str,
    text: &str,
    unix_time: f64,
    names: &mut dyn Names,
) -> Result<(), SpecError> {
    let at = |fault: Fault| SpecError::Python {
        path: path.to_string(),
        line: fault.line,
        what: fault.what,
    };
    let TokenList { found, fault } = tokens(text);
    let mut evaluator =
        Evaluator { tokens: &found, next: 0, depth: 0, unix_time, names, own: own() };
    while evaluator.next < found.len() {
        match evaluator.statement() {
            Ok(()) => {}
            Err(Stop::Fault(fault)) => return Err(at(fault)),
            Err(Stop::Refused(error)) => return Err(*error),
        }
    }
    match fault {
        Some(Fault { line, what }) => Err(at(Fault { line, what: format!("{what} {ADVICE}") })),
        None => Ok(()),
    }
}

/// Evaluates one expression without names, for `--key=value`.
pub fn literal(text: &str) -> Option<Value> {
    let found = whole_tokens(text)?;
    let mut nothing = NoNames;
    let names: &mut dyn Names = &mut nothing;
    let mut evaluator =
        Evaluator { tokens: &found, next: 0, depth: 0, unix_time: 0.0, names, own: own() };
    let value = evaluator.sum().ok()?;
    let last = evaluator.next + 1 == found.len();
    last.then_some(value)
}

/// The text of one or more adjacent string literals; none if there is anything else.
pub fn unquoted(text: &str) -> Option<String> {
    let found = whole_tokens(text)?;
    let (_, strings) = found.split_last()?;
    if strings.is_empty() {
        return None;
    }
    strings
        .iter()
        .map(|placed| match &placed.token {
            Token::Str(text) => Some(text.as_str()),
            _ => None,
        })
        .collect()
}

fn whole_tokens(text: &str) -> Option<Vec<PlacedToken>> {
    let TokenList { found, fault } = tokens(text.trim());
    if fault.is_none() { Some(found) } else { None }
}

struct NoNames;

impl Names for NoNames {
    fn get(&self, _: &str) -> Option<Value> {
        None
    }

    fn set(&mut self, _: &str, _: Value, _: u32) -> Result<(), SpecError> {
        Ok(())
    }
}

fn own() -> BTreeMap<String, Value> {
    BTreeMap::new()
}

/// Why evaluation stopped.
enum Stop {
    /// A construct that we do not evaluate.
    Fault(Fault),
    /// The settings refused an assignment.
    Refused(Box<SpecError>),
}

struct Evaluator<'a> {
    tokens: &'a [PlacedToken],
    next: usize,
    depth: u32,
    unix_time: f64,
    names: &'a mut dyn Names,
    /// The file's own variables, which begin with an underscore. nanoGPT too keeps them out of its
    /// config.
    own: BTreeMap<String, Value>,
}

impl Evaluator<'_> {
    fn peek(&self) -> &Token {
        self.tokens.get(self.next).map_or(&Token::Newline, |placed| &placed.token)
    }

    fn ahead(&self, steps: usize) -> &Token {
        self.tokens.get(self.next + steps).map_or(&Token::Newline, |placed| &placed.token)
    }

    fn line(&self) -> u32 {
        let here = self.tokens.get(self.next).or(self.tokens.last());
        here.map_or(1, |placed| placed.line)
    }

    fn takes(&mut self, operator: &str) -> bool {
        let found = matches!(self.peek(), Token::Operator(found) if *found == operator);
        self.next += usize::from(found);
        found
    }

    fn stop(&self, what: impl Into<String>) -> Stop {
        Stop::Fault(Fault { line: self.line(), what: what.into() })
    }

    /// Refuses the construct that starts at the next token.
    fn refuse(&self) -> Stop {
        self.stop(format!("{} {ADVICE}", construct(self.peek())))
    }

    fn statement(&mut self) -> Result<(), Stop> {
        match (self.peek(), self.ahead(1)) {
            (Token::Newline, _) | (Token::Operator(";"), _) => {
                self.next += 1;
                return Ok(());
            }
            (Token::Str(_) | Token::Format(_), _) => self.docstring()?,
            (Token::Name(word), _) if word == "import" => self.import()?,
            (Token::Name(word), _) if is_keyword(word) => return Err(self.refuse()),
            (Token::Name(_), Token::Operator("=")) => self.assignment()?,
            (Token::Name(name), Token::Operator(operator)) => {
                return Err(self.stop(format!("{} {ADVICE}", not_an_assignment(name, operator))));
            }
            _ => return Err(self.stop(format!("an expression that is not assigned {ADVICE}"))),
        }
        match self.peek() {
            Token::Newline | Token::Operator(";") => Ok(()),
            _ => Err(self.refuse()),
        }
    }

    /// A string on its own is a comment.
    fn docstring(&mut self) -> Result<(), Stop> {
        while matches!(self.peek(), Token::Str(_) | Token::Format(_)) {
            self.next += 1;
        }
        Ok(())
    }

    fn import(&mut self) -> Result<(), Stop> {
        let what = match self.ahead(1) {
            Token::Name(module) if module == "time" => {
                self.next += 2;
                return Ok(());
            }
            Token::Name(module) => format!("`import {module}`"),
            _ => "`import`".to_string(),
        };
        Err(self.stop(format!("{what} {ADVICE} (only `import time` is accepted)")))
    }

    /// `name = value`, also `name = other = value`.
    fn assignment(&mut self) -> Result<(), Stop> {
        let mut targets = Vec::new();
        while let (Token::Name(name), Token::Operator("=")) = (self.peek(), self.ahead(1)) {
            if is_keyword(name) || is_constant(name) {
                return Err(self.refuse());
            }
            targets.push((name.clone(), self.line()));
            self.next += 2;
        }
        let value = self.sum()?;
        for (name, line) in targets {
            if name.starts_with('_') {
                self.own.insert(name, value.clone());
            } else {
                let set = self.names.set(&name, value.clone(), line);
                set.map_err(|error| Stop::Refused(Box::new(error)))?;
            }
        }
        Ok(())
    }

    fn sum(&mut self) -> Result<Value, Stop> {
        let mut left = self.term()?;
        while let Token::Operator(operator @ ("+" | "-")) = *self.peek() {
            self.next += 1;
            let right = self.term()?;
            left = self.calculate(operator, &left, &right)?;
        }
        Ok(left)
    }

    fn term(&mut self) -> Result<Value, Stop> {
        let mut left = self.signed()?;
        while let Token::Operator(operator @ ("*" | "/" | "//" | "%")) = *self.peek() {
            self.next += 1;
            let right = self.signed()?;
            left = self.calculate(operator, &left, &right)?;
        }
        Ok(left)
    }

    /// A sign binds weaker than a power on its right: `-2**2` is -4.
    fn signed(&mut self) -> Result<Value, Stop> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(self.stop(format!("more than {DEEPEST} levels of brackets or signs")));
        }
        let value = if self.takes("-") {
            let value = self.signed()?;
            match value {
                Value::Float(number) => Value::Float(-number), // 0 - 0.0 would lose the sign
                other => self.calculate("-", &Value::Int(0), &other)?,
            }
        } else if self.takes("+") {
            let value = self.signed()?;
            self.calculate("+", &Value::Int(0), &value)?
        } else {
            let left = self.atom()?;
            if self.takes("**") {
                let right = self.signed()?;
                self.calculate("**", &left, &right)?
            } else {
                left
            }
        };
        self.depth -= 1;
        Ok(value)
    }

    fn atom(&mut self) -> Result<Value, Stop> {
        let value = match self.peek() {
            Token::Int(number) => Value::Int(*number),
            Token::Float(number) => Value::Float(*number),
            Token::Str(_) | Token::Format(_) => return self.strings(),
            Token::Operator("(") if *self.ahead(1) != Token::Operator(")") => {
                self.next += 1;
                let value = self.sum()?;
                return self.close(value);
            }
            Token::Operator("(") => return Err(self.stop(format!("a tuple {ADVICE}"))),
            Token::Name(name) if is_keyword(name) => return Err(self.refuse()),
            Token::Name(name) => {
                let name = name.clone();
                return self.name(&name);
            }
            Token::Newline => return Err(self.stop("the value is missing")),
            Token::Operator(_) => return Err(self.refuse()),
        };
        self.next += 1;
        Ok(value)
    }

    fn close(&mut self, value: Value) -> Result<Value, Stop> {
        if self.takes(")") { Ok(value) } else { Err(self.refuse()) }
    }

    /// Joins adjacent strings.
    fn strings(&mut self) -> Result<Value, Stop> {
        let mut joined = String::new();
        loop {
            match self.peek() {
                Token::Str(text) => joined += text,
                Token::Format(text) => joined += &self.format(&text.clone())?,
                _ => return self.bounded(joined),
            }
            self.next += 1;
        }
    }

    /// An f-string with its fields filled in.
    fn format(&mut self, text: &str) -> Result<String, Stop> {
        let refused = |what: String| format!("{what} {ADVICE}");
        let pieces = pieces(text).map_err(|what| self.stop(refused(what)))?;
        let mut whole = String::new();
        for piece in pieces {
            match piece {
                Piece::Text(text) => whole += &text,
                Piece::Field { expression, format } => {
                    let value = self.field(&expression)?;
                    let what = || refused(format!("the f-string format `{}`", shown(&format)));
                    whole += &formatted(&value, &format).ok_or_else(|| self.stop(what()))?;
                }
            }
            if whole.len() > LONGEST_STRING {
                return self.bounded(whole).map(|_| String::new());
            }
        }
        Ok(whole)
    }

    /// The value of an expression inside an f-string, on the line of the f-string.
    fn field(&mut self, expression: &str) -> Result<Value, Stop> {
        let line = self.line();
        let mut words = whole_tokens(expression)
            .ok_or_else(|| self.stop(format!("`{}` in an f-string {ADVICE}", shown(expression))))?;
        words.iter_mut().for_each(|placed| placed.line = line);
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(self.stop(format!("more than {DEEPEST} levels of brackets or signs")));
        }
        let mut inner = Evaluator {
            tokens: &words,
            next: 0,
            depth: self.depth,
            unix_time: self.unix_time,
            names: &mut *self.names,
            own: std::mem::take(&mut self.own),
        };
        let value = inner.sum();
        let rest = inner.next + 1 < words.len();
        let refusal = inner.refuse();
        self.own = inner.own;
        self.depth -= 1;
        let value = value?;
        if rest { Err(refusal) } else { Ok(value) }
    }

    fn bounded(&self, text: String) -> Result<Value, Stop> {
        if text.len() > LONGEST_STRING {
            let what = format!("a string of {} bytes; the limit is {LONGEST_STRING}", text.len());
            return Err(self.stop(what));
        }
        Ok(Value::Str(text))
    }

    fn name(&mut self, name: &str) -> Result<Value, Stop> {
        let known = match name {
            "True" => Some(Value::Bool(true)),
            "False" => Some(Value::Bool(false)),
            _ => self.own.get(name).cloned().or_else(|| self.names.get(name)),
        };
        match (name, self.ahead(1)) {
            ("None", _) => Err(self.stop("no key takes None; leave the line out")),
            ("time", Token::Operator(".")) => self.time(),
            ("str" | "int" | "float", Token::Operator("(")) => self.conversion(name),
            (_, Token::Operator("(")) => Err(self.stop(format!("a call of `{name}` {ADVICE}"))),
            (_, Token::Operator(".")) => {
                Err(self.stop(format!("an attribute of `{name}` {ADVICE}")))
            }
            (_, Token::Operator("[")) => Err(self.stop(format!("an index into `{name}` {ADVICE}"))),
            _ => {
                let what = || format!("the name `{name}` is neither a key nor assigned above");
                let value = known.ok_or_else(|| self.stop(what()))?;
                self.next += 1;
                Ok(value)
            }
        }
    }

    fn time(&mut self) -> Result<Value, Stop> {
        let call = [self.ahead(2), self.ahead(3), self.ahead(4)];
        let is_time = matches!(call[0], Token::Name(name) if name == "time");
        if !is_time || *call[1] != Token::Operator("(") || *call[2] != Token::Operator(")") {
            let what = "of the module `time`, everything except `time.time()`";
            return Err(self.stop(format!("{what} {ADVICE}")));
        }
        self.next += 5;
        Ok(Value::Float(self.unix_time))
    }

    fn conversion(&mut self, function: &str) -> Result<Value, Stop> {
        self.next += 2;
        if *self.peek() == Token::Operator(")") {
            return Err(self.stop(format!("`{function}()` without a value {ADVICE}")));
        }
        let value = self.sum()?;
        let typed = shown(&value.to_string());
        let converted = match (function, value) {
            ("str", value) => self.bounded(value.plain()).map(Some)?,
            ("int", Value::Float(number)) => whole(number.trunc()).map(Value::Int),
            ("int", value) => as_int(&value).map(Value::Int),
            (_, value) => as_float(&value).map(Value::Float),
        };
        let what = || format!("{function}({typed}) {ADVICE}");
        let converted = converted.ok_or_else(|| self.stop(what()))?;
        self.close(converted)
    }

    fn calculate(&self, operator: &str, left: &Value, right: &Value) -> Result<Value, Stop> {
        let typed = || shown(&format!("{left} {operator} {right}"));
        if let (Value::Str(left), Value::Str(right), "+") = (left, right, operator) {
            return self.bounded(format!("{left}{right}"));
        }
        let result = match (as_int(left), as_int(right)) {
            (Some(left), Some(right)) => whole_numbers(operator, left, right),
            _ => match (as_float(left), as_float(right)) {
                (Some(left), Some(right)) => floats(operator, left, right).map(Value::Float),
                _ => Err("these types cannot be combined"),
            },
        };
        result.map_err(|problem| self.stop(format!("`{}`: {problem}", typed())))
    }
}

/// Python counts True as 1.
fn as_int(value: &Value) -> Option<i64> {
    match value {
        Value::Int(number) => Some(*number),
        Value::Bool(flag) => Some(i64::from(*flag)),
        Value::Float(_) | Value::Str(_) => None,
    }
}

fn as_float(value: &Value) -> Option<f64> {
    match value {
        Value::Float(number) => Some(*number),
        other => as_int(other).map(|number| number as f64),
    }
}

fn whole(number: f64) -> Option<i64> {
    let fits = number >= i64::MIN as f64 && number < i64::MAX as f64;
    fits.then_some(number as i64)
}

const BY_ZERO: &str = "division by zero";
const TOO_LARGE: &str = "the result does not fit in 63 bits";

fn whole_numbers(operator: &str, left: i64, right: i64) -> Result<Value, &'static str> {
    let by_zero = right == 0 && matches!(operator, "/" | "//" | "%");
    if by_zero {
        return Err(BY_ZERO);
    }
    let result = match operator {
        "+" => left.checked_add(right),
        "-" => left.checked_sub(right),
        "*" => left.checked_mul(right),
        "//" => left.checked_div_euclid(right).and_then(|quotient| {
            // Euclidean division keeps the remainder positive; Python rounds the quotient down.
            let up = right < 0 && left.checked_rem_euclid(right) != Some(0);
            quotient.checked_sub(i64::from(up))
        }),
        "%" => left.checked_rem_euclid(right).map(|remainder| {
            if right < 0 && remainder != 0 { remainder + right } else { remainder }
        }),
        "**" if right >= 0 => u32::try_from(right).ok().and_then(|power| left.checked_pow(power)),
        _ => return floats(operator, left as f64, right as f64).map(Value::Float),
    };
    result.map(Value::Int).ok_or(TOO_LARGE)
}

fn floats(operator: &str, left: f64, right: f64) -> Result<f64, &'static str> {
    let by_zero = right == 0.0 && matches!(operator, "/" | "//" | "%");
    if by_zero || (operator == "**" && left == 0.0 && right < 0.0) {
        return Err(BY_ZERO);
    }
    let result = match operator {
        "+" => left + right,
        "-" => left - right,
        "*" => left * right,
        "/" => left / right,
        // Through the exact remainder: 1.0 // 0.1 is 9.0, though 1.0 / 0.1 rounds to 10.0.
        "//" => match ((left - remainder(left, right)) / right).round() {
            0.0 => 0f64.copysign(left / right),
            quotient => quotient,
        },
        "%" => remainder(left, right),
        _ => left.powf(right),
    };
    let finite = left.is_finite() && right.is_finite();
    if finite && !result.is_finite() {
        return Err("the result is not a finite float");
    }
    Ok(result)
}

/// The remainder with the sign of the divisor, as in Python.
fn remainder(left: f64, right: f64) -> f64 {
    let remainder = left % right;
    match remainder {
        0.0 => 0f64.copysign(right),
        _ if (remainder < 0.0) != (right < 0.0) => remainder + right,
        _ => remainder,
    }
}

fn is_constant(name: &str) -> bool {
    matches!(name, "True" | "False" | "None")
}

const KEYWORDS: [&str; 32] = [
    "and", "as", "assert", "async", "await", "break", "class", "continue", "def", "del", "elif",
    "else", "except", "finally", "for", "from", "global", "if", "import", "in", "is", "lambda",
    "nonlocal", "not", "or", "pass", "raise", "return", "try", "while", "with", "yield",
];

fn is_keyword(name: &str) -> bool {
    KEYWORDS.contains(&name)
}

/// Names the construct that a token begins or continues.
fn construct(token: &Token) -> String {
    match token {
        Token::Operator(",") => "a tuple".into(),
        Token::Operator("[") => "a list".into(),
        Token::Operator("{") => "a dict or set".into(),
        Token::Operator("==" | "!=" | "<" | ">" | "<=" | ">=") => "a comparison".into(),
        Token::Operator(operator) => format!("`{operator}` here"),
        Token::Name(name) if name == "if" => "an `if`".into(),
        Token::Name(name) => format!("`{name}` here"),
        Token::Str(_) | Token::Format(_) => "a string here".into(),
        Token::Int(_) | Token::Float(_) => "a number here".into(),
        Token::Newline => "the end of the line here".into(),
    }
}

/// Names a statement that begins with a name and an operator other than `=`.
fn not_an_assignment(name: &str, operator: &str) -> String {
    match operator {
        "(" => format!("a call of `{name}`"),
        "." => format!("an attribute of `{name}`"),
        "[" => format!("an index into `{name}`"),
        ":" => "a type annotation".into(),
        "," => "an assignment to a tuple".into(),
        _ if operator.ends_with('=') && !matches!(operator, "==" | "!=" | "<=" | ">=") => {
            format!("`{name} {operator}`")
        }
        _ => "an expression that is not assigned".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes every name.
    #[derive(Default)]
    struct Any(Vec<(String, Value, u32)>);

    impl Names for Any {
        fn get(&self, name: &str) -> Option<Value> {
            let last = self.0.iter().rev().find(|(known, ..)| known == name);
            last.map(|(_, value, _)| value.clone())
        }

        fn set(&mut self, name: &str, value: Value, line: u32) -> Result<(), SpecError> {
            self.0.push((name.to_string(), value, line));
            Ok(())
        }
    }

    fn run(text: &str) -> Result<Vec<(String, Value, u32)>, String> {
        let mut names = Any(vec![("max_iters".into(), Value::Int(600_000), 0)]);
        evaluate("f.py", text, 1.5, &mut names).map_err(|error| error.to_string())?;
        names.0.remove(0);
        Ok(names.0)
    }

    fn value(expression: &str) -> Result<String, String> {
        let found = run(&format!("x = {expression}"))?;
        Ok(found.first().map(|(_, value, _)| value.to_string()).unwrap_or_default())
    }

    #[test]
    fn expressions_have_pythons_values() {
        for (expression, want) in [
            ("5 * 8", "40"),
            ("2 + 3 * 4", "14"),
            ("(2 + 3) * 4", "20"),
            ("-2**2", "-4"),
            ("2**-1", "0.5"),
            ("2**3**2", "512"),
            ("--3", "3"),
            ("+True", "1"),
            ("-0.0", "-0.0"),
            ("7 / 2", "3.5"),
            ("6 / 2", "3.0"),
            ("7 // 2", "3"),
            ("-7 // 2", "-4"),
            ("7 // -2", "-4"),
            ("-7 // -2", "3"),
            ("-6 // 2", "-3"),
            ("6 // -2", "-3"),
            ("-7 % 3", "2"),
            ("7 % -3", "-2"),
            ("-7 % -3", "-1"),
            ("6 % -3", "0"),
            ("7.5 // 2", "3.0"),
            ("1.0 // 0.1", "9.0"),
            ("-1.0 // 0.1", "-10.0"),
            ("-.5 // -3", "0.0"),
            ("-3. % 3.", "0.0"),
            ("-7.5 % 2", "0.5"),
            ("7.5 % -2", "-0.5"),
            ("1e-3 / 10", "0.0001"),
            ("2 ** 0.5", "1.4142135623730951"),
            ("max_iters // 10", "60000"),
            ("True + 1", "2"),
            ("'a' 'b' + \"c\"", "'abc'"),
            ("'ft-' + str(time.time())", "'ft-1.5'"),
            ("str(6e-5) + str(3) + str('x') + str(True)", "'6e-053xTrue'"),
            ("int(1e4)", "10000"),
            ("int(-1.9)", "-1"),
            ("float(3)", "3.0"),
            ("(\n 1\n +\n 2)", "3"),
            ("1 + \\\n 2", "3"),
        ] {
            assert_eq!(value(expression).as_deref(), Ok(want), "{expression}");
        }
    }

    #[test]
    fn what_has_no_value_is_an_error_with_its_numbers() {
        for (expression, want) in [
            ("1 / 0", "f.py:1: `1 / 0`: division by zero"),
            ("1 % 0", "division by zero"),
            ("1.0 // 0", "division by zero"),
            ("0 ** -1", "division by zero"),
            ("9223372036854775807 + 1", "does not fit in 63 bits"),
            ("10 ** 19", "does not fit in 63 bits"),
            ("2 ** 99999999999", "does not fit in 63 bits"),
            ("(-9223372036854775807 - 1) // -1", "does not fit in 63 bits"),
            ("(-8) ** 0.5", "not a finite float"),
            ("1e300 * 1e300", "not a finite float"),
            ("int(1e300)", "int(1e+300) is not supported"),
            ("float('x')", "float('x') is not supported"),
            ("'a' + 1", "`'a' + 1`: these types cannot be combined"),
            ("'a' * 3", "these types cannot be combined"),
            ("-'a'", "these types cannot be combined"),
            ("nothing", "the name `nothing` is neither a key nor assigned above"),
            ("time", "the name `time` is neither"),
            ("", "the value is missing"),
            ("1 +", "the value is missing"),
            ("None", "no key takes None"),
        ] {
            let error = value(expression).unwrap_err();
            assert!(error.contains(want), "{expression}: {error}");
        }
    }

    #[test]
    fn other_constructs_are_named() {
        for (text, line, want) in [
            ("a = 1, 2", 1, "a tuple is not supported"),
            ("a = ()", 1, "a tuple"),
            ("a = (1, 2)", 1, "a tuple"),
            ("a = [1]", 1, "a list"),
            ("a = {}", 1, "a dict or set"),
            ("a = 1 if True else 2", 1, "an `if`"),
            ("a = not True", 1, "`not` here"),
            ("a = 1 < 2", 1, "a comparison"),
            ("a = lambda: 1", 1, "`lambda` here"),
            ("a = f'{x}'", 1, "the name `x` is neither a key nor assigned above"),
            ("a = f'{max_iters:>4}'", 1, "the f-string format `>4`"),
            ("a = f'{max_iters!r}'", 1, "the f-string field"),
            ("a = open('x')", 1, "a call of `open`"),
            ("a = os.environ", 1, "an attribute of `os`"),
            ("a = max_iters[0]", 1, "an index into `max_iters`"),
            ("a = time.sleep(1)", 1, "everything except `time.time()`"),
            ("a = 1 2", 1, "a number here"),
            ("a = 1 = 2", 1, "`=` here"),
            ("True = 1", 1, "`True` here"),
            ("# x\n\nif True:\n    a = 1", 3, "an `if`"),
            ("a = 1\n  b = 2", 2, "an indented line"),
            ("a = 1\nfor i in x: pass", 2, "`for` here"),
            ("a += 1", 1, "`a +=`"),
            ("a: int = 1", 1, "a type annotation"),
            ("a, b = 1, 2", 1, "an assignment to a tuple"),
            ("print('x')", 1, "a call of `print`"),
            ("a.b = 1", 1, "an attribute of `a`"),
            ("a == 1", 1, "an expression that is not assigned"),
            ("1", 1, "an expression that is not assigned"),
            ("'doc' + 'x'", 1, "`+` here"),
            ("import os", 1, "`import os`"),
            ("import time as t", 1, "`as` here"),
            ("from time import time", 1, "`from` here"),
            ("@x", 1, "an expression that is not assigned"),
        ] {
            let error = run(text).unwrap_err();
            assert!(error.starts_with(&format!("f.py:{line}: ")), "{text}: {error}");
            assert!(error.contains(want), "{text}: {error}");
        }
    }

    #[test]
    fn statements_come_in_order_with_their_lines() {
        let text = "\"\"\"Doc\nstring.\"\"\"\nimport time; a = 1; b = a + 1\n_half = b / 2 # own\n\
                    c = d = _half\n'note'\na = (\n3)\n";
        let found = run(text).unwrap();
        let shown: Vec<String> =
            found.iter().map(|(name, value, line)| format!("{line} {name}={value}")).collect();
        assert_eq!(shown, ["3 a=1", "3 b=2", "5 c=1.0", "5 d=1.0", "7 a=3"]);
    }

    #[test]
    fn nesting_and_strings_are_bounded() {
        for (open, close) in [("(", ")"), ("-", ""), ("2**", ""), ("str(", ")")] {
            let deep = |times: usize| format!("{}1{}", open.repeat(times), close.repeat(times));
            assert!(value(&deep(100_000)).unwrap_err().contains("more than 50 levels"));
            assert!(!value(&deep(20)).is_err_and(|error| error.contains("levels")), "{open}");
        }
        let doubling = "a = 'xxxxxxxx'\n".to_string() + &"a = a + a\n".repeat(60);
        assert!(run(&doubling).unwrap_err().contains("f.py:15: a string of 131072 bytes"));
    }
}
