//! Spaces of observations and actions, named and printed like Gymnasium's, and how each becomes one typed flat row.
//!
//! | space | elements of a row | network features |
//! |---|---|---|
//! | `Discrete(n)` | 1 | one-hot, n |
//! | `MultiDiscrete(n_1..n_k)` | k | one one-hot block per component |
//! | `Box` | product of the shape | the floats; bytes divided by 255 |
//! | `Tuple` | its parts in order | its parts in order |

use serde::{Deserialize, Serialize};

use crate::buffer::{ActionRef, ObsElem, ObsRef};
use crate::error::{EnvError, Result};

/// Element type of a flat observation row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    /// All parts discrete with at most 256 values, or byte boxes.
    U8,
    /// A discrete part with more than 256 values, no float box.
    I32,
    /// Any float box; discrete parts are stored as exact floats.
    F32,
}

impl std::fmt::Display for Dtype {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Dtype::U8 => "u8",
            Dtype::I32 => "i32",
            Dtype::F32 => "f32",
        })
    }
}

/// Element type of a `Box`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Element {
    /// 32-bit floats.
    #[default]
    F32,
    /// Bytes, as in images.
    U8,
}

/// A set of observations or actions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Space {
    /// The integers 0..n.
    Discrete(usize),
    /// One `Discrete` per component.
    MultiDiscrete(Vec<usize>),
    /// Numbers between `low` and `high` (inclusive, one bound per element, infinite where unbounded), row-major.
    Box {
        /// Lower bounds, one per element.
        #[serde(with = "bounds")]
        low: Vec<f32>,
        /// Upper bounds, one per element.
        #[serde(with = "bounds")]
        high: Vec<f32>,
        /// Shape; its product is the number of elements.
        shape: Vec<usize>,
        /// Element type.
        #[serde(default)]
        element: Element,
    },
    /// Several spaces side by side.
    Tuple(Vec<Space>),
}

/// One leaf of a space, in row order.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Part<'a> {
    /// One integer below n.
    Discrete(usize),
    /// `low.len()` numbers with bounds.
    Box {
        /// Lower bounds.
        low: &'a [f32],
        /// Upper bounds.
        high: &'a [f32],
        /// Element type.
        element: Element,
    },
}

impl Part<'_> {
    /// Elements in the flat row.
    pub fn len(&self) -> usize {
        match self {
            Part::Discrete(_) => 1,
            Part::Box { low, .. } => low.len(),
        }
    }

    /// True for a box without elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Numbers in the feature vector.
    pub fn features(&self) -> usize {
        match self {
            Part::Discrete(n) => *n,
            Part::Box { low, .. } => low.len(),
        }
    }
}

impl Space {
    /// One-dimensional float box with a bound per element.
    pub fn box_f32(low: &[f32], high: &[f32]) -> Space {
        Space::Box { low: low.to_vec(), high: high.to_vec(), shape: vec![low.len()], element: Element::F32 }
    }

    /// Calls `f` for each leaf in row order, without allocating.
    pub fn visit<'a>(&'a self, f: &mut dyn FnMut(Part<'a>)) {
        match self {
            Space::Discrete(n) => f(Part::Discrete(*n)),
            Space::MultiDiscrete(ns) => ns.iter().for_each(|&n| f(Part::Discrete(n))),
            Space::Box { low, high, element, .. } => f(Part::Box { low, high, element: *element }),
            Space::Tuple(parts) => parts.iter().for_each(|p| p.visit(f)),
        }
    }

    /// The leaves in row order.
    pub fn parts(&self) -> Vec<Part<'_>> {
        let mut parts = Vec::new();
        self.visit(&mut |p| parts.push(p));
        parts
    }

    /// Elements of a flat row.
    pub fn flat_len(&self) -> usize {
        let mut n = 0;
        self.visit(&mut |p| n += p.len());
        n
    }

    /// Length of the feature vector that `write_features` fills.
    pub fn onehot_len(&self) -> usize {
        let mut n = 0;
        self.visit(&mut |p| n += p.features());
        n
    }

    /// Element type of a flat observation row.
    pub fn dtype(&self) -> Dtype {
        let (mut float, mut wide) = (false, false);
        self.visit(&mut |p| match p {
            Part::Discrete(n) => wide |= n > 256,
            Part::Box { element, .. } => float |= element == Element::F32,
        });
        match (float, wide) {
            (true, _) => Dtype::F32,
            (false, true) => Dtype::I32,
            (false, false) => Dtype::U8,
        }
    }

    /// Number of joint actions: n, the product of a `MultiDiscrete`, none for spaces with numbers in them.
    pub fn n_actions(&self) -> Option<usize> {
        match self {
            Space::Discrete(n) => Some(*n),
            Space::MultiDiscrete(ns) => Some(ns.iter().product()),
            _ => None,
        }
    }

    /// True for `Discrete` and `MultiDiscrete`, whose actions are `i32`.
    pub fn is_discrete(&self) -> bool {
        matches!(self, Space::Discrete(_) | Space::MultiDiscrete(_))
    }

    /// Whether a flat row (type, length, every value) lies in the space. NaN never does.
    pub fn contains_row(&self, row: ObsRef<'_>) -> bool {
        if row.dtype() != self.dtype() {
            return false;
        }
        match row {
            ObsRef::U8(r) => self.contains(r),
            ObsRef::I32(r) => self.contains(r),
            ObsRef::F32(r) => self.contains(r),
        }
    }

    fn contains<T: ObsElem>(&self, row: &[T]) -> bool {
        let (mut at, mut inside) = (0, row.len() == self.flat_len());
        self.visit(&mut |p| {
            let Some(values) = row.get(at..at + p.len()) else {
                inside = false;
                return;
            };
            at += p.len();
            inside &= match p {
                Part::Discrete(n) => values.iter().all(|v| v.to_index().is_some_and(|i| i < n)),
                Part::Box { low, high, .. } => {
                    values.iter().zip(low.iter().zip(high)).all(|(v, (l, h))| (*l..=*h).contains(&v.to_f32()))
                }
            };
        });
        inside
    }

    /// Whether one flat action (`Discrete` 1 × i32, `MultiDiscrete` k × i32, `Box` k × f32) lies in the space.
    #[inline]
    pub fn contains_action(&self, action: ActionRef<'_>) -> bool {
        match (self, action) {
            (Space::Discrete(n), ActionRef::Discrete([a])) => usize::try_from(*a).is_ok_and(|a| a < *n),
            (Space::MultiDiscrete(ns), ActionRef::Discrete(a)) => {
                a.len() == ns.len() && a.iter().zip(ns).all(|(a, n)| usize::try_from(*a).is_ok_and(|a| a < *n))
            }
            (Space::Box { low, high, .. }, ActionRef::Continuous(a)) => {
                a.len() == low.len() && a.iter().zip(low.iter().zip(high)).all(|(a, (l, h))| (*l..=*h).contains(a))
            }
            _ => false,
        }
    }

    /// Error unless the action lies in the space.
    #[inline]
    pub fn check_action(&self, env: &str, action: ActionRef<'_>) -> Result<()> {
        if self.contains_action(action) { Ok(()) } else { self.not_an_action(env, action) }
    }

    #[cold]
    fn not_an_action(&self, env: &str, action: ActionRef<'_>) -> Result<()> {
        Err(EnvError::Action { env: env.to_owned(), space: self.to_string(), found: action.to_string() })
    }
}

/// Network input of one flat row: one-hot block per discrete part, box parts as floats (bytes / 255), concatenated.
/// `out` has `space.onehot_len()` elements and is overwritten. The row's numbers count, not their type. Errors: row or `out`
/// of another length, an index outside its part, a number in a box that is not finite.
pub fn write_features(space: &Space, row: ObsRef<'_>, out: &mut [f32]) -> Result<()> {
    let (rows, wanted) = (space.flat_len(), space.onehot_len());
    if row.len() != rows {
        return Err(EnvError::Length { what: format!("row of {space}"), found: row.len(), expected: rows });
    }
    if out.len() != wanted {
        return Err(EnvError::Length { what: format!("features of {space}"), found: out.len(), expected: wanted });
    }
    match row {
        ObsRef::U8(r) => features(space, r, out),
        ObsRef::I32(r) => features(space, r, out),
        ObsRef::F32(r) => features(space, r, out),
    }
}

/// Lengths are checked by the caller. A box's bounds are not checked: simulators round beyond them.
fn features<T: ObsElem>(space: &Space, row: &[T], out: &mut [f32]) -> Result<()> {
    out.fill(0.0);
    let (mut i, mut o, mut bad) = (0, 0, None);
    space.visit(&mut |p| {
        match p {
            Part::Discrete(n) => match row[i].to_index().filter(|&v| v < n) {
                Some(v) => out[o + v] = 1.0,
                None if bad.is_none() => bad = Some((i, format!("one of 0..{n}"))),
                None => {}
            },
            Part::Box { low, element, .. } => {
                let scale = if element == Element::U8 { 1.0 / 255.0 } else { 1.0 };
                for (k, (y, x)) in out[o..o + low.len()].iter_mut().zip(&row[i..]).enumerate() {
                    *y = x.to_f32() * scale;
                    if !y.is_finite() && bad.is_none() {
                        bad = Some((i + k, "a finite number".to_owned()));
                    }
                }
            }
        }
        i += p.len();
        o += p.features();
    });
    match bad {
        None => Ok(()),
        Some((element, expected)) => {
            let found = row[element].to_f32().to_string();
            Err(EnvError::Observation { element, found, expected })
        }
    }
}

impl std::fmt::Display for Space {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Space::Discrete(n) => write!(f, "Discrete({n})"),
            Space::MultiDiscrete(ns) => write!(f, "MultiDiscrete({ns:?})"),
            Space::Box { low, high, shape, element } => {
                f.write_str("Box(")?;
                bound(f, low)?;
                f.write_str(", ")?;
                bound(f, high)?;
                let dims: Vec<String> = shape.iter().map(usize::to_string).collect();
                let comma = if shape.len() == 1 { "," } else { "" };
                let kind = if *element == Element::U8 { "uint8" } else { "float32" };
                write!(f, ", ({}{comma}), {kind})", dims.join(", "))
            }
            Space::Tuple(parts) => {
                f.write_str("Tuple(")?;
                for (i, p) in parts.iter().enumerate() {
                    write!(f, "{}{p}", if i > 0 { ", " } else { "" })?;
                }
                f.write_str(")")
            }
        }
    }
}

/// One number where all are equal, else the list, as Gymnasium does.
fn bound(f: &mut std::fmt::Formatter<'_>, values: &[f32]) -> std::fmt::Result {
    let show = |v: f32| if v.fract() == 0.0 { format!("{v:.1}") } else { v.to_string() };
    match values {
        [first, rest @ ..] if rest.iter().all(|v| v == first) => f.write_str(&show(*first)),
        _ => write!(f, "[{}]", values.iter().map(|v| show(*v)).collect::<Vec<_>>().join(" ")),
    }
}

/// JSON has no infinity: infinite bounds are written as "inf" and "-inf".
mod bounds {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    #[serde(untagged)]
    enum Bound {
        Finite(f32),
        Infinite(String),
    }

    pub fn serialize<S: Serializer>(values: &[f32], s: S) -> Result<S::Ok, S::Error> {
        let each =
            values.iter().map(|v| if v.is_finite() { Bound::Finite(*v) } else { Bound::Infinite(v.to_string()) });
        s.collect_seq(each)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<f32>, D::Error> {
        let parse = |b| match b {
            Bound::Finite(v) => Ok(v),
            Bound::Infinite(s) => s.parse().map_err(|_| serde::de::Error::custom(format!("bound `{s}` is no number"))),
        };
        Vec::<Bound>::deserialize(d)?.into_iter().map(parse).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mixed() -> Space {
        Space::Tuple(vec![
            Space::Discrete(3),
            Space::box_f32(&[-1.0, -2.0], &[1.0, 2.0]),
            Space::MultiDiscrete(vec![2, 4]),
        ])
    }

    #[test]
    fn lengths_and_types() {
        assert_eq!((mixed().flat_len(), mixed().onehot_len(), mixed().dtype()), (5, 11, Dtype::F32));
        assert_eq!(Space::Discrete(256).dtype(), Dtype::U8);
        assert_eq!(Space::Discrete(257).dtype(), Dtype::I32);
        assert_eq!(Space::MultiDiscrete(vec![3, 5]).n_actions(), Some(15));
    }

    #[test]
    fn prints_like_gymnasium() {
        assert_eq!(Space::Discrete(4).to_string(), "Discrete(4)");
        assert_eq!(Space::MultiDiscrete(vec![2, 4]).to_string(), "MultiDiscrete([2, 4])");
        assert_eq!(Space::box_f32(&[-4.8; 2], &[4.8; 2]).to_string(), "Box(-4.8, 4.8, (2,), float32)");
        assert_eq!(Space::box_f32(&[-2.0], &[2.0]).to_string(), "Box(-2.0, 2.0, (1,), float32)");
        assert_eq!(
            Space::box_f32(&[-4.8, f32::NEG_INFINITY], &[4.8, f32::INFINITY]).to_string(),
            "Box([-4.8 -inf], [4.8 inf], (2,), float32)"
        );
        let t = Space::Tuple(vec![Space::Discrete(2), Space::Discrete(4)]);
        assert_eq!(t.to_string(), "Tuple(Discrete(2), Discrete(4))");
        let bytes = Space::Box { low: vec![0.0; 4], high: vec![255.0; 4], shape: vec![2, 2], element: Element::U8 };
        assert_eq!(bytes.to_string(), "Box(0.0, 255.0, (2, 2), uint8)");
    }

    #[test]
    fn features_by_hand() {
        let mut out = [9.0; 11];
        write_features(&mixed(), ObsRef::F32(&[2.0, 0.5, -0.25, 1.0, 0.0]), &mut out).unwrap();
        assert_eq!(out, [0.0, 0.0, 1.0, 0.5, -0.25, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0]);
        assert!(write_features(&mixed(), ObsRef::F32(&[2.0]), &mut out).is_err());
        assert!(write_features(&Space::Discrete(4), ObsRef::U8(&[1]), &mut out).is_err());
        let outside =
            |row: [f32; 5]| write_features(&mixed(), ObsRef::F32(&row), &mut [0.0; 11]).unwrap_err().to_string();
        assert_eq!(outside([3.0, 0.5, 0.0, 1.0, 0.0]), "observation: element 0 is 3, expected one of 0..3");
        assert_eq!(outside([2.0, 0.5, f32::NAN, 1.0, 0.0]), "observation: element 2 is NaN, expected a finite number");
        assert_eq!(outside([2.0, 0.5, 0.0, 1.0, 0.5]), "observation: element 4 is 0.5, expected one of 0..4");
        let bytes = Space::Box { low: vec![0.0; 2], high: vec![255.0; 2], shape: vec![2], element: Element::U8 };
        let mut out = [0.0; 2];
        write_features(&bytes, ObsRef::U8(&[0, 255]), &mut out).unwrap();
        assert_eq!(out, [0.0, 1.0]);
    }

    #[test]
    fn membership() {
        let s = mixed();
        assert!(s.contains_row(ObsRef::F32(&[2.0, 1.0, -2.0, 1.0, 3.0])));
        assert!(!s.contains_row(ObsRef::F32(&[3.0, 1.0, -2.0, 1.0, 3.0])));
        assert!(!s.contains_row(ObsRef::F32(&[1.5, 1.0, -2.0, 1.0, 3.0])), "half is no index");
        assert!(!s.contains_row(ObsRef::F32(&[1.0, f32::NAN, -2.0, 1.0, 3.0])));
        assert!(!s.contains_row(ObsRef::U8(&[1, 1, 1, 1, 1])), "other element type");
        assert!(Space::Discrete(2).contains_action(ActionRef::Discrete(&[1])));
        assert!(!Space::Discrete(2).contains_action(ActionRef::Discrete(&[-1])));
        assert!(!Space::Discrete(2).contains_action(ActionRef::Continuous(&[1.0])));
        assert!(!Space::box_f32(&[-1.0], &[1.0]).contains_action(ActionRef::Continuous(&[f32::NAN])));
    }

    #[test]
    fn serde_keeps_infinite_bounds() {
        let s = Space::box_f32(&[-4.8, f32::NEG_INFINITY], &[4.8, f32::INFINITY]);
        let json = serde_json::to_string(&s).unwrap();
        assert_eq!(serde_json::from_str::<Space>(&json).unwrap(), s);
    }
}
