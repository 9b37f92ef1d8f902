pub mod replay;
pub mod value;
