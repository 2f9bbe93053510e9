//! The values that a pickle is building, with their identities, and the copy of the finished one.
//!
//! A pickle may put one list into two containers and fill it later, or put it into itself. So the
//! parts live in one table and refer to each other by index. The finished value is a tree. Its size
//! is counted while it is copied out, because a short input can describe an endless tree.

use crate::error::PickleError;
use crate::limits::Limits;
use crate::value::{Call, Value};

/// The index of a value in the heap.
pub(crate) type Id = usize;

/// A value whose parts are indices into the heap.
#[derive(Debug)]
pub(crate) enum Node {
    /// A value without parts.
    Leaf(Value),
    List(Vec<Id>),
    Tuple(Vec<Id>),
    /// Keys and values, alternating.
    Dict(Vec<Id>),
    Set(Vec<Id>),
    FrozenSet(Vec<Id>),
    Call {
        function: usize,
        /// A tuple.
        arguments: Id,
        state: Option<Id>,
    },
    Persistent(Id),
}

/// All values of one pickle.
#[derive(Debug, Default)]
pub(crate) struct Heap {
    nodes: Vec<Node>,
}

impl Heap {
    pub(crate) fn add(&mut self, node: Node) -> Id {
        self.nodes.push(node);
        self.nodes.len() - 1
    }

    pub(crate) fn get(&self, id: Id) -> &Node {
        &self.nodes[id]
    }

    pub(crate) fn get_mut(&mut self, id: Id) -> &mut Node {
        &mut self.nodes[id]
    }

    /// The tree below `id`.
    pub(crate) fn finish(
        &self,
        id: Id,
        limits: &Limits,
        input_bytes: usize,
    ) -> Result<Value, PickleError> {
        let left = Budget { values: limits.values, text: limits.text_bytes };
        Copier { heap: self, limits, left, input_bytes }.value(id, 0)
    }
}

struct Budget {
    values: usize,
    text: usize,
}

struct Copier<'a> {
    heap: &'a Heap,
    limits: &'a Limits,
    left: Budget,
    input_bytes: usize,
}

impl Copier<'_> {
    fn value(&mut self, id: Id, depth: usize) -> Result<Value, PickleError> {
        let limits = self.limits;
        if depth > limits.depth {
            return Err(self.over("nested containers", limits.depth));
        }
        match self.left.values.checked_sub(1) {
            Some(left) => self.left.values = left,
            None => return Err(self.over("values", limits.values)),
        }
        match &self.heap.nodes[id] {
            Node::Leaf(value) => self.leaf(value),
            Node::List(ids) => self.values(ids, depth).map(Value::List),
            Node::Tuple(ids) => self.values(ids, depth).map(Value::Tuple),
            Node::Set(ids) => self.values(ids, depth).map(Value::Set),
            Node::FrozenSet(ids) => self.values(ids, depth).map(Value::FrozenSet),
            Node::Call { function, arguments, state } => {
                let Node::Tuple(arguments) = self.heap.get(*arguments) else {
                    return Ok(Value::None); // cannot happen: it was a tuple when it was called
                };
                let (function, arguments) = (*function, self.values(arguments, depth)?);
                let state = state.map(|id| self.value(id, depth + 1)).transpose()?;
                Ok(Value::Call(Box::new(Call { function, arguments, state })))
            }
            Node::Persistent(id) => Ok(Value::Persistent(Box::new(self.value(*id, depth + 1)?))),
            Node::Dict(ids) => {
                let entry = |pair: &[Id]| {
                    Ok((self.value(pair[0], depth + 1)?, self.value(pair[1], depth + 1)?))
                };
                ids.chunks_exact(2).map(entry).collect::<Result<_, _>>().map(Value::Dict)
            }
        }
    }

    fn values(&mut self, ids: &[Id], depth: usize) -> Result<Vec<Value>, PickleError> {
        ids.iter().map(|&id| self.value(id, depth + 1)).collect()
    }

    fn leaf(&mut self, value: &Value) -> Result<Value, PickleError> {
        let bytes = match value {
            Value::Str(text) => text.len(),
            Value::Bytes(bytes) | Value::BigInt(bytes) => bytes.len(),
            _ => 0,
        };
        match self.left.text.checked_sub(bytes) {
            Some(left) => self.left.text = left,
            None => return Err(self.over("bytes of text", self.limits.text_bytes)),
        }
        Ok(value.clone())
    }

    fn over(&self, what: &'static str, limit: usize) -> PickleError {
        PickleError::Limit { offset: self.input_bytes, what, limit }
    }
}
