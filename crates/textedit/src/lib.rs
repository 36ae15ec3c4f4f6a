//! Changes to a text that a model describes inexactly. Pure: text in, text or an error for the model
//! out; nothing here knows files, tools or sessions.
//!
//! - [`replace`]: finds the quoted text, by the strictest strategy that has a match, and replaces it
//!   in the file's own characters and line ends.
//! - [`patch`]: the patch format that some models were trained on.
//! - [`near_match`]: the most similar place, if nothing matches, for the error.
//! - `merge`, `indent`, `unicode_folding`: the differences that a quote may have from the file
//!   (typography, indentation), and their removal from the change.
//!
//! An inexact quote never leads to a guess: several matches are an error that lists them.

mod indent;
mod merge;
pub mod near_match;
pub mod patch;
pub mod replace;
mod unicode_folding;
