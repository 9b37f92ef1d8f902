//! The setting `train.device`: which device a run learns on, and what this machine and this build have.

use crate::error::{Error, Result};

/// A device by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// `cpu`.
    Cpu,
    /// `cuda:N`; `cuda` is `cuda:0`.
    Cuda(usize),
}

impl std::fmt::Display for Choice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Choice::Cpu => f.write_str("cpu"),
            Choice::Cuda(n) => write!(f, "cuda:{n}"),
        }
    }
}

impl Choice {
    /// From a name; `auto` takes the first GPU where there is one, else the CPU.
    ///
    /// # Errors
    /// `Device` for a name that is none.
    pub fn new(name: &str) -> Result<Self> {
        let number = name.strip_prefix("cuda:").and_then(|n| n.parse().ok());
        match (name, number) {
            ("cpu", _) => Ok(Choice::Cpu),
            ("auto", _) => Ok(Self::auto().0),
            ("cuda", _) => Ok(Choice::Cuda(0)),
            (_, Some(n)) => Ok(Choice::Cuda(n)),
            _ => {
                let problem = "is no device; use cpu, auto, cuda or cuda:N".into();
                Err(Error::Device { device: name.into(), problem })
            }
        }
    }

    /// What `auto` takes, and one line that says so and why.
    pub fn auto() -> (Self, String) {
        match gpus() {
            Ok(gpus) if !gpus.is_empty() => (Choice::Cuda(0), format!("device cuda:0 (auto: {})", gpus[0])),
            Ok(_) => (Choice::Cpu, "device cpu (auto: CUDA finds no GPU)".into()),
            Err(Error::Device { problem, .. }) => (Choice::Cpu, format!("device cpu (auto: no CUDA: {problem})")),
            Err(e) => (Choice::Cpu, format!("device cpu (auto: no CUDA: {e})")),
        }
    }

    /// Is it here?
    ///
    /// # Errors
    /// `Device` saying why not, and what is.
    pub fn check(self) -> Result<()> {
        let Choice::Cuda(n) = self else { return Ok(()) };
        let refuse = |why: String| Err(Error::Device { device: self.to_string(), problem: why });
        match gpus() {
            Ok(gpus) if n < gpus.len() => Ok(()),
            Ok(gpus) => {
                let there: Vec<String> = (0..gpus.len()).map(|i| format!("cuda:{i}")).collect();
                let there = if there.is_empty() { String::new() } else { format!(", {}", there.join(", ")) };
                refuse(format!("is not there; devices present: cpu{there}"))
            }
            Err(Error::Device { problem, .. }) => refuse(format!("{problem}; devices present: cpu")),
            Err(e) => Err(e),
        }
    }
}

/// The GPUs that can be used, each in words.
///
/// # Errors
/// `Device` saying why there is none.
#[cfg(feature = "cuda")]
pub fn gpus() -> Result<Vec<String>> {
    let found = super::cuda::probe()?;
    let words = |g: &super::cuda::Gpu| {
        let ((major, minor), gib) = (g.capability, g.memory as f64 / (1u64 << 30) as f64);
        format!("{}, compute capability {major}.{minor}, {gib:.1} GiB", g.name)
    };
    Ok(found.gpus.iter().map(words).collect())
}

/// As above: none in this build.
///
/// # Errors
/// Always `Device`.
#[cfg(not(feature = "cuda"))]
pub fn gpus() -> Result<Vec<String>> {
    Err(Error::Device { device: "cuda".into(), problem: "this build has no CUDA support".into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for (name, choice, shown) in [
            ("cpu", Choice::Cpu, "cpu"),
            ("cuda", Choice::Cuda(0), "cuda:0"),
            ("cuda:0", Choice::Cuda(0), "cuda:0"),
            ("cuda:7", Choice::Cuda(7), "cuda:7"),
        ] {
            assert_eq!(Choice::new(name).unwrap(), choice);
            assert_eq!(choice.to_string(), shown);
        }
        for name in ["tpu", "cuda:", "cuda:x", "cuda:-1", "CPU", ""] {
            let e = Choice::new(name).unwrap_err();
            assert!(e.is_usage() && e.to_string().contains("cuda:N"), "{e}");
        }
    }
}
