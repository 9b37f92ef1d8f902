pub mod logger;
#[cfg(feature = "plot")]
pub mod plot;
