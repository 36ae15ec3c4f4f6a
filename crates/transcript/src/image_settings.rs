//! The limits of images in messages.

use schemars::JsonSchema;
use serde::Deserialize;

/// The limits of images.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ImageSettings {
    /// Scale larger images down. If false, they are left out, and the model is informed. Default:
    /// true.
    pub auto_resize: bool,
    /// In pixels. Default: 2000.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_width: u32,
    /// In pixels. Default: 2000.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_height: u32,
    /// The maximum size in base64, in bytes. Default: 5242880.
    pub max_base64_bytes: usize,
}

impl Default for ImageSettings {
    fn default() -> Self {
        Self {
            auto_resize: true,
            max_width: 2_000,
            max_height: 2_000,
            max_base64_bytes: 5 << 20,
        }
    }
}
