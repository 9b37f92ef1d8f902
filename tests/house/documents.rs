//! Rules about the words around the code: files that must be there, links that must lead somewhere, config keys and
//! metric tags that must be explained.

use crate::source::{code_only, identifier};

/// Files that a visitor looks for.
pub const REQUIRED: [&str; 23] = [
    "Cargo.toml",
    "Cargo.lock",
    "rustfmt.toml",
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE-MIT",
    "LICENSE-APACHE",
    ".ci/run",
    "runs/README.md",
    "docs/training.md",
    "docs/embedding.md",
    "docs/environments.md",
    "docs/results.md",
    "docs/numerics.md",
    "docs/checkpoint-format.md",
    "docs/troubleshooting.md",
    "docs/cuda.md",
    "docs/api.md",
    "docs/comparison.md",
    "tools/gpu_check.sh",
    "src/lib.rs",
    "src/main.rs",
];

/// Required files that are not among `files`.
pub fn missing_files(files: &[String]) -> Vec<String> {
    REQUIRED.iter().filter(|r| !files.iter().any(|f| f == *r)).map(|r| format!("{r} is missing")).collect()
}

/// Targets of `[text](target)` in Markdown, code left out.
pub fn links(markdown: &str) -> Vec<String> {
    let mut out = Vec::new();
    let mut fenced = false;
    for line in markdown.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        // even pieces stand outside `code`
        for piece in line.split('`').step_by(2).filter(|_| !fenced) {
            let targets = piece.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
            out.extend(targets.map(|(target, _)| target.to_owned()));
        }
        // a link whose text is `code`
        if !fenced {
            let targets = line.split("`](").skip(1).filter_map(|rest| rest.split_once(')'));
            out.extend(targets.map(|(target, _)| target.to_owned()));
        }
    }
    out.sort();
    out.dedup();
    out
}

/// The anchor that a Markdown heading gets.
pub fn anchor(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

/// Links of a document that lead nowhere. `read(path)` gives the text of a file beside it, None where there is none.
pub fn broken_links(markdown: &str, read: &dyn Fn(&str) -> Option<String>) -> Vec<String> {
    let leads = |link: &String| {
        let (file, heading) = link.split_once('#').unwrap_or((link, ""));
        let text = if file.is_empty() { Some(markdown.to_owned()) } else { read(file) };
        let has = |t: String| {
            let mut headings = t.lines().filter(|l| l.starts_with('#')).map(|l| anchor(l.trim_start_matches('#')));
            heading.is_empty() || headings.any(|h| h == heading)
        };
        text.is_some_and(has)
    };
    let elsewhere = |l: &str| l.contains("://") || l.starts_with("mailto:") || l.starts_with("data:");
    let inside = links(markdown).into_iter().filter(|l| !elsewhere(l));
    inside.filter(|l| !leads(l)).map(|l| format!("link `{l}` leads nowhere")).collect()
}

/// Public fields of each struct: (struct, [(field, type)]).
fn structs(code: &str) -> Vec<(String, Vec<(String, String)>)> {
    let mut out = Vec::new();
    for (at, mark) in code.match_indices("pub struct ") {
        let name = identifier(&code[at + mark.len()..]).to_owned();
        let body = code[at..].split_once('{').and_then(|(_, b)| b.split_once("\n}")).map_or("", |(b, _)| b);
        let fields = body.lines().filter_map(|l| l.trim().strip_prefix("pub ")?.split_once(": "));
        let fields = fields.map(|(f, t)| (f.to_owned(), t.trim_end_matches(',').to_owned())).collect();
        out.push((name, fields));
    }
    out
}

/// Key paths of the config tree, from the text of its source: `section.key` for every field of every section.
pub fn config_keys(source: &str) -> Vec<String> {
    let all = structs(&code_only(source));
    let fields = |name: &str| all.iter().find(|(n, _)| n == name).map(|(_, f)| f.as_slice()).unwrap_or_default();
    let of_section = |(section, ty): &(String, String)| {
        let section = section.clone();
        fields(ty).iter().map(move |(key, _)| format!("{section}.{key}")).collect::<Vec<_>>()
    };
    fields("Config").iter().flat_map(of_section).collect()
}

/// Config keys that the reference does not name, and names there that are no keys.
pub fn config_reference(source: &str, reference: &str) -> Vec<String> {
    let keys = config_keys(source);
    let rows: Vec<&str> =
        reference.lines().filter_map(|l| l.strip_prefix("| `")?.split_once('`')).map(|r| r.0).collect();
    let silent = keys.iter().filter(|k| !rows.contains(&k.as_str())).map(|k| format!("key `{k}` has no row"));
    let sections: Vec<&str> = keys.iter().filter_map(|k| k.split_once('.')).map(|(s, _)| s).collect();
    let is_path = |r: &&&str| r.split_once('.').is_some_and(|(s, _)| sections.contains(&s)) && !r.contains('*');
    let stale = rows.iter().filter(is_path).filter(|r| !keys.iter().any(|k| k == *r));
    silent.chain(stale.map(|r| format!("row `{r}` is no key"))).collect()
}

/// String literals of the form `group/name` with a known group: metric tags.
pub fn metric_tags(source: &str) -> Vec<String> {
    let groups = ["charts/", "eval/", "train/", "losses/", "replay/", "learner/", "actor/"];
    let is_tag = |s: &&str| {
        let name = groups.iter().find_map(|g| s.strip_prefix(g)).unwrap_or_default();
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphabetic() || c == '_')
    };
    source.split('"').filter(is_tag).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_files_are_named() {
        assert_eq!(missing_files(&[]).len(), REQUIRED.len());
        let all: Vec<String> = REQUIRED.iter().map(|s| (*s).to_owned()).collect();
        assert!(missing_files(&all).is_empty());
    }

    #[test]
    fn broken_links_are_found() {
        let read = |p: &str| (p == "a.md").then(|| "# One\n## Two, or three\n".to_owned());
        let text = "[a](a.md) [b](b.md) [c](a.md#two-or-three) [d](a.md#four) [e](https://x.y) [`f`](f.md) `[g](g.md)`\n```\n[h](h.md)\n```\n";
        let found = broken_links(text, &read);
        assert_eq!(found.len(), 3, "{found:?}");
        for target in ["a.md#four", "b.md", "f.md"] {
            assert!(found.iter().any(|f| f.contains(target)), "{target}");
        }
    }

    #[test]
    fn config_reference_is_compared_both_ways() {
        let source = "pub struct Config {\n    /// E.\n    pub env: EnvSection,\n}\npub struct EnvSection {\n    pub id: String,\n    pub num_envs: usize,\n}\n";
        assert_eq!(config_keys(source), ["env.id", "env.num_envs"]);
        let found = config_reference(source, "| `env.id` | x |\n| `env.old` | y |\n| `env.args.*` | z |\n");
        assert_eq!(found, ["key `env.num_envs` has no row", "row `env.old` is no key"]);
    }

    #[test]
    fn tags_are_literals_with_a_known_group() {
        let source = "(\"charts/SPS\", x), (\"src/a\", y), (\"losses/td_loss\", z), (\"replay/a.rs\", w)";
        assert_eq!(metric_tags(source), ["charts/SPS", "losses/td_loss"]);
    }
}
