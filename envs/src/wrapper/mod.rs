//! Wrappers over any environment, by Gymnasium's names.
