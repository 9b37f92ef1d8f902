//! Shared by the integration tests: the golden-file harness and the bodies of field cases.
#![allow(dead_code)] // each test file uses its own part

pub mod alloc;
pub mod cases_acting;
pub mod cases_backbone;
pub mod cases_learner;
pub mod cases_loop;
pub mod cases_replay;
pub mod cases_value;
pub mod counter;
pub mod device_net;
pub mod golden;
pub mod golden_hf;
pub mod golden_mamba;
pub mod golden_r2d2;
pub mod golden_rl;
pub mod golden_rnn;
pub mod net;
pub mod oracle;
pub mod rig;
pub mod soft_rig;
