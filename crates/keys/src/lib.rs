#![doc = include_str!("../README.md")]

mod key_file;
mod key_ring;
mod payload_codec;

pub use key_file::{KeyFile, KeyFileError, Keys};
pub use key_ring::{KeyDescription, KeyError, KeyRing};
pub use payload_codec::data_converter;
