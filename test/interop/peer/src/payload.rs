// Bytes and items named by length and seed, and their checksums. test/interop/payload.ts makes the same ones: neither may change
// alone.

use serde::{Deserialize, Serialize};

/// The bytes that (length, seed) name: the upper byte of each state of a linear congruential generator.
pub fn bytes_of(length: usize, seed: u32) -> Vec<u8> {
    let mut state = seed;
    (0..length)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        })
        .collect()
}

/// FNV-1a, 32 bits.
pub fn checksum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
    })
}

/// A struct as applications stream it. On the wire: an array of its fields, in this order.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Token {
    pub id: u32,
    pub text: String,
    pub logprob: Option<f32>,
    pub top: Vec<(u32, f32)>,
}

/// The token at a position of a stream that (seed) names. Fractions of 8 survive f32 and JSON.
pub fn token_of(seed: u32, index: u32) -> Token {
    let id = seed.wrapping_add(index.wrapping_mul(2_654_435_761));
    Token {
        id,
        text: "tök".repeat((index % 5) as usize),
        logprob: (index % 3 > 0).then(|| -((1 + index % 64) as f32) / 8.0),
        top: (0..index % 4)
            .map(|rank| (id.wrapping_add(rank), rank as f32 / 8.0))
            .collect(),
    }
}
