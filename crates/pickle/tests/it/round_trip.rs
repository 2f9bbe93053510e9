//! What was written is read again as the same value.

use fitgpt_pickle::{Value, parse, write};
use proptest::prelude::*;

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::None),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::Int),
        (-300_i64..70_000).prop_map(Value::Int),
        any::<f64>()
            .prop_filter("NaN is not equal to itself", |n| !n.is_nan())
            .prop_map(Value::Float),
        ".*".prop_map(Value::Str),
        prop::collection::vec(any::<u8>(), 0..300).prop_map(Value::Bytes),
        prop::collection::vec(any::<u8>(), 9..300).prop_map(|mut bytes| {
            bytes.push(1); // The high byte says something, so this is the shortest form.
            Value::BigInt(bytes)
        }),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        let parts = prop::collection::vec(inner.clone(), 0..6);
        let entries = prop::collection::vec((inner.clone(), inner), 0..6);
        prop_oneof![
            parts.clone().prop_map(Value::List),
            parts.clone().prop_map(Value::Tuple),
            parts.clone().prop_map(Value::Set),
            parts.prop_map(Value::FrozenSet),
            entries.prop_map(Value::Dict),
        ]
    })
}

proptest! {
    #[test]
    fn written_values_are_read_again(value in value()) {
        prop_assert_eq!(parse(&write(&value)).unwrap(), value);
    }
}

#[test]
fn the_later_of_two_equal_keys_counts() {
    let entry = |n| (Value::Str("k".to_owned()), Value::Int(n));
    let dict = Value::Dict(vec![entry(1), entry(2)]);
    assert_eq!(dict.get("k"), Some(&Value::Int(2)));
    assert_eq!(dict.get("other"), None);
    assert_eq!(Value::Int(1).get("k"), None);
}
