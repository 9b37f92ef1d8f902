//! `--only`: runs by LABEL, LABEL/BACKBONE or LABEL/BACKBONE/SEED, where `*` stands for any letters.

use std::fmt;
use std::str::FromStr;

/// One pattern.
#[derive(Debug, Clone)]
pub struct Filter {
    text: String,
    parts: Vec<String>,
}

/// Text that is no pattern.
#[derive(Debug, thiserror::Error)]
#[error("expected LABEL, LABEL/BACKBONE or LABEL/BACKBONE/SEED, where `*` stands for anything")]
pub struct NotAPattern;

impl FromStr for Filter {
    type Err = NotAPattern;

    fn from_str(text: &str) -> Result<Self, NotAPattern> {
        let parts: Vec<String> = text.split('/').map(str::to_owned).collect();
        if parts.len() > 3 || parts.iter().any(String::is_empty) {
            return Err(NotAPattern);
        }
        Ok(Filter { text: text.to_owned(), parts })
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Filter {
    /// Is this run, LABEL/BACKBONE/SEED, among those meant? Parts that the pattern lacks may be anything.
    pub fn takes(&self, title: &str) -> bool {
        self.parts.iter().zip(title.split('/')).all(|(pattern, part)| fits(pattern, part))
    }
}

/// Pieces between stars must follow each other; the first begins the text, the last ends it.
fn fits(pattern: &str, text: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut text) = text.strip_prefix(first) else { return false };
    let mut pieces: Vec<&str> = rest.split('*').collect();
    let last = pieces.pop().unwrap_or_default();
    for piece in pieces {
        let Some(at) = text.find(piece) else { return false };
        text = &text[at + piece.len()..];
    }
    text.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_by_hand() {
        let takes = |pattern: &str, title: &str| pattern.parse::<Filter>().unwrap().takes(title);
        assert!(takes("a", "a/gru/1") && !takes("a", "ab/gru/1"));
        assert!(takes("*/gru", "a/gru/1") && !takes("*/gru", "a/lstm/1"));
        assert!(takes("a*c*/*/2", "abcd/mlp/2") && !takes("a*c*/*/2", "abd/mlp/2") && !takes("a/*/2", "a/mlp/1"));
        assert!(takes("*ab", "abab/x/1") && !takes("a*a", "a/x/1"));
        assert!(
            "a//b".parse::<Filter>().is_err() && "a/b/c/d".parse::<Filter>().is_err() && "".parse::<Filter>().is_err()
        );
    }
}
