//! Sum tree: draws leaf i with probability wᵢ / Σ w in O(log n).
//!
//! Every node is the f64 sum of its two children and is formed anew at each update, never changed by a difference, so
//! nothing drifts. Leaf k holds queries in [w₀+…+wₖ₋₁, w₀+…+wₖ); a leaf of weight 0 is never found.
//! Source: prioritised replay (Schaul et al., 2016), App. B.2.1.

/// Weights of leaves 0..capacity and their partial sums.
#[derive(Debug, Clone)]
pub struct SumTree {
    /// Heap order: the root at 1, children of i at 2i and 2i+1, leaves from `leaves` on.
    node: Vec<f64>,
    leaves: usize,
}

impl SumTree {
    /// A tree of at least `capacity` leaves of weight 0.
    pub fn new(capacity: usize) -> Self {
        let leaves = capacity.next_power_of_two().max(1);
        SumTree { node: vec![0.0; 2 * leaves], leaves }
    }

    /// Number of leaves.
    pub fn capacity(&self) -> usize {
        self.leaves
    }

    /// Makes room for at least `capacity` leaves; weights stay.
    pub fn grow(&mut self, capacity: usize) {
        if capacity > self.leaves {
            let mut larger = SumTree::new(capacity);
            larger.node[larger.leaves..][..self.leaves].copy_from_slice(&self.node[self.leaves..]);
            for i in (1..larger.leaves).rev() {
                larger.node[i] = larger.node[2 * i] + larger.node[2 * i + 1];
            }
            *self = larger;
        }
    }

    /// Sets one weight. `false`, and nothing changes, for a leaf out of range or a weight that is negative, NaN or
    /// infinite, or that makes the total infinite.
    #[must_use]
    pub fn set(&mut self, leaf: usize, weight: f64) -> bool {
        if leaf >= self.leaves || !weight.is_finite() || weight < 0.0 {
            return false;
        }
        let before = self.node[self.leaves + leaf];
        self.write(leaf, weight);
        if self.total().is_finite() {
            return true;
        }
        self.write(leaf, before);
        false
    }

    fn write(&mut self, leaf: usize, weight: f64) {
        let mut i = self.leaves + leaf;
        self.node[i] = weight;
        while i > 1 {
            i /= 2;
            self.node[i] = self.node[2 * i] + self.node[2 * i + 1];
        }
    }

    /// Weight of a leaf; 0 out of range.
    pub fn get(&self, leaf: usize) -> f64 {
        if leaf < self.leaves { self.node[self.leaves + leaf] } else { 0.0 }
    }

    /// Sum of all weights.
    pub fn total(&self) -> f64 {
        self.node[1]
    }

    /// The leaf that holds `query`; queries beyond the total find the last leaf with a weight. `None` if all are 0.
    pub fn find(&self, query: f64) -> Option<usize> {
        if self.total() <= 0.0 {
            return None;
        }
        let (mut i, mut query) = (1, query);
        while i < self.leaves {
            let (left, right) = (self.node[2 * i], self.node[2 * i + 1]);
            // Rounding can push a query over the border of an empty half: go where the weight is.
            if right <= 0.0 || (left > 0.0 && query < left) {
                i *= 2;
            } else {
                query -= left;
                i = 2 * i + 1;
            }
        }
        Some(i - self.leaves)
    }

    /// Stratified query number `k` of `n`: (k + u)/n · total, with u in [0, 1).
    pub fn stratified_query(&self, k: usize, n: usize, u: f64) -> f64 {
        (k as f64 + u) / n as f64 * self.total()
    }

    /// Smallest weight above 0.
    pub fn min_positive(&self) -> Option<f64> {
        self.weights().filter(|&w| w > 0.0).min_by(f64::total_cmp)
    }

    /// Largest weight.
    pub fn max(&self) -> f64 {
        self.weights().fold(0.0, f64::max)
    }

    /// All weights in order.
    pub fn weights(&self) -> impl Iterator<Item = f64> + '_ {
        self.node[self.leaves..].iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_leaves_by_hand() {
        let mut tree = SumTree::new(3);
        for (leaf, weight) in [(0, 1.0), (2, 2.0), (3, 4.0)] {
            assert!(tree.set(leaf, weight));
        }
        assert_eq!((tree.total(), tree.capacity()), (7.0, 4));
        for (query, leaf) in [(0.0, 0), (0.99, 0), (1.0, 2), (2.99, 2), (3.0, 3), (7.0, 3), (99.0, 3)] {
            assert_eq!(tree.find(query), Some(leaf), "{query}");
        }
        assert!(!tree.set(1, f64::NAN) && !tree.set(1, -1.0) && !tree.set(4, 1.0) && !tree.set(1, f64::INFINITY));
        tree.grow(9);
        assert_eq!((tree.total(), tree.capacity(), tree.find(1.0)), (7.0, 16, Some(2)));
        assert_eq!((tree.min_positive(), tree.max()), (Some(1.0), 4.0));
        assert_eq!(SumTree::new(4).find(0.0), None);
    }
}
