//! Random streams. One ChaCha8 stream per environment; every seed of a vector environment is a hash of
//! (base seed, copy, episode), so that any episode can be started again without replaying those before it.
//! The mix is SplitMix64's finaliser (Steele, Lea, Flood, 2014).

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

/// SplitMix64: one well mixed output per input.
#[inline]
fn split_mix(x: u64) -> u64 {
    let mut z = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Seed of episode `episode` of copy `copy` under a base seed.
pub fn episode_seed(base: u64, copy: u64, episode: u64) -> u64 {
    split_mix(split_mix(split_mix(base) ^ copy) ^ episode)
}

/// An environment's own stream, as Gymnasium's `np_random`: a reset with a seed restarts it, a reset without one goes
/// on. A stream that was never seeded takes its seed from the operating system.
#[derive(Debug, Clone, Default)]
pub struct Stream(Option<ChaCha8Rng>);

impl Stream {
    /// The stream at the start of an episode.
    #[inline]
    pub fn begin(&mut self, seed: Option<u64>) -> &mut ChaCha8Rng {
        if let Some(seed) = seed {
            self.0 = Some(ChaCha8Rng::seed_from_u64(seed));
        }
        self.rng()
    }

    /// The stream within an episode.
    #[inline]
    pub fn rng(&mut self) -> &mut ChaCha8Rng {
        self.0.get_or_insert_with(|| ChaCha8Rng::seed_from_u64(rand::random()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::RngExt;

    #[test]
    fn seeds_differ_in_every_coordinate() {
        let mut all = std::collections::HashSet::new();
        for base in 0..10 {
            for copy in 0..10 {
                for episode in 0..10 {
                    assert!(all.insert(episode_seed(base, copy, episode)));
                }
            }
        }
    }

    #[test]
    fn a_seed_restarts_and_none_goes_on() {
        let mut s = Stream::default();
        let a: u64 = s.begin(Some(7)).random();
        let b: u64 = s.begin(None).random();
        assert_ne!(a, b);
        assert_eq!(s.begin(Some(7)).random::<u64>(), a);
        assert_eq!(s.begin(None).random::<u64>(), b);
    }
}
