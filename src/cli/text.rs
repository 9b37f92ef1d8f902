//! How numbers and times are shown to people.

/// `29952` as `29,952`.
pub fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// Bytes in the unit that gives one to three digits.
pub fn bytes(n: u64) -> String {
    let (mut x, mut unit) = (n as f64, 0);
    while x >= 1024.0 && unit < 4 {
        x /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{n} B") } else { format!("{x:.1} {}", ["B", "KiB", "MiB", "GiB", "TiB"][unit]) }
}

/// `42 s`, `1 min 12 s` or `2 h 5 min`.
pub fn duration(seconds: f64) -> String {
    let s = seconds.max(0.0).round() as u64;
    match s {
        0..60 => format!("{seconds:.1} s"),
        60..3600 => format!("{} min {} s", s / 60, s % 60),
        _ => format!("{} h {} min", s / 3600, s % 3600 / 60),
    }
}

/// Three digits after the point, without trailing zeros.
pub fn number(x: f64) -> String {
    let text = format!("{x:.3}");
    let short = text.trim_end_matches('0').trim_end_matches('.');
    if short == "-0" { "0".to_owned() } else { short.to_owned() }
}

/// How this program was called, so that a printed command can be pasted.
pub fn program() -> String {
    std::env::args().next().filter(|p| !p.is_empty()).unwrap_or_else(|| "mamba-rl".to_owned())
}

/// A path as an argument of a shell.
pub fn shell(path: &std::path::Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:@,".contains(c);
    if !text.is_empty() && text.chars().all(plain) { text } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shown_as_people_write() {
        assert_eq!(
            (thousands(0), thousands(999), thousands(1000), thousands(1234567)),
            ("0".into(), "999".into(), "1,000".into(), "1,234,567".into())
        );
        assert_eq!((bytes(1023), bytes(1536), bytes(3 << 30)), ("1023 B".into(), "1.5 KiB".into(), "3.0 GiB".into()));
        assert_eq!(
            (duration(4.24), duration(72.0), duration(7500.0)),
            ("4.2 s".into(), "1 min 12 s".into(), "2 h 5 min".into())
        );
        assert_eq!((number(0.98), number(-0.0001), number(12.0)), ("0.98".into(), "0".into(), "12".into()));
        assert_eq!(shell(std::path::Path::new("a b")), "'a b'");
    }
}
