//! Joint actions. A `MultiDiscrete` action is one index for Q-learning, row-major (`row · columns + column`), and one
//! element per component for the environment and as network input. Source: POPGym's DiscreteAction wrapper.

use mamba_rl_envs::Space;

use crate::error::{Error, Result};

/// Components of joint action `index`, into `parts` `[components]`.
pub fn split_action(space: &Space, index: usize, parts: &mut [i32]) {
    match space {
        Space::MultiDiscrete(sizes) => {
            let mut rest = index;
            for (part, &n) in parts.iter_mut().zip(sizes).rev() {
                *part = (rest % n) as i32;
                rest /= n;
            }
        }
        _ => parts[0] = index as i32,
    }
}

/// Index of the joint action with these components.
///
/// # Errors
/// `Usage` naming the space when a component lies outside it.
pub fn join_action(space: &Space, parts: &[i32]) -> Result<usize> {
    let outside = || Error::Usage(format!("stored action {parts:?} is not in {space}"));
    let one = [match space {
        Space::Discrete(n) => *n,
        _ => 0,
    }];
    let sizes = match space {
        Space::MultiDiscrete(sizes) => &sizes[..],
        _ => &one,
    };
    if sizes.len() != parts.len() {
        return Err(outside());
    }
    let mut index = 0;
    for (&n, &part) in sizes.iter().zip(parts) {
        let part = usize::try_from(part).ok().filter(|&p| p < n).ok_or_else(outside)?;
        index = index * n + part;
    }
    Ok(index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_major_there_and_back() {
        let space = Space::MultiDiscrete(vec![3, 5]);
        let mut parts = [0; 2];
        split_action(&space, 7, &mut parts);
        assert_eq!(parts, [1, 2]);
        for i in 0..15 {
            split_action(&space, i, &mut parts);
            assert_eq!(join_action(&space, &parts).unwrap(), i);
        }
        assert!(join_action(&space, &[3, 0]).is_err());
        assert!(join_action(&Space::Discrete(4), &[4]).is_err());
        assert_eq!(join_action(&Space::Discrete(4), &[3]).unwrap(), 3);
    }
}
