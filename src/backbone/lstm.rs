//! Stacked LSTM layers with the semantics and parameter names of `torch.nn.LSTM`; formula in `ops::recurrent`.

use super::rnn::{Rnn, passed_on};
use super::{Backbone, Part, RnnConfig, Scratch, SeqGrad, SeqGradOut, SeqShape, Sequence, State, Tape};
use crate::device::ViewMut;
use crate::error::Result;
use crate::ops::Backend;
use crate::ops::recurrent::Cell;
use crate::params::{ParamLayout, ParamSpec, Params};

/// A LSTM of `n_layers` layers of width `d_model`.
#[derive(Debug, Clone)]
pub struct Lstm(Rnn);

passed_on!(Lstm, Cell::Lstm);
