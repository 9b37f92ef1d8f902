use mamba_rl::config::Config;
use std::path::Path;
fn main() {
    let sets: Vec<String> = std::env::args().skip(2).collect();
    let dir = std::env::args().nth(1).unwrap();
    let mut c = Config::load(None, None, &sets, &Default::default()).unwrap();
    let env = mamba_rl::train::make_env(&c.env.id, c.env.legacy, &serde_json::json!({})).unwrap();
    c.resolve(env.spec()).unwrap();
    c.validate().unwrap();
    std::fs::create_dir_all(&dir).unwrap();
    let r = mamba_rl::train::run(&c, mamba_rl::train::RunOptions { run_dir: Path::new(&dir).into(), resume: std::env::var("RESUME").is_ok(), init_from: None, stop: Default::default(), quiet: false, preset: "popgym".into() });
    match r { Ok(r) => println!("{}", serde_json::to_string_pretty(&r).unwrap()), Err(e) => println!("ERR {e}") }
}
