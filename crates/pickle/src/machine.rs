//! The stack machine: it executes instructions until STOP returns one value.

use crate::bytes::Input;
use crate::error::PickleError;
use crate::heap::{Heap, Id, Node};
use crate::limits::Limits;
use crate::opcodes::{self, Opcode};
use crate::text;
use crate::value::Value;
use std::collections::HashMap;

const NEWEST_PROTOCOL: u8 = 5;
/// Longest integer in bytes; Python's own text form stops at about the same size.
const INTEGER_BYTES: u64 = 2048;

/// Names of modules, and names in them.
type Names<'a> = &'a [(&'a str, &'a str)];

/// The one class that is plain data: its calls without arguments build a dict.
const ORDERED_DICT: (&str, &str) = ("collections", "OrderedDict");

/// Runs a pickle to its end. Without names, it may use none.
pub(crate) fn run(bytes: &[u8], limits: &Limits, names: Names) -> Result<Value, PickleError> {
    if bytes.len() > limits.input_bytes {
        let (offset, limit) = (bytes.len(), limits.input_bytes);
        return Err(PickleError::Limit { offset, what: "bytes of input", limit });
    }
    let mut machine = Machine {
        input: Input::new(bytes),
        limits,
        names,
        heap: Heap::default(),
        stack: Vec::new(),
        marks: Vec::new(),
        memo: HashMap::new(),
        pushes: 0,
        opcode: Opcode::Stop,
    };
    while machine.step()? {}
    let result = machine.pop()?;
    let Machine { heap, stack, memo, .. } = machine;
    drop((stack, memo)); // room for the copy
    heap.finish(result, limits, bytes.len())
}

/// The kind of container that an instruction adds to.
enum Target {
    List,
    Dict,
    Set,
}

struct Machine<'a> {
    input: Input<'a>,
    limits: &'a Limits,
    /// What the pickle may name.
    names: Names<'a>,
    heap: Heap,
    stack: Vec<Id>,
    /// Height of the stack at each open MARK.
    marks: Vec<usize>,
    memo: HashMap<u64, Id>,
    /// Values pushed so far. Limiting this bounds heap, stack, marks and memo together.
    pushes: usize,
    /// The current instruction, for messages.
    opcode: Opcode,
}

impl<'a> Machine<'a> {
    /// Executes one instruction; false after STOP.
    fn step(&mut self) -> Result<bool, PickleError> {
        let byte = self.input.opcode()?;
        let is_refused = self.names.is_empty() && opcodes::refused(byte).is_some();
        let Some(opcode) = Opcode::from_byte(byte).filter(|_| !is_refused) else {
            return Err(self.refusal(byte));
        };
        self.opcode = opcode;
        self.execute(opcode)?;
        Ok(opcode != Opcode::Stop)
    }

    #[rustfmt::skip] // A table: one line per instruction.
    fn execute(&mut self, opcode: Opcode) -> Result<(), PickleError> {
        match opcode {
            Opcode::Stop => Ok(()),
            Opcode::Proto => self.protocol(),
            Opcode::Frame => self.input.u64().map(drop), // A hint for buffered reading.
            Opcode::Mark => self.mark(),
            Opcode::Pop => self.discard(),
            Opcode::PopMark => self.pop_mark().map(drop),
            Opcode::Dup => self.duplicate(),
            Opcode::None => self.leaf(Value::None),
            Opcode::NewTrue => self.leaf(Value::Bool(true)),
            Opcode::NewFalse => self.leaf(Value::Bool(false)),
            Opcode::Int => self.number_line(text::integer),
            Opcode::BinInt => self.input.i32().and_then(|n| self.leaf(Value::Int(n.into()))),
            Opcode::BinInt1 => self.input.u8().and_then(|n| self.leaf(Value::Int(n.into()))),
            Opcode::BinInt2 => self.input.u16().and_then(|n| self.leaf(Value::Int(n.into()))),
            Opcode::Long => self.number_line(text::long),
            Opcode::Long1 => self.input.u8().and_then(|n| self.long(n.into())),
            Opcode::Long4 => self.input.i32().and_then(|n| self.long(n)),
            Opcode::Float => self.number_line(text::float),
            Opcode::BinFloat => self.input.f64().and_then(|n| self.leaf(Value::Float(n))),
            Opcode::String => self.quoted_line(),
            Opcode::BinString => self.input.u32().and_then(|n| self.python2_string(n.into())),
            Opcode::ShortBinString => self.input.u8().and_then(|n| self.python2_string(n.into())),
            Opcode::Unicode => self.unicode_line(),
            Opcode::BinUnicode => self.input.u32().and_then(|n| self.unicode(n.into())),
            Opcode::ShortBinUnicode => self.input.u8().and_then(|n| self.unicode(n.into())),
            Opcode::BinUnicode8 => self.input.u64().and_then(|n| self.unicode(n)),
            Opcode::BinBytes => self.input.u32().and_then(|n| self.byte_string(n.into())),
            Opcode::ShortBinBytes => self.input.u8().and_then(|n| self.byte_string(n.into())),
            Opcode::BinBytes8 => self.input.u64().and_then(|n| self.byte_string(n)),
            Opcode::ByteArray8 => self.input.u64().and_then(|n| self.byte_string(n)),
            Opcode::EmptyList => self.push_node(Node::List(Vec::new())),
            Opcode::List => self.pop_mark().and_then(|ids| self.push_node(Node::List(ids))),
            Opcode::Append => self.pop_many(1).and_then(|ids| self.extend(Target::List, ids)),
            Opcode::Appends => self.pop_mark().and_then(|ids| self.extend(Target::List, ids)),
            Opcode::EmptyTuple => self.push_node(Node::Tuple(Vec::new())),
            Opcode::Tuple1 => self.pop_many(1).and_then(|ids| self.push_node(Node::Tuple(ids))),
            Opcode::Tuple2 => self.pop_many(2).and_then(|ids| self.push_node(Node::Tuple(ids))),
            Opcode::Tuple3 => self.pop_many(3).and_then(|ids| self.push_node(Node::Tuple(ids))),
            Opcode::Tuple => self.pop_mark().and_then(|ids| self.push_node(Node::Tuple(ids))),
            Opcode::EmptyDict => self.push_node(Node::Dict(Vec::new())),
            Opcode::Dict => self.pop_pairs().and_then(|ids| self.push_node(Node::Dict(ids))),
            Opcode::SetItem => self.pop_many(2).and_then(|ids| self.extend(Target::Dict, ids)),
            Opcode::SetItems => self.pop_pairs().and_then(|ids| self.extend(Target::Dict, ids)),
            Opcode::EmptySet => self.push_node(Node::Set(Vec::new())),
            Opcode::AddItems => self.pop_mark().and_then(|ids| self.extend(Target::Set, ids)),
            Opcode::FrozenSet => self.pop_mark().and_then(|ids| self.frozen_set(ids)),
            Opcode::Put => self.memo_line().and_then(|index| self.put(index)),
            Opcode::BinPut => self.input.u8().and_then(|index| self.put(index.into())),
            Opcode::LongBinPut => self.input.u32().and_then(|index| self.put(index.into())),
            Opcode::Memoize => self.put(self.memo.len() as u64),
            Opcode::Get => self.memo_line().and_then(|index| self.get(index)),
            Opcode::BinGet => self.input.u8().and_then(|index| self.get(index.into())),
            Opcode::LongBinGet => self.input.u32().and_then(|index| self.get(index.into())),
            Opcode::Global => self.global(),
            Opcode::StackGlobal => self.stack_global(),
            Opcode::Reduce => self.reduce(),
            Opcode::Build => self.build(),
            Opcode::BinPersId => self.pop().and_then(|id| self.push_node(Node::Persistent(id))),
        }
    }

    fn protocol(&mut self) -> Result<(), PickleError> {
        match self.input.u8()? {
            version if version > NEWEST_PROTOCOL => Err(PickleError::Protocol { version }),
            _ => Ok(()),
        }
    }

    /// A number written as text, in protocol 0.
    fn number_line(&mut self, read: fn(&str) -> Option<Value>) -> Result<(), PickleError> {
        let line = self.input.line()?;
        let number = std::str::from_utf8(line).ok().and_then(|text| read(text.trim()));
        self.leaf(number.ok_or(self.bad("not a number that fits 64 bits"))?)
    }

    /// An integer in two's complement, of any width up to [`INTEGER_BYTES`].
    fn long(&mut self, count: i32) -> Result<(), PickleError> {
        let count = u64::try_from(count).map_err(|_| self.bad("a negative length"))?;
        if count > INTEGER_BYTES {
            return Err(self.bad("an integer of more than 2048 bytes"));
        }
        let bytes = self.input.counted(count)?;
        self.leaf(text::twos_complement(bytes))
    }

    fn quoted_line(&mut self) -> Result<(), PickleError> {
        let bytes = text::unquote(self.input.line()?);
        self.leaf(text::python2_string(bytes.ok_or(self.bad("not a quoted string"))?))
    }

    fn python2_string(&mut self, count: u64) -> Result<(), PickleError> {
        let bytes = self.input.counted(count)?;
        self.leaf(text::python2_string(bytes.to_vec()))
    }

    fn unicode_line(&mut self) -> Result<(), PickleError> {
        let found = text::raw_unicode_escape(self.input.line()?);
        self.leaf(Value::Str(found.ok_or(self.bad("an escape that is not a character"))?))
    }

    fn unicode(&mut self, count: u64) -> Result<(), PickleError> {
        let bytes = self.input.counted(count)?;
        let found = std::str::from_utf8(bytes).map_err(|_| self.bad("not UTF-8"))?;
        self.leaf(Value::Str(found.to_owned()))
    }

    fn byte_string(&mut self, count: u64) -> Result<(), PickleError> {
        let bytes = self.input.counted(count)?;
        self.leaf(Value::Bytes(bytes.to_vec()))
    }

    fn memo_line(&mut self) -> Result<u64, PickleError> {
        let line = self.input.line()?;
        let index = std::str::from_utf8(line).ok().and_then(|text| text.trim().parse().ok());
        index.ok_or(self.bad("not a memo index"))
    }

    fn put(&mut self, index: u64) -> Result<(), PickleError> {
        if self.memo.len() >= self.limits.values {
            return Err(self.over("memo entries"));
        }
        let top = self.pop()?;
        self.stack.push(top);
        self.memo.insert(index, top);
        Ok(())
    }

    fn get(&mut self, index: u64) -> Result<(), PickleError> {
        let found = self.memo.get(&index).copied();
        self.push(found.ok_or(self.bad("a memo entry that was never stored"))?)
    }

    fn global(&mut self) -> Result<(), PickleError> {
        let (module, name) = (self.input.line()?, self.input.line()?);
        self.name(module, name)
    }

    fn stack_global(&mut self) -> Result<(), PickleError> {
        let ids = self.pop_many(2)?;
        let text = |id: Id| match self.heap.get(id) {
            Node::Leaf(Value::Str(text)) => Ok(text.clone().into_bytes()),
            _ => Err(self.bad("a name that is not a string")),
        };
        let (module, name) = (text(ids[0])?, text(ids[1])?);
        self.name(&module, &name)
    }

    /// Pushes a listed name.
    fn name(&mut self, module: &[u8], name: &[u8]) -> Result<(), PickleError> {
        let is_it =
            |listed: &(&str, &str)| (listed.0.as_bytes(), listed.1.as_bytes()) == (module, name);
        match self.names.iter().position(is_it) {
            Some(index) => self.leaf(Value::Global(index)),
            None => {
                let (offset, opcode) = (self.input.opcode_at, self.opcode.name());
                let subject = format!("{}.{}", text::shown(module), text::shown(name));
                Err(PickleError::Refused { offset, opcode, subject })
            }
        }
    }

    fn reduce(&mut self) -> Result<(), PickleError> {
        let ids = self.pop_many(2)?;
        let (called, arguments) = (self.heap.get(ids[0]), self.heap.get(ids[1]));
        let (&Node::Leaf(Value::Global(function)), Node::Tuple(given)) = (called, arguments) else {
            return Err(self.bad("only a name can be called, with a tuple"));
        };
        if given.is_empty() && self.names.get(function) == Some(&ORDERED_DICT) {
            return self.push_node(Node::Dict(Vec::new()));
        }
        self.push_node(Node::Call { function, arguments: ids[1], state: None })
    }

    /// Gives a call its state. Attributes of a dict are dropped.
    fn build(&mut self) -> Result<(), PickleError> {
        let ids = self.pop_many(2)?;
        match self.heap.get_mut(ids[0]) {
            Node::Call { state, .. } => *state = Some(ids[1]),
            Node::Dict(_) => {}
            _ => return Err(self.bad("its target has the wrong type")),
        }
        self.stack.push(ids[0]);
        Ok(())
    }

    /// Adds to the container on top of the stack, which must be of the right type.
    fn extend(&mut self, target: Target, added: Vec<Id>) -> Result<(), PickleError> {
        let container = self.pop()?;
        self.stack.push(container);
        match (target, self.heap.get_mut(container)) {
            (Target::List, Node::List(ids))
            | (Target::Dict, Node::Dict(ids))
            | (Target::Set, Node::Set(ids)) => ids.extend(added),
            _ => return Err(self.bad("its target has the wrong type")),
        }
        Ok(())
    }

    fn frozen_set(&mut self, ids: Vec<Id>) -> Result<(), PickleError> {
        self.push_node(Node::FrozenSet(ids))
    }

    fn leaf(&mut self, value: Value) -> Result<(), PickleError> {
        self.push_node(Node::Leaf(value))
    }

    fn push_node(&mut self, node: Node) -> Result<(), PickleError> {
        let id = self.heap.add(node);
        self.push(id)
    }

    fn push(&mut self, id: Id) -> Result<(), PickleError> {
        self.count_push()?;
        self.stack.push(id);
        Ok(())
    }

    fn mark(&mut self) -> Result<(), PickleError> {
        self.count_push()?;
        self.marks.push(self.stack.len());
        Ok(())
    }

    fn count_push(&mut self) -> Result<(), PickleError> {
        self.pushes += 1;
        // In addition to the values of the result, this allows for marks and for values that are
        // popped again.
        if self.pushes > self.limits.values.saturating_add(self.limits.values / 4) {
            return Err(self.over("intermediate values"));
        }
        Ok(())
    }

    fn duplicate(&mut self) -> Result<(), PickleError> {
        let top = self.pop()?;
        self.stack.push(top);
        self.push(top)
    }

    /// POP takes a value, or a MARK when that was pushed last.
    fn discard(&mut self) -> Result<(), PickleError> {
        if self.marks.last() == Some(&self.stack.len()) {
            self.marks.pop();
            return Ok(());
        }
        self.pop().map(drop)
    }

    /// Pops the top value; values below the last MARK cannot be reached.
    fn pop(&mut self) -> Result<Id, PickleError> {
        let floor = self.marks.last().copied().unwrap_or(0);
        if self.stack.len() <= floor {
            return Err(self.bad("the stack is empty"));
        }
        self.stack.pop().ok_or(self.bad("the stack is empty"))
    }

    fn pop_many(&mut self, count: usize) -> Result<Vec<Id>, PickleError> {
        let mut ids = Vec::with_capacity(count);
        for _ in 0..count {
            ids.push(self.pop()?);
        }
        ids.reverse();
        Ok(ids)
    }

    /// Pops everything above the last MARK, and the MARK itself.
    fn pop_mark(&mut self) -> Result<Vec<Id>, PickleError> {
        let height = self.marks.pop().ok_or(self.bad("no MARK is open"))?;
        Ok(self.stack.split_off(height.min(self.stack.len())))
    }

    fn pop_pairs(&mut self) -> Result<Vec<Id>, PickleError> {
        let ids = self.pop_mark()?;
        if ids.len() % 2 == 1 {
            return Err(self.bad("a key without a value"));
        }
        Ok(ids)
    }

    fn refusal(&mut self, byte: u8) -> PickleError {
        let offset = self.input.opcode_at;
        let Some((opcode, subject_lines)) = opcodes::refused(byte) else {
            return PickleError::NoOpcode { offset, byte };
        };
        let lines = (0..subject_lines).map_while(|_| self.input.line().ok()).map(text::shown);
        let names: Vec<String> = match Opcode::from_byte(byte) {
            Some(Opcode::StackGlobal) => self.names_on_stack(),
            _ => lines.collect(),
        };
        PickleError::Refused { offset, opcode, subject: names.join(".") }
    }

    /// A module and a name in it, if the two values on top are strings.
    fn names_on_stack(&self) -> Vec<String> {
        let top = self.stack.get(self.stack.len().saturating_sub(2)..).unwrap_or_default();
        let text = |id: &Id| match self.heap.get(*id) {
            Node::Leaf(Value::Str(text)) => Some(text::shown(text.as_bytes())),
            _ => None,
        };
        top.iter().map_while(text).collect()
    }

    fn bad(&self, what: &'static str) -> PickleError {
        let (offset, opcode) = (self.input.opcode_at, self.opcode.name());
        PickleError::Malformed { offset, opcode, what }
    }

    fn over(&self, what: &'static str) -> PickleError {
        PickleError::Limit { offset: self.input.opcode_at, what, limit: self.limits.values }
    }
}
