//! A [`Node`] as something serde can read types from. Order is kept; places are not: whoever needs
//! one looks it up in the tree.

use serde::de::value::{MapDeserializer, SeqDeserializer, StrDeserializer};
use serde::de::{Error as _, IntoDeserializer, Visitor, value};
use serde::{Deserializer, forward_to_deserialize_any};

use super::node::{Node, NodeValue};

/// Reads a type from a checked tree.
///
/// # Errors
/// Where the tree does not fit the type: after `declare::check` only if the two disagree.
pub(crate) fn decode<'de, T: serde::Deserialize<'de>>(node: &'de Node) -> Result<T, value::Error> {
    T::deserialize(NodeDeserializer(node))
}

#[derive(Clone, Copy)]
struct NodeDeserializer<'de>(&'de Node);

impl<'de> IntoDeserializer<'de, value::Error> for NodeDeserializer<'de> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for NodeDeserializer<'de> {
    type Error = value::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, value::Error> {
        match &self.0.value {
            NodeValue::Null => visitor.visit_unit(),
            NodeValue::Bool(yes) => visitor.visit_bool(*yes),
            NodeValue::Number(number) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
                (Some(n), ..) => visitor.visit_u64(n),
                (None, Some(n), _) => visitor.visit_i64(n),
                // A whole number written with a point or an exponent is a whole number.
                (None, None, Some(n)) if n.fract() == 0.0 && n.abs() < 9e15 =>
                {
                    #[expect(clippy::cast_possible_truncation, reason = "whole and below 2^53")]
                    visitor.visit_i64(n as i64)
                }
                (None, None, Some(n)) => visitor.visit_f64(n),
                (None, None, None) => Err(value::Error::custom("a number out of range")),
            },
            NodeValue::Text(text) => visitor.visit_borrowed_str(text),
            NodeValue::List(nodes) => visitor.visit_seq(SeqDeserializer::new(nodes.iter().map(NodeDeserializer))),
            NodeValue::Map(entries) => {
                let entries = entries.iter().map(|entry| (KeyDeserializer(&entry.key), NodeDeserializer(&entry.node)));
                visitor.visit_map(MapDeserializer::new(entries))
            }
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, value::Error> {
        match self.0.value {
            NodeValue::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, value::Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, value::Error> {
        match &self.0.value {
            NodeValue::Text(text) => StrDeserializer::new(text).deserialize_enum(name, variants, visitor),
            _ => Err(value::Error::custom(format!("{} where a word was expected", self.0.kind()))),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

#[derive(Clone, Copy)]
struct KeyDeserializer<'de>(&'de str);

impl<'de> IntoDeserializer<'de, value::Error> for KeyDeserializer<'de> {
    type Deserializer = value::BorrowedStrDeserializer<'de, value::Error>;

    fn into_deserializer(self) -> Self::Deserializer {
        value::BorrowedStrDeserializer::new(self.0)
    }
}
