//! Reading Rust text without a parser: comments and literals blanked out, function bodies measured, test items cut away.
//! All functions keep line numbers, so a finding can name its line.

/// The same text with comments, strings and characters replaced by blanks; newlines stay.
pub fn code_only(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut i = 0;
    while i < chars.len() {
        let end = literal_or_comment_end(&chars, i);
        if end == i {
            out.push(chars[i]);
            i += 1;
        } else {
            out.extend(chars[i..end].iter().map(|&c| if c == '\n' { '\n' } else { ' ' }));
            i = end;
        }
    }
    out
}

/// End of the comment or literal that starts at `i`; `i` itself where none does.
fn literal_or_comment_end(chars: &[char], i: usize) -> usize {
    let at = |j: usize| chars.get(j).copied().unwrap_or('\0');
    match (at(i), at(i + 1)) {
        ('/', '/') => (i..chars.len()).find(|&j| chars[j] == '\n').unwrap_or(chars.len()),
        ('/', '*') => block_comment_end(chars, i),
        ('"', _) => quoted_end(chars, i, '"'),
        ('\'', '\\') => quoted_end(chars, i, '\''),
        ('\'', _) if at(i + 2) == '\'' => i + 3,
        ('r', '"' | '#') if i == 0 || !is_word(chars[i - 1]) || prefixed(chars, i) => raw_string_end(chars, i),
        _ => i,
    }
}

/// Is the `r` at `i` preceded by the `b` or `c` of a raw byte or C string?
fn prefixed(chars: &[char], i: usize) -> bool {
    matches!(chars[i - 1], 'b' | 'c') && (i < 2 || !is_word(chars[i - 2]))
}

fn block_comment_end(chars: &[char], start: usize) -> usize {
    let (mut depth, mut i) = (0, start);
    while i < chars.len() {
        match (chars[i], chars.get(i + 1)) {
            ('/', Some('*')) => (depth, i) = (depth + 1, i + 2),
            ('*', Some('/')) => (depth, i) = (depth - 1, i + 2),
            _ => i += 1,
        }
        if depth == 0 {
            break;
        }
    }
    i.min(chars.len())
}

fn quoted_end(chars: &[char], start: usize, quote: char) -> usize {
    let mut i = start + 1;
    while i < chars.len() && chars[i] != quote {
        i += if chars[i] == '\\' { 2 } else { 1 };
    }
    (i + 1).min(chars.len())
}

fn raw_string_end(chars: &[char], start: usize) -> usize {
    let hashes = chars[start + 1..].iter().take_while(|&&c| c == '#').count();
    if chars.get(start + 1 + hashes) != Some(&'"') {
        return start; // a raw identifier such as r#type
    }
    let mut i = start + 2 + hashes;
    while i < chars.len() {
        if chars[i] == '"' && chars[i + 1..].iter().take_while(|&&c| c == '#').count() >= hashes {
            return i + 1 + hashes;
        }
        i += 1;
    }
    chars.len()
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Byte offsets where `word` stands as a whole word.
pub fn words(text: &str, word: &str) -> Vec<usize> {
    let free = |at: usize| {
        let (before, after) = (&text[..at], &text[at + word.len()..]);
        !before.chars().next_back().is_some_and(is_word) && !after.chars().next().is_some_and(is_word)
    };
    text.match_indices(word).map(|(at, _)| at).filter(|&at| free(at)).collect()
}

/// Line of a byte offset, from 1.
pub fn line_of(text: &str, at: usize) -> usize {
    1 + text[..at].matches('\n').count()
}

/// The identifier that `text` begins with, perhaps empty.
pub fn identifier(text: &str) -> &str {
    let end = text.find(|c: char| !is_word(c) && c != '$').unwrap_or(text.len());
    &text[..end]
}

/// Offset just behind the brace that closes the one at `open`.
pub fn closing(code: &str, open: usize) -> usize {
    let mut depth = 0;
    for (i, c) in code[open..].char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return open + i + 1;
        }
    }
    code.len()
}

/// Offset of the body's brace of the item that starts at `at`; None where a `;` ends it first.
pub fn body_open(code: &str, at: usize) -> Option<usize> {
    let mut depth = 0;
    for (i, c) in code[at..].char_indices() {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            '{' if depth == 0 => return Some(at + i),
            ';' if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

/// A function with a body.
#[derive(Debug, PartialEq, Eq)]
pub struct Function {
    pub name: String,
    /// Line of its `fn`.
    pub line: usize,
    /// Lines from `fn` to the closing brace.
    pub lines: usize,
}

/// All functions with a body, nested ones too. `code` comes from [`code_only`].
pub fn functions(code: &str) -> Vec<Function> {
    let mut out = Vec::new();
    for at in words(code, "fn") {
        let name = identifier(code[at + 2..].trim_start());
        if name.is_empty() {
            continue; // a function pointer type
        }
        if let Some(open) = body_open(code, at) {
            let lines = 1 + code[at..closing(code, open)].matches('\n').count();
            out.push(Function { name: name.to_owned(), line: line_of(code, at), lines });
        }
    }
    out
}

/// `code` with every item under `#[cfg(test)]` blanked out.
pub fn without_tests(code: &str) -> String {
    let mut out = code.to_owned();
    for (at, mark) in code.match_indices("#[cfg(test)]") {
        let from = at + mark.len();
        let end = match body_open(code, from) {
            Some(open) => closing(code, open),
            None => code[from..].find(';').map_or(code.len(), |i| from + i + 1),
        };
        let blank: String = code[at..end].chars().map(|c| if c == '\n' { '\n' } else { ' ' }).collect();
        // one byte per blank: offsets move only where the cut text was not ASCII, lines never do
        if blank.len() == end - at {
            out.replace_range(at..end, &blank);
        } else {
            return without_tests(&(code[..at].to_owned() + &blank + &code[end..]));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_blanked() {
        let code =
            code_only("a // dbg!\nb /* x /* y */ dbg! */ c \"dbg!\\\" \" d 'x' e '\\'' f r#\"dbg!\"# g br\"z\" h");
        assert_eq!(code.split_whitespace().collect::<String>(), "abcdefgbh");
        assert_eq!(code.matches('\n').count(), 1);
        assert_eq!(code_only("fn f<'a>(x: &'a str) {}"), "fn f<'a>(x: &'a str) {}");
        assert_eq!(code_only("let r#type = \"}\";").trim_end(), "let r#type =    ;");
    }

    #[test]
    fn functions_are_measured_from_fn_to_brace() {
        let text =
            "type F = fn(u8);\nfn a(x: [u8; 2])\nwhere\n{\n    // }\n    fn b() {}\n}\ntrait T { fn c(&self); }\n";
        let found: Vec<_> = functions(&code_only(text)).into_iter().map(|f| (f.name, f.line, f.lines)).collect();
        assert_eq!(found, [("a".to_owned(), 2, 6), ("b".to_owned(), 6, 1)]);
    }

    #[test]
    fn test_items_are_cut_away() {
        let code = "a\n#[cfg(test)]\nmod tests {\n x { y }\n}\nb\n#[cfg(test)]\nuse z;\nc";
        let cut = without_tests(code);
        assert_eq!(cut.split_whitespace().collect::<Vec<_>>(), ["a", "b", "c"]);
        assert_eq!(cut.matches('\n').count(), code.matches('\n').count());
        assert_eq!(without_tests("a\n#[cfg(test)]\nmod t { é }\nb").split_whitespace().collect::<String>(), "ab");
    }

    #[test]
    fn words_are_whole() {
        assert_eq!(words("unsafe_x unsafe unsafely", "unsafe"), [9]);
    }
}
