//! What is the same in both versions of the protocol but for the types. This file and its folder are compiled for
//! each version, as a part of it, with what it calls `acp`.

use super::acp;

#[path = "same/form.rs"]
pub(super) mod form;
#[path = "same/kept.rs"]
pub(super) mod kept;
