//! Whole bodies: how many launches a layer takes.

use std::sync::Arc;

use mamba_rl::backbone::{self, Backbone, BackboneConfig, Parts, SeqGrad, SeqGradOut, SeqShape, Sequence};
use mamba_rl::device::cuda::Cuda;
use mamba_rl::device::{Device, Kind, Precision, View, ViewMut};
use mamba_rl::params::{ParamLayout, Params};

use super::net::{mamba, rng};
use super::places::open;

const SHAPE: SeqShape = SeqShape { time: 9, batch: 2 };

/// Kernels and products of a forward without tape, one with, and a backward.
fn launches(dev: &Cuda, config: &BackboneConfig) -> [usize; 3] {
    let mut body: Box<dyn Backbone<Cuda>> = backbone::build(config).unwrap();
    let layout = Arc::new(ParamLayout::new(body.parameters()).unwrap());
    body.bind(&layout).unwrap();
    let params = Params::new(dev, layout.clone(), &layout.initial(&mut rng(1))).unwrap();
    let zeros = |len: usize| dev.zeros(len, Kind::Full).unwrap();
    let (x, n) = (zeros(SHAPE.rows() * body.d_input()), SHAPE.rows() * body.d_output());
    let (mut y, g_y, mut grads) = (zeros(n), zeros(n), zeros(layout.len()));
    let mut state = Parts::zeros(dev, body.state_layout(), SHAPE.batch).unwrap();
    let mut tape = Parts::zeros(dev, &body.tape_layout(SHAPE), 1).unwrap();
    let mut scratch = Parts::zeros(dev, &body.scratch_layout(SHAPE, true), 1).unwrap();
    let seq = Sequence { shape: SHAPE, x: View::new(&x, 0, dev.len(&x)), reset: None, valid: None };
    let mut marks = vec![dev.launches()];
    for tape in [None, Some(&mut tape)] {
        body.forward(dev, &params, seq, &mut state, &mut scratch, ViewMut::new(&mut y, 0, n), tape).unwrap();
        marks.push(dev.launches());
    }
    let from = SeqGrad { g_y: View::new(&g_y, 0, n), g_state: None };
    let to = SeqGradOut { g_params: &mut grads, g_x: None, g_state: None };
    body.backward(dev, &params, seq, &tape, &mut scratch, from, to).unwrap();
    marks.push(dev.launches());
    [0, 1, 2].map(|i| {
        let done = marks[i + 1].since(marks[i]);
        done.kernels + done.products + done.moves
    })
}

/// At most 14 launches for a layer forward and 22 backward in f32, copies and fills included.
#[test]
fn launches_of_a_layer() {
    let dev = open(Precision::F32);
    let [one, two] = [1, 2].map(|n_layers| launches(&dev, &mamba(3, 16, n_layers, 16, 4)));
    let layer: Vec<usize> = one.iter().zip(two).map(|(one, two)| two - one).collect();
    println!("launches of a layer: {} forward without tape, {} with, {} backward", layer[0], layer[1], layer[2]);
    assert!(layer[0] <= 14 && layer[1] <= 14 && layer[2] <= 22, "{layer:?}");
}
